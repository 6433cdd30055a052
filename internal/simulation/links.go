package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl/transport"
)

// This file decides which modules of two ranks have a link. If each rail is a network of its own,
// only modules of the same rail have one. If the plan is switched, all modules have one: the rails
// between them are first, extra and alternate rails (transport.Pairs), and ranks may have different
// numbers of modules. Otherwise the last rail may be a spare rail.

// port is the module of a rank on a rail.
type port struct{ rank, rail int }

// link joins the modules of two ranks.
type link [2]port

func (l link) reversed() link { return link{l[1], l[0]} }

// impairment describes how a link is impaired. The zero value ends the impairment.
type impairment struct {
	latency, perByte int64   // factors
	loss             float64 // share of packets that are lost and retransmitted
}

// retryNanos is the time until the first retransmission of a lost packet.
const retryNanos = 200_000_000

// portsOf returns the number of modules of a rank.
func (s *setup) portsOf(rank int) int {
	if s.ports == nil {
		return len(s.rails)
	}
	return s.ports[rank]
}

// pairs returns the rails from a rank to another rank, or its rails to itself if it has no other
// rail to itself.
func (s *setup) pairs(from, to int) []transport.Pair {
	leads := func(local, remote int) int {
		switch {
		case s.switched && from != to:
			return 1
		case local != remote:
			return 0
		case s.spare && local == len(s.rails)-1:
			return 1
		}
		return 2
	}
	return transport.Pairs(s.portsOf(from), s.portsOf(to), leads, from < to)
}

// links returns the links of two ranks.
func (s *setup) links(a, b int) (all []link) {
	for _, p := range s.pairs(a, b) {
		all = append(all, link{{a, p.Local}, {b, p.Remote}})
	}
	return all
}

// linksAt returns the links of a port.
func (s *setup) linksAt(p port) (all []link) {
	for other := range s.ranks {
		for _, l := range s.links(p.rank, other) {
			if other != p.rank && l[0] == p {
				all = append(all, l)
			}
		}
	}
	return all
}

// deadLink returns the link of the victims that is never repaired.
func (s *setup) deadLink() (l link, ok bool) {
	if s.deadRail < 0 {
		return link{}, false
	}
	return s.links(s.victims[0], s.victims[1])[s.deadRail], true
}

// crossedPorts returns all ports of the victims except the ports of one link.
func (s *setup) crossedPorts(only link) (dead []port) {
	for _, end := range only {
		for rail := range s.portsOf(end.rank) {
			if p := (port{end.rank, rail}); p != end {
				dead = append(dead, p)
			}
		}
	}
	return dead
}

// isDead reports whether a link is never repaired.
func (s *setup) isDead(l link) bool {
	if dead, ok := s.deadLink(); ok && (l == dead || l == dead.reversed()) {
		return true
	}
	return slices.Contains(s.deadPorts, l[0]) || slices.Contains(s.deadPorts, l[1])
}

// hasDead reports whether some link of two ranks is never repaired.
func (s *setup) hasDead(a, b int) bool {
	return slices.ContainsFunc(s.links(a, b), s.isDead)
}

// drawNetwork draws the parts of a setup that concern links, with its own random numbers.
func (s *setup) drawNetwork(seed uint64, t Transport) *rand.Rand {
	rng := rand.New(rand.NewPCG(seed, 0x6c696e6b+uint64(t)))
	s.impaired = (t == Loop || t == Verbs) && rng.IntN(3) == 0
	if s.switched = rng.IntN(3) == 0; !s.switched {
		return rng
	}
	for n := 2 + rng.IntN(3); len(s.rails) < n; {
		s.rails = append(s.rails, s.rails[rng.IntN(len(s.rails))])
	}
	if t == Verbs { // one fabric has one latency
		for i := range s.rails {
			s.rails[i] = s.rails[0]
		}
	}
	for range s.ranks {
		n := len(s.rails)
		if rng.IntN(3) == 0 {
			n = 1 + rng.IntN(n)
		}
		s.ports = append(s.ports, n)
	}
	if s.ending == Parts {
		// While alternates are untried, package bml adds parts of the grace time up to two seconds.
		// A turn ends one part at most, so short parts would take many turns.
		s.grace = 300_000_000 << rng.IntN(3)
	}
	links := s.links(s.victims[0], s.victims[1])
	if s.deadRail = -1; len(links) == 1 || s.ending == Refuses || s.ending == Breaks {
		return rng
	}
	switch rng.IntN(6) {
	case 0:
		if t != TCP { // because TCP cuts all links of a port to a rank
			s.deadRail = rng.IntN(len(links))
		}
	case 1, 2:
		s.deadPorts = s.crossedPorts(links[rng.IntN(len(links))])
		if rng.IntN(2) == 0 { // some more links are left
			s.deadPorts = slices.DeleteFunc(s.deadPorts, func(port) bool { return rng.IntN(2) == 0 })
		}
	}
	return rng
}

