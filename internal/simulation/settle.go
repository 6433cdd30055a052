package simulation

import (
	"errors"
	"slices"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/request"
)

const (
	// After quietRounds rounds without a change, settle returns. After idleRounds of them, time
	// passes in steps of longStepNanos.
	quietRounds   = 260
	idleRounds    = 60
	longStepNanos = 20_000_000
	// maxEmptyTurns is the number of turns without an event after which a wait counts as endless.
	maxEmptyTurns = 20_000
	// returnLimitNanos is the time within which rails must come up again when everything is
	// repaired.
	returnLimitNanos = 60_000_000_000
)

// heal repairs everything except what the plan breaks for good.
func (w *world) heal() {
	w.traceAll("heal")
	w.healing = true
	s := &w.plan.setup
	w.net.heal()
	for rail, setup := range w.plan.setup.rails {
		w.setLatency(rail, setup.latency)
		for a, r := range w.ranks {
			if !r.dead && rail < s.portsOf(a) {
				w.net.port(port{a, rail}, true, 0)
			}
		}
	}
	for a := range w.ranks {
		for b := range a {
			for _, l := range s.links(b, a) {
				w.net.mend(l)
				w.net.impair(l, impairment{})
			}
		}
	}
	for _, r := range w.ranks {
		for i := range w.groups {
			r.call(func(*pml.PML) { r.makeContext(i) })
		}
	}
	if w.parted {
		w.part()
	}
	if dead, ok := s.deadLink(); ok {
		w.net.cut(dead, 0, true)
	}
	for _, p := range s.deadPorts {
		w.net.port(p, false, 0)
	}
}

// round gives every rank some turns, lets time pass, and checks what has completed.
func (w *world) round(quiet int) {
	turns := 4
	if quiet > idleRounds {
		turns = 12
	}
	for range turns {
		for _, r := range w.ranks {
			r.turn()
		}
	}
	w.reportDeaths()
	switch {
	case quiet > idleRounds:
		w.pass(longStepNanos)
	case !w.next():
		w.pass(1_000_000)
	}
	w.observe()
}

func (w *world) underway() int {
	n := 0
	for _, r := range w.ranks {
		n += len(r.probes)
		for _, s := range r.sends {
			if s.active {
				n++
			}
		}
		for _, rc := range r.recvs {
			if rc.active {
				n++
			}
		}
	}
	return n
}

// settle runs rounds until nothing changes any more.
func (w *world) settle() {
	before := w.underway()
	for quiet := 0; quiet < quietRounds; quiet++ {
		events := w.result.Rails
		w.round(quiet)
		if now := w.underway(); now != before {
			before, quiet = now, 0
		}
		if w.result.Rails != events {
			quiet = min(quiet, idleRounds)
		}
	}
}

// collect receives every message that has arrived at a rank and that no receive takes. It reports
// whether there were any.
func (w *world) collect(r *rank) (any bool) {
	if r.dead {
		return false
	}
	for len(r.taken) > 0 {
		r.receiveTaken(0)
		any = true
	}
	for ctx, group := range w.plan.setup.groups {
		for source := range group {
			if r.ctxs[ctx] == nil {
				continue
			}
			env, found := r.unreceived(pattern{ctx, source, request.AnyTag})
			if !found {
				continue
			}
			any = true
			rc := &receive{rank: r.rank, ctx: ctx, source: source, tag: env.Tag, elem: 1}
			r.irecv(rc, make([]byte, int(env.Bytes)+idBytes+guard))
		}
	}
	return any
}

func (w *world) collectAll() (any bool) {
	for _, r := range w.ranks {
		any = w.collect(r) || any
	}
	return any
}

// runOthers is the idle policy of a rank (progress.Config.Idle). While the rank waits for requests
// without events, it runs the other ranks and advances time.
func (r *rank) runOthers() {
	w := r.w
	if !r.waiting {
		return // the call does not wait
	}
	if r.emptyTurns++; r.emptyTurns > maxEmptyTurns {
		w.fail("bounded", "rank %d waits, and nothing happens any more", r.rank)
	}
	for range 4 {
		for _, o := range w.ranks {
			if o != r {
				o.turn()
			}
		}
	}
	if r.emptyTurns%16 == 1 {
		w.reportDeaths()
	}
	if r.emptyTurns == maxEmptyTurns/2 && w.net.hasNoKeepAlive() {
		for _, o := range w.ranks {
			if !o.dead && o.p.PeerState(r.rank) == bml.PeerLost {
				w.failRails(r.rank, o.rank)
			}
		}
	}
	switch {
	case r.emptyTurns > maxEmptyTurns/10 && r.emptyTurns%4 == 0:
		w.pass(longStepNanos)
	case r.emptyTurns%4 == 0 && !w.next() || r.emptyTurns%64 == 0:
		w.pass(5_000_000)
	}
	if r.emptyTurns%16 == 0 {
		w.collectAll()
	}
	for _, o := range w.ranks {
		if !o.dead {
			o.observeReceives()
		}
		if o != r && !o.dead {
			o.observeSends()
		}
	}
}

