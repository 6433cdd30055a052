package comm

import (
	"fmt"

	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/pml"
)

// The rails of RunLocal exist in memory only, so a program can cut them, to see or to test what a
// failed network does to it.

// WithRails sets the number of rails that join the ranks of [RunLocal], from 1, which is the
// default, to 32: network paths that share long messages and stand in for each other.
// [Comm.CutRail] cuts one. RunLocal returns an error that Is ErrCount for another number. Init
// ignores the option: there, the machines have the rails that they have.
func WithRails(n int) Option {
	return func(o *options) {
		o.fabric.Rails, o.badRails = n, nil
		if n < 1 || n > pml.MaxRoutes {
			o.badRails = fmt.Errorf("%w: %d rails between ranks, there may be 1 to %d", ErrCount, n, pml.MaxRoutes)
		}
	}
}

// CutRail cuts a rail between all ranks of [RunLocal], as if somebody had pulled the cable, until
// [Comm.MendRail]. Rails count from 0: [WithRails] sets their number. No message is lost. Ranks
// notice the cut when they next make progress, and go on with the other rails. If none is left,
// their calls wait for one, and fail with [ErrUnreachable] after the grace time ([WithGrace]).
//
// It acts on all ranks of the job, whatever the communicator, and may be called from any goroutine
// while the job runs. Errors: ErrComm; ErrCount if there is no such rail; ErrNotSupported if the
// ranks are not those of RunLocal.
func (c *Comm) CutRail(rail int) error {
	return c.onLanes(calls.CutRail, rail, func(a, b int) error { return c.job.fabric.FailLane(a, b, rail, loop.Cut{}) })
}

// MendRail ends a cut by [Comm.CutRail]. Ranks try a failed rail again after 5 ms, then less and
// less often, up to every half a second, and use it when it works. Its errors are those of CutRail.
func (c *Comm) MendRail(rail int) error {
	return c.onLanes(calls.MendRail, rail, func(a, b int) error { return c.job.fabric.ReviveLane(a, b, rail) })
}

// onLanes does something with a rail for each two ranks of the job. The fabric has locks of its
// own.
func (c *Comm) onLanes(op calls.ID, rail int, do func(a, b int) error) error {
	if c.isNull() {
		return c.fail(op, none, none, errNullComm)
	}
	fabric := c.job.fabric
	if fabric == nil {
		return c.fail(op, none, none, fmt.Errorf("%w: only RunLocal has rails that can be cut", ErrNotSupported))
	}
	if uint(rail) >= uint(fabric.Rails()) {
		return c.fail(op, none, none, fmt.Errorf("%w: rail %d of %d (the option Rails or WithRails sets their number)", ErrCount, rail, fabric.Rails()))
	}
	for a := range fabric.Ranks() {
		for b := range a {
			if err := do(b, a); err != nil {
				return c.fail(op, none, none, err)
			}
		}
	}
	return nil
}