// drawSpare draws whether there is a spare rail, with its own random numbers.
func (s *setup) drawSpare(seed uint64, t Transport) {
	rng := rand.New(rand.NewPCG(seed, 0x73706172+uint64(t)))
	s.spare = !s.switched && len(s.rails) > 1 && rng.IntN(4) == 0
	s.beside = rng.IntN(2) == 0
}

// insertNetworkActions adds the actions that occur only in plans with a switch or with impaired
// links. Each fault is repaired some time later.
func (p *plan) insertNetworkActions(rng *rand.Rand) {
	add := func(fault, repair kind) {
		a := action{kind: fault, rank: rng.IntN(p.setup.ranks), a: rng.IntN(1 << 20), b: rng.IntN(1 << 20), c: rng.IntN(1 << 20)}
		at := rng.IntN(len(p.actions))
		p.actions = slices.Insert(p.actions, at, a)
		a.kind = repair
		p.actions = slices.Insert(p.actions, at+1+rng.IntN(len(p.actions)-at), a)
	}
	if p.setup.switched {
		for range rng.IntN(4) {
			add(doCross, doUncross)
		}
	}
	if p.setup.impaired {
		for range 1 + rng.IntN(6) {
			add(doImpair, doRepair)
		}
	}
}

// impair makes a link, or all links of a port, slow or lossy, or repairs them.
func (w *world) impair(l link, a action) {
	s := &w.plan.setup
	var i impairment
	if a.kind == doImpair {
		factor := []int64{10, 30, 100, 1000}[a.c>>4%4]
		switch a.c >> 1 % 3 {
		case 0:
			i.latency = factor
		case 1:
			i.perByte = factor
		case 2:
			i.loss = []float64{0.1, 0.3, 0.6, 0.9}[a.c>>4%4]
		}
	}
	links := []link{l}
	if a.c&1 == 0 {
		links = s.linksAt(l[0])
	}
	for _, l := range links {
		w.net.impair(l, i)
	}
}

// cross breaks or repairs all ports of two ranks except the ports of one link, which is often an
// alternate.
func (w *world) cross(only link, a action) {
	for _, p := range w.plan.setup.crossedPorts(only) {
		w.net.port(p, a.kind == doUncross, a.c)
	}
}

// isMissing reports whether a rail between two ranks is down that has to be up when everything is
// repaired. An alternate has to be up while one of its modules has no other rail, and a spare rail
// while no other rail is up.
func (w *world) isMissing(from, to int) bool {
	s := &w.plan.setup
	if _, known := w.ranks[from].p.RailsUp(to); known == 0 {
		return false
	}
	if _, hasOwn := w.net.ownRail(); from == to && hasOwn {
		up, all := w.ranks[from].p.RailsUp(to)
		return up < all
	}
	up := map[link]bool{}
	var local, remote uint64 // bits of the modules that have a rail that is up and not an alternate
	for _, st := range w.ranks[from].p.Rails() {
		if st.Peer != to || st.State != "up" {
			continue
		}
		rail := slices.IndexFunc(w.ranks[from].taps, func(t *tap) bool { return t.Attrs().Name == st.Rail })
		up[link{{from, rail}, {to, st.Remote}}] = true
		if !st.Alternate {
			local |= 1 << rail
			remote |= 1 << st.Remote
		}
	}
	return slices.ContainsFunc(s.pairs(from, to), func(p transport.Pair) bool {
		l := link{{from, p.Local}, {to, p.Remote}}
		isNeeded := !p.Alternate || local>>p.Local&1 == 0 || remote>>p.Remote&1 == 0
		if p.Level > 0 && len(up) > 0 {
			isNeeded = false
		}
		return isNeeded && !up[l] && !s.isDead(l)
	})
}

// leftovers returns the leftovers of a rank's PML, except those about rails that are never
// repaired.
func (r *rank) leftovers() []string {
	s := &r.w.plan.setup
	return slices.DeleteFunc(r.p.Leftovers(), func(what string) bool {
		var peer int
		var rest string
		if n, _ := fmt.Sscanf(what, "rank %d: %s", &peer, &rest); n < 2 || rest != "rail" {
			return false
		}
		return s.ending == Breaks || s.hasDead(r.rank, peer) // is tried again and again
	})
}

// isSettled reports whether the rails of a switched network no longer change. It takes a while
// until an unneeded alternate is closed.
func (w *world) isSettled() bool {
	return !w.plan.setup.switched || !slices.ContainsFunc(w.ranks, func(r *rank) bool {
		return !r.dead && len(r.leftovers()) > 0 && r.isWhole()
	})
}

// isWhole reports whether a rank has lost no other rank.
func (r *rank) isWhole() bool {
	for peer := range r.w.ranks {
		if r.w.isLost(r.rank, peer) || r.w.cutForGood(r.rank, peer) || r.p.PeerState(peer) == bml.PeerFailing {
			return false
		}
	}
	return true
}