// waitAll waits for all sends of a rank, by one of the calls of the Wait family.
func (r *rank) waitAll() {
	var all []request.Request
	for _, s := range r.sends {
		if s.active {
			all = append(all, s.handle)
		}
	}
	if len(all) == 0 || r.dead {
		return
	}
	r.w.traceOf(r.rank, "waits for %d sends", len(all))
	r.waiting = true
	defer func() { r.waiting = false }()
	switch r.w.plan.seed % 4 {
	case 0:
		for len(all) > 0 {
			sts := make([]request.Status, len(all))
			err := request.WaitAllStatus(all, sts)
			if err != nil && !errors.Is(err, request.ErrInStatus) {
				r.must(err)
			}
			var pending []request.Request
			for i, h := range all {
				if errors.Is(sts[i].Err, request.ErrPending) {
					pending = append(pending, h)
				} else {
					r.ended(h, sts[i].Err)
				}
			}
			all = pending
		}
	case 1:
		for range all {
			i, _, err := request.WaitAny(all...)
			if i < 0 {
				break
			}
			r.ended(all[i], err)
		}
	case 2:
		for _, h := range all {
			_, err := h.Wait()
			r.ended(h, err)
		}
	default:
		sts, indices := make([]request.Status, len(all)), make([]int, len(all))
		for left := len(all); left > 0; {
			n, _ := request.WaitSome(all, indices, sts)
			if n <= 0 {
				break
			}
			left -= n
			for i := range n {
				r.ended(all[indices[i]], sts[i].Err)
			}
		}
	}
}

// drain waits for all operations, receives what is left, and checks the final state.
func (w *world) drain() {
	// A rank that only receives does not notice that a peer has declared it lost.
	if e := w.plan.setup.ending; e == Parts || e == Breaks {
		w.settle()
		w.discoverLosses()
		for e == Breaks && w.collectAll() { // which may lose a peer too
			w.settle()
			w.discoverLosses()
		}
	}
	for _, r := range w.ranks {
		r.waitAll()
	}
	w.settle()
	for w.collectAll() {
		w.settle()
	}
	if w.plan.setup.ending != Heals {
		w.discoverLosses()
	}
	for _, r := range w.ranks {
		if !r.dead {
			r.finish()
		}
	}
	w.observe()
	w.lookForMessages()
	for end := w.net.Now() + returnLimitNanos; !w.allUp() && w.net.Now() < end; {
		w.round(quietRounds)
	}
	for i := 0; i < quietRounds && w.isBusy(); i++ { // answers may still be in flight
		w.round(i)
	}
	for _, r := range w.ranks {
		if !r.dead {
			r.lookForLeftovers()
		}
	}
	for _, k := range w.finished {
		if !w.ranks[k.rank].dead {
			k.check(w)
		}
	}
	if !w.isExact() {
		w.ordered()
	}
}

// discoverLosses sends a message from each rank to each peer that has declared it lost. Only a send
// makes such a rank notice.
func (w *world) discoverLosses() {
	for again := true; again; {
		again = false
		var asked []*send
		for _, r := range w.ranks {
			for _, o := range w.ranks {
				if !r.dead && !o.dead && o.p.PeerState(r.rank) == bml.PeerLost && r.p.PeerState(o.rank) != bml.PeerLost {
					again = true
					s := &send{ctx: 0, dest: o.rank, to: o.rank, tag: 1, mode: pml.Synchronous, buf: make([]byte, idBytes)}
					r.begin(s)
					r.sends, asked = append(r.sends, s), append(asked, s)
					r.call(func(p *pml.PML) {
						s.r = p.Isend(r.ctxs[0], s.buf, o.rank, 1, s.mode, "isend")
						s.handle = s.r.Handle()
					})
				}
			}
		}
		if again {
			w.settle()
			if w.failRailsOfBlocked(asked) {
				w.settle()
			}
			for _, s := range asked {
				if s.active {
					w.fail("bounded", "rank %d: send %d to rank %d, which has given this rank up, does not end", s.m.from, s.m.id, s.to)
				}
			}
		}
	}
}

// If the network has no keep-alive, failRailsOfBlocked cuts and mends the rails of sends that wait
// for the peer's window. It reports whether there are any. Such a send posts nothing, so only a
// keep-alive would fail the rails. Any other send must end by itself.
func (w *world) failRailsOfBlocked(sends []*send) (any bool) {
	for _, s := range sends {
		if !w.net.hasNoKeepAlive() || !s.active || !w.ranks[s.m.from].waitsForWindow(s) {
			continue
		}
		any = true
		w.failRails(s.m.from, s.to)
	}
	return any
}

// failRails fails the rails of two ranks, as a keep-alive would after one has declared the other
// lost. A rank that only waits for an answer posts nothing, and does not notice otherwise.
func (w *world) failRails(a, b int) {
	for _, l := range w.plan.setup.links(a, b) {
		w.net.cut(l, 0, false)
		w.net.mend(l)
	}
}

