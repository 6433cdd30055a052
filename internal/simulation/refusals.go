package simulation

import (
	"math/rand/v2"
	"slices"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/pml"
)

// This file has faults that are no evidence against a path: rails that cannot register memory, or
// that refuse operations as wrong (btl.ClassUsage).

// drawRefusals draws the parts of a setup that concern refusals and peers that are lost at once,
// with its own random numbers.
func (s *setup) drawRefusals(seed uint64, t Transport) {
	rng := rand.New(rand.NewPCG(seed, 0x72656675+uint64(t)))
	s.lateContexts = rng.IntN(2) == 0
	s.inline = min([]int{16, 40, 100, 200}[rng.IntN(4)], s.fragBytes)
	if t == Direct && rng.IntN(2) == 0 {
		// Inline sends, some of them while longer ones wait for the window.
		s.window, s.eager, s.inline, s.maxBytes = 200+200*rng.Int64N(2), 0, 200, 400
	}
	if rng.IntN(3) == 0 {
		s.unregistered = 10
	}
	s.groups = append(s.groups, rng.Perm(s.ranks)[:1+rng.IntN(s.ranks)])
	s.wrongRail = -1
	if s.ending != Heals {
		return
	}
	switch rng.IntN(refusalOdds(t)) {
	case 0:
		s.ending, s.deadRail = Refuses, -1
		for range 1 + rng.IntN(2) {
			s.wrong = append(s.wrong, refusable[rng.IntN(len(refusable))])
		}
		if rng.IntN(2) == 0 {
			s.wrongRail = rng.IntN(len(s.rails))
		}
	case 1:
		s.ending, s.deadRail = Breaks, -1
	}
}

// refusalOdds returns n: one in n seeds of a transport ends with Refuses, and one in n with Breaks.
func refusalOdds(t Transport) int {
	if t == Direct {
		return 4
	}
	return 12
}

// refusable are the kinds of operations that a rail may refuse for good. If all rails refuse them,
// another fragment takes their place. Refusing another kind would end the connection.
var refusable = [...]string{
	"MATCH", "RNDV", "RGET", "ACK", "PUT", "FIN", "FRAG", remoteRead, remoteWrite,
	"RNDVRESTARTNOTIFY", "RNDVRESTARTACK", "RNDVRESTARTNACK",
}

// isWrong reports whether a tap's rail refuses operations of a kind.
func (w *world) isWrong(t *tap, name string) bool {
	s := &w.plan.setup
	return len(s.wrong) > 0 && (s.wrongRail < 0 || s.wrongRail == t.rail) && slices.Contains(s.wrong, name)
}

// postOrRefuse posts an operation, unless the rail refuses its kind. A rail refuses a fragment at
// once, or it delivers the fragment and still calls back with an error.
func (e *tapEndpoint) postOrRefuse(name string, op *btl.Op, post func(*btl.Op) error) error {
	t := e.t
	if !t.w.isWrong(t, name) {
		return post(op)
	}
	isRemote := name == remoteRead || name == remoteWrite
	if !isRemote && t.w.rng.IntN(2) == 0 {
		t.w.result.Refused++
		return btl.ErrTooLong
	}
	done, isPosting := op.Done, true
	op.Done = func(op *btl.Op, err error) {
		op.Done = done
		if err != nil {
			done(op, err)
			return
		}
		t.w.result.Refused++
		err = &btl.Error{Rail: t.Attrs().Name, Peer: e.peer, Class: btl.ClassUsage, Side: btl.SideLocal, Err: btl.ErrTooLong}
		if isPosting { // a post must not call back
			t.refused = append(t.refused, func() { done(op, err) })
			return
		}
		done(op, err)
	}
	err := post(op)
	isPosting = false
	if err != nil {
		op.Done = done
	}
	return err
}

// Progress implements btl.Module.
func (t *tap) Progress() int {
	return t.endRefused() + t.Module.Progress()
}

// endRefused calls back the operations that were refused while they were posted. It must run before
// the PML gets Drained for an endpoint.
func (t *tap) endRefused() int {
	refused := t.refused
	t.refused = nil
	for _, end := range refused {
		end()
	}
	return len(refused)
}

// isAimedAt reports whether a fault waits for a fragment of a kind.
func (r *rank) isAimedAt(name string) bool {
	return slices.ContainsFunc(r.aims, func(a *aim) bool { return a.name == name })
}

// cannotRegister decides whether a tap's rail has no room for a registration.
func (t *tap) cannotRegister() bool {
	n := t.w.plan.setup.unregistered
	if n == 0 || t.w.rng.IntN(n) > 0 {
		return false
	}
	t.w.result.Unregistered++
	return true
}

// checkNoneWaitsForLost checks that no receive or probe waits for a rank that is lost.
func (r *rank) checkNoneWaitsForLost() {
	check := func(what string, p pattern) {
		var err error
		r.call(func(pm *pml.PML) { err = pm.Lost(r.ctxs[p.ctx], p.source) })
		if err != nil {
			r.w.fail("bounded", "rank %d: a %s %+v waits, although the source is lost: %v", r.rank, what, p, err)
		}
	}
	for _, rc := range r.recvs {
		if rc.active && !rc.byProbe {
			check("receive", rc.pattern)
		}
	}
	for _, pr := range r.probes {
		check("probe", pr.pattern)
	}
}
