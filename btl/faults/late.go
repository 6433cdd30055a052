package faults

import (
	"slices"

	"github.com/mpigo/mpigo/btl"
)

// Late is an operation whose completion is held back (btl.FaultLate).
type Late[E btl.Endpoint] struct {
	Endpoint E // which still has the operation among its outstanding ones
	Op       *btl.Op
	Turns    int // that are still to pass
}

// Settle lets a turn pass for those in *late, and completes those whose turns are over.
// It forgets those of endpoints that are not Up any more, whose tear-down completes them.
// It returns how many it completed.
//
// complete may post, and so append to *late: what it appends is for the next turn.
func Settle[E btl.Endpoint](late *[]Late[E], complete func(e E, op *btl.Op)) int {
	n := 0
	for i, old := 0, len(*late); i < min(old, len(*late)); {
		l := &(*late)[i]
		up := l.Endpoint.State() == btl.Up
		if up && l.Turns > 0 {
			l.Turns--
			i++
			continue
		}
		e, op := l.Endpoint, l.Op
		*late = slices.Delete(*late, i, i+1)
		old--
		if up {
			complete(e, op)
			n++
		}
	}
	return n
}