// waitsForWindow reports whether an active send has posted nothing, because the peer's windows have
// no room.
func (r *rank) waitsForWindow(s *send) (waits bool) {
	r.call(func(p *pml.PML) {
		waits = slices.ContainsFunc(p.Pending(), func(op pml.Pending) bool { return op.Request == &s.r.Object && op.Phase == "pending" })
	})
	return waits
}

// finish cancels the receives and probes that are left, and frees persistent requests.
func (r *rank) finish() {
	w := r.w
	r.checkNoneWaitsForLost()
	for _, rc := range slices.Clone(r.recvs) {
		if rc.active {
			r.cancel(rc)
		}
		if rc.active {
			w.fail("bounded", "rank %d: a receive from rank %d tag %d does not end: %v", r.rank, rc.source, rc.tag, r.p.Pending())
		}
	}
	r.finishFreed()
	for _, pr := range r.probes {
		r.call(func(*pml.PML) { pr.r.Cancel() })
	}
	r.observe()
	for _, s := range r.sends {
		if s.active {
			w.fail("bounded", "rank %d: send %d to rank %d does not end: %v", r.rank, s.m.id, s.to, r.p.Pending())
		}
		r.must(s.handle.Free())
	}
	for _, rc := range r.recvs {
		r.must(rc.handle.Free())
	}
	r.sends, r.recvs = nil, nil
}

// isLost reports whether messages between two ranks may be missing, because one of them is dead or
// has lost the other.
func (w *world) isLost(a, b int) bool {
	if w.ranks[a].dead || w.ranks[b].dead {
		return true
	}
	return w.ranks[a].p.PeerState(b) == bml.PeerLost || w.ranks[b].p.PeerState(a) == bml.PeerLost
}

func (w *world) lookForMessages() {
	s := &w.plan.setup
	for _, m := range w.messages {
		if !m.got && !w.isLost(m.from, m.to) && s.ending != Refuses {
			w.fail("lost", "message %d of %d bytes from rank %d to rank %d was lost", m.id, m.size, m.from, m.to)
		}
		w.result.Messages++
	}
	for a := range w.ranks {
		for b := range a {
			parted := s.ending == Parts && s.grace > 0
			died := s.ending == Dies && (w.ranks[a].dead || w.ranks[b].dead)
			if w.isLost(a, b) && !parted && !died && s.ending != Breaks {
				w.fail("outcome", "ranks %d and %d have lost each other", a, b)
			}
			if w.isLost(a, b) {
				w.result.Lost++
			}
		}
	}
}

func (w *world) allUp() bool {
	for a, r := range w.ranks {
		for b, o := range w.ranks {
			if r.dead || o.dead || w.isLost(a, b) || w.plan.setup.ending == Breaks {
				continue
			}
			if !w.cutForGood(a, b) && w.isMissing(a, b) {
				return false
			}
		}
	}
	return w.isSettled()
}

func (w *world) isBusy() bool {
	for _, r := range w.ranks {
		if !r.dead && r.p.Busy() > 0 {
			return true
		}
	}
	return false
}

// areVictims reports whether two ranks are the victims of the plan, in either order.
func (w *world) areVictims(a, b int) bool {
	v := w.plan.setup.victims
	return a == v[0] && b == v[1] || a == v[1] && b == v[0]
}

func (w *world) cutForGood(a, b int) bool { return w.parted && w.areVictims(a, b) }

func (r *rank) lookForLeftovers() {
	w := r.w
	whole := true
	for peer := range w.ranks {
		whole = whole && (!w.isLost(r.rank, peer) && !w.cutForGood(r.rank, peer))
	}
	for _, o := range w.ranks {
		if whole && w.plan.setup.ending != Breaks && w.isMissing(r.rank, o.rank) {
			w.fail("leak", "rank %d: a rail to rank %d is not up that can be: %v", r.rank, o.rank, r.p.Rails())
		}
	}
	if left := r.leftovers(); whole && len(left) > 0 {
		w.fail("leak", "rank %d: %v", r.rank, left)
	}
	if len(r.detached) > 0 {
		w.fail("bounded", "rank %d: devices still hold %d detached buffers", r.rank, len(r.detached))
	}
	st := r.p.Stats()
	if whole && st.Malformed != 0 && w.plan.setup.ending != Refuses {
		w.fail("protocol", "rank %d received %d malformed fragments", r.rank, st.Malformed)
	}
	r.call(func(p *pml.PML) {
		for _, c := range r.ctxs {
			if c != nil {
				p.RemoveContext(c)
			}
		}
		if r.registered != nil {
			p.RemoveMemory(r.registered)
		}
	})
	r.checkWindow(r.earlyAnswerBytes())
	if busy := r.p.Busy(); busy != 0 {
		w.fail("leak", "rank %d: %d sends or answers are unfinished", r.rank, busy)
	}
	if r.regions != 0 {
		w.fail("leak", "rank %d: %d regions are still registered", r.rank, r.regions)
	}
	w.result.add(st)
}
