package comm

import (
	"context"
	"fmt"

	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
)

// A collective call has three parts. The public generic function turns its slices into bytes. A
// method of Comm checks the arguments and calls the builder of the algorithm. Package
// comm/internal/coll has the builders, and runs the schedules that they make. The blocking,
// nonblocking and persistent forms of a collective differ only in their public functions.

const (
	blocking    = coll.Blocking
	nonblocking = coll.Nonblocking
	persistent  = coll.Persistent
)

// begin opens a collective that has no root. It checks the communicator, takes the engine's lock
// until endCollective, and returns an empty schedule. err is the error of an earlier check. A call
// that fails here does not count as a collective. Every other call ends in Schedule.Refuse or run.
func (c *Comm) begin(how coll.How, call calls.ID, err error) (*coll.Schedule, error) {
	return c.open(how, call, coll.NoRoot, err, nil)
}

// beginRooted is begin of a collective with a root, which it checks. A call that fails because of
// its root counts as a collective.
func (c *Comm) beginRooted(how coll.How, call calls.ID, root int, err error) (*coll.Schedule, error) {
	return c.beginRootedOrShort(how, call, root, err, nil)
}

// beginOrShort is begin of a collective that has a short path. If the short path has completed the
// call, schedule and error are nil.
func (c *Comm) beginOrShort(how coll.How, call calls.ID, err error, short func() bool) (*coll.Schedule, error) {
	return c.open(how, call, coll.NoRoot, err, short)
}

// beginRootedOrShort is beginOrShort of a collective with a root.
func (c *Comm) beginRootedOrShort(how coll.How, call calls.ID, root int, err error, short func() bool) (*coll.Schedule, error) {
	s, err := c.open(how, call, root, err, short)
	if s == nil {
		return nil, err
	}
	if err = c.checkRoot(root); err == nil {
		return s, nil
	}
	if unfit := c.team.Unfit(); unfit != nil {
		err = unfit
	}
	defer c.endCollective(s)
	return nil, s.Refuse(err)
}

func (c *Comm) open(how coll.How, call calls.ID, root int, err error, short func() bool) (*coll.Schedule, error) {
	if err == nil {
		err = c.enter()
	}
	if err != nil {
		return nil, c.fail(how.Of(call), root, none, err)
	}
	if how == blocking {
		if short != nil && c.mayBeShort() && c.isShort(short) {
			c.leave()
			return nil, nil
		}
		if err := c.team.Prepare(c.collectiveContext(), call, root); err != nil {
			c.leave()
			return nil, err
		}
	}
	s := c.team.Begin(how, call, root)
	if s == nil {
		why := c.team.WhyNot()
		c.leave()
		return nil, c.fail(how.Of(call), root, none, why)
	}
	return s, nil
}

// run executes the schedule, begins it, or makes its request, depending on the form of the call. It
// gives up when the context of the view ends. typ is nil if the call takes no slices.
func (c *Comm) run(s *coll.Schedule, typ elemType) (Request, error) {
	if c.job.eng.Calls != nil {
		defer c.endCall(c.beginCall(s.ID(), s.Root(), none, s.Bytes()))
	}
	if c.job.check != nil {
		return c.runChecked(s, typ)
	}
	return s.Call(c.collectiveContext())
}

// collectiveContext is the context of the view, or nil if the context never ends.
func (c *Comm) collectiveContext() context.Context {
	if c.done == nil {
		return nil
	}
	return c.ctx
}

// endCollective ends a call and releases the engine's lock. Callers defer it, so that not even a
// panic leaves the lock held.
func (c *Comm) endCollective(s *coll.Schedule) {
	defer c.leave()
	s.Leave()
}

// Checks of buffers. Lengths are in bytes here, and in elements in the errors.

func lengthError(what string, got, want, elem int) error {
	return fmt.Errorf("%w: %s has %d elements, not %d", ErrCount, what, perElem(got, elem), perElem(want, elem))
}

// unevenError is the error of a buffer that cannot be cut into equal parts for all ranks.
func unevenError(what string, got, ranks, elem int) error {
	return fmt.Errorf("%w: %s has %d elements, which is not a multiple of the %d ranks", ErrCount, what, perElem(got, elem), ranks)
}

// perElem is the number of elements in a number of bytes.
func perElem(bytes, elem int) int {
	if elem == 0 {
		return 0
	}
	return bytes / elem
}

// checkApart checks that two buffers do not overlap.
func checkApart(a, b []byte) error {
	if coll.Overlap(a, b) {
		return errOverlap
	}
	return nil
}

var (
	errOverlap = fmt.Errorf("%w: the buffers overlap; pass nil for in place", ErrBuffer)
	errNoOp    = fmt.Errorf("%w: it is nil", ErrOp)
)
