package request

import (
	"slices"

	"github.com/mpigo/mpigo/progress"
)

// Outstanding reports whether the user still has to wait for the operation: it is active,
// or complete with nobody having observed it, and was not freed. Lock held.
func (o *Object) Outstanding() bool {
	return (o.state == Active || o.state == Complete) && !o.orphan
}

// About wraps err with what the operation is about. Lock held.
func (o *Object) About(err error) error { return o.op.Describe(err) }

// Waiters are those of the calls that wait for the operation, alone or among others. An operation
// that nobody waits for has none. Calls register here when they have polled for some time without
// success, and before they first let go of the lock: so whoever takes it sees them. Lock held.
func (o *Object) Waiters() []*progress.Waiter {
	if o.waiter == nil {
		return slices.Clone(o.crowd)
	}
	return append([]*progress.Waiter{o.waiter}, o.crowd...)
}
