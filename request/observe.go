package request

import "github.com/mpigo/mpigo/progress"

// Outstanding reports whether the user still has to wait for the operation: it is active, or
// complete and not observed, and was not freed. Lock held.
func (o *Object) Outstanding() bool {
	return (o.state == Active || o.state == Complete) && o.ending&isOrphan == 0
}

// Failure returns the error with which the operation has ended, if no call has observed it yet, or
// nil. Lock held.
func (o *Object) Failure() error {
	if o.state != Complete {
		return nil
	}
	return o.outcome(new(Status))
}

// About wraps err with the operation's parameters. Lock held.
func (o *Object) About(err error) error { return o.op.Describe(err) }

// Waiters returns the waiters of the calls that wait for the operation. A call registers after
// spinning, before it first releases the lock. So a goroutine that takes the lock sees every
// waiting call. Lock held.
func (o *Object) Waiters() []*progress.Waiter {
	if o.waiter == nil {
		return nil
	}
	return append([]*progress.Waiter{o.waiter}, o.moreWaiters...)
}
