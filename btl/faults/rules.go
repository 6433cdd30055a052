// Package faults is what the transports' injectors (btl.Injector) have in common: which
// operation a fault strikes, and how long a late completion is held back. What striking
// one means is each transport's own, and so is the count of what was struck: a fault is
// to be counted when its effect is there.
//
// All of it is used under the lock of the rank's progress engine.
package faults

import (
	"slices"

	"github.com/mpigo/mpigo/btl"
)

// Rules are the faults armed at a module, oldest first; After and Count are what is left
// of them. With none (the zero value) no operation needs to be shown to them.
type Rules []btl.Fault

// Add arms a fault. A Count of 0 is 1. Negative numbers are taken for the least that there
// can be: no operation that still passes, one that is struck, no turn (FaultLate).
func (r *Rules) Add(f btl.Fault) {
	f.After = max(f.After, 0)
	switch {
	case f.Count == 0, f.Count < 0 && f.Kind != btl.FaultLate:
		f.Count = 1
	case f.Count < 0:
		f.Count = 0
	}
	*r = append(*r, f)
}

// Strike returns the fault that the next operation to peer meets, if any, and counts the
// operation for the others. Of several that are due it takes the oldest; the others stay
// due. arrives says whether the operation brings something to the peer, as a Send and a Put
// do: FaultStale takes no notice of others, which have nothing that could turn up again.
func (r *Rules) Strike(peer int, arrives bool) (hit btl.Fault, struck bool) {
	rules := *r
	for i := 0; i < len(rules); i++ {
		f := &rules[i]
		switch {
		case !concerns(f, peer), f.Kind == btl.FaultStale && !arrives:
		case f.After > 0:
			f.After--
		case !struck:
			hit, struck = *f, true
			if f.Kind != btl.FaultLate { // whose Count is of turns
				f.Count--
			}
			if f.Kind == btl.FaultLate || f.Count == 0 {
				rules = slices.Delete(rules, i, i+1)
				i--
			}
		}
	}
	*r = rules
	return hit, struck
}

// Passes counts a fragment that no fault strikes. If one would, it reports false and
// counts nothing: for SendInline, which has no operation that could be struck.
func (r *Rules) Passes(peer int) bool {
	for i := range *r {
		if f := &(*r)[i]; concerns(f, peer) && f.After == 0 {
			return false
		}
	}
	r.Strike(peer, true)
	return true
}

func concerns(f *btl.Fault, peer int) bool { return f.Peer == peer || f.Peer == btl.AllPeers }
