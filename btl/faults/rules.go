package faults

import (
	"slices"

	"github.com/mpigo/mpigo/btl"
)

// rules are the faults armed at a module, oldest first. Their After and Count are counted down.
type rules []btl.Fault

// add arms a fault. A Count of 0 means 1. Negative numbers count as the smallest sensible value: 0
// for After, 1 for Count, and 0 for the Count of FaultLate.
func (r *rules) add(f btl.Fault) {
	f.After = max(f.After, 0)
	switch {
	case f.Count == 0, f.Count < 0 && f.Kind != btl.FaultLate:
		f.Count = 1
	case f.Count < 0:
		f.Count = 0
	}
	*r = append(*r, f)
}

// strike returns the fault that the next operation to peer meets, if any, and counts the operation
// for the other faults. If several faults are due, the oldest strikes and the others stay due.
// isSend says that the operation is a Send: FaultStale ignores others.
func (r *rules) strike(peer int, isSend bool) (hit btl.Fault, struck bool) {
	list := *r
	for i := 0; i < len(list); i++ {
		f := &list[i]
		switch {
		case !concerns(f, peer), f.Kind == btl.FaultStale && !isSend:
		case f.After > 0:
			f.After--
		case !struck:
			hit, struck = *f, true
			if f.Kind != btl.FaultLate { // its Count is a number of progress calls
				f.Count--
			}
			if f.Kind == btl.FaultLate || f.Count == 0 {
				list = slices.Delete(list, i, i+1)
				i--
			}
		}
	}
	*r = list
	return hit, struck
}

// isDue reports whether a fault would strike the next Send to peer. It does not count the Send.
func (r rules) isDue(peer int) bool {
	return slices.ContainsFunc(r, func(f btl.Fault) bool { return concerns(&f, peer) && f.After == 0 })
}

func concerns(f *btl.Fault, peer int) bool { return f.Peer == peer || f.Peer == btl.AllPeers }
