package comm

import (
	"fmt"

	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/pml"
)

// The rails of RunLocal exist in memory only. A program can cut them to see or test how it behaves
// when a network fails.

// WithRails sets the number of rails between the ranks of [RunLocal], from 1, the default, to 32.
// Rails are network paths that share long messages and replace each other when one fails.
// [Comm.CutRail] cuts a rail. For another number, RunLocal returns an error that Is ErrCount. Init
// ignores the option: it uses the networks of the machines.
func WithRails(n int) Option {
	return func(o *options) {
		o.fabric.Rails, o.badRails = n, nil
		if n < 1 || n > pml.MaxRoutes {
			o.badRails = fmt.Errorf("%w: %d rails between ranks, there may be 1 to %d", ErrCount, n, pml.MaxRoutes)
		}
	}
}

// CutRail cuts a rail between all ranks of [RunLocal], as if somebody had pulled the cable, until
// [Comm.MendRail]. Rails are numbered from 0: [WithRails] sets their number. No message is lost.
// Ranks notice the cut when they next make progress, and continue with the other rails. If no rail
// is left, their calls wait for one, and fail with [ErrUnreachable] after the grace time
// ([WithGrace]).
//
// CutRail acts on all ranks of the job, not only on those of c, and may be called from any
// goroutine while the job runs. Errors: ErrComm; ErrCount if there is no such rail; ErrNotSupported
// if the job does not run under RunLocal.
func (c *Comm) CutRail(rail int) error {
	return c.onLanes(calls.CutRail, rail, func(a, b int) error { return c.job.fabric.FailLane(a, b, rail, loop.Cut{}) })
}

// MendRail ends a cut by [Comm.CutRail]. Ranks try a failed rail again after 5 ms, then at growing
// intervals of up to half a second, and use it when it works. Its errors are those of CutRail.
func (c *Comm) MendRail(rail int) error {
	return c.onLanes(calls.MendRail, rail, func(a, b int) error { return c.job.fabric.ReviveLane(a, b, rail) })
}

// onLanes applies a function to a rail for each pair of ranks of the job. The fabric has its own
// locks.
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
