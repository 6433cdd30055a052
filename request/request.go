// Package request implements the requests of package comm. Programs use package comm, which exports
// the same names.
//
// It holds the handles of operations under way, their state machine, and the calls that wait for
// them and test them (MPI 4.1, sections 3.7 and 3.9).
//
// # Handles and objects
//
// A [Request] is a small value: a pointer to an [Object] and a generation of that object. When a
// non-persistent request has been waited for, or any request has been freed, the object's
// generation advances. Every copy of the handle is then stale and behaves as the null handle, which
// is the zero Request. The object's owner, such as the PML, reuses it for another operation.
//
// Requests may be used from any goroutine. The lock of the object's progress engine guards all of
// its fields.
//
// # States
//
//	from      to        when
//	idle      active    the owner starts an operation (Activate)
//	idle      inactive  the owner makes a persistent request (InitPersistent)
//	idle      complete  the owner makes a request that is complete at once (CompleteAtOnce)
//	inactive  active    Start, StartAll
//	inactive  idle      Free
//	active    complete  the operation ends (Complete)
//	complete  idle      Free; and if not persistent, a call observes the completion
//	complete  inactive  persistent: a call observes the completion
//
// All calls of the Wait and Test families observe a completion; GetStatus does not. An idle object
// is in its owner's pool, and no handle to it is valid. A [Shortcut] that ends an active operation
// observes the completion in the same step (Taken). Free of an active request makes the handle
// null at once; the operation goes on in the background, and its object becomes idle when it ends.
// Any other transition is a bug and panics.
//
// # Null and inactive requests
//
// A call never waits for a null or inactive request. If all requests of a call are null or
// inactive, or the list is empty:
//
//	call                   returns
//	Wait, Test, GetStatus  the empty status; done is true
//	WaitAny, TestAny       index Undefined, the empty status; flag is true
//	WaitAll, TestAll       empty statuses, no error; flag is true
//	WaitSome, TestSome     outcount Undefined
//	Completed              yields nothing
//
// # Audited requests
//
// In the checked mode of package comm, an [Auditor] watches the start and the end of each operation
// (audit.go).
//
// # Buffers
//
// A request keeps its buffer from the call that starts the operation until the operation is
// complete; a persistent request from its Init call until Free. The end of a context ends a wait,
// not the operation.
package request

import (
	"fmt"
	"runtime"

	"github.com/mpigo/mpigo/internal/calls"
)

// Request is a handle. The zero value is the null handle. All copies of a handle are equal.
// Goroutines may share it.
type Request struct {
	o   *Object
	gen uint64
}

// enter takes the engine's lock and returns the object behind r. If the handle is null or stale, it
// returns nil, without the lock.
func (r Request) enter() *Object {
	if r.o == nil {
		return nil
	}
	r.o.eng.Lock()
	if r.o.gen != r.gen {
		if o := r.audited(); o != nil {
			return o
		}
		r.o.eng.Unlock()
		return nil
	}
	return r.o
}

// IsNull reports whether r is null or stale.
func (r Request) IsNull() bool {
	o := r.enter()
	if o == nil {
		return true
	}
	o.eng.Unlock()
	return false
}

// IsActive reports whether the operation was started and no call has observed its completion yet.
func (r Request) IsActive() bool {
	o := r.enter()
	if o == nil {
		return false
	}
	defer o.eng.Unlock()
	return o.state == Active || o.state == Complete
}

// IsPersistent reports whether r is a persistent request.
func (r Request) IsPersistent() bool {
	o := r.enter()
	if o == nil {
		return false
	}
	defer o.eng.Unlock()
	return o.persistent
}

// Start starts an inactive persistent request. For any other request it returns ErrRequest and
// changes nothing.
func (r Request) Start() error {
	// The common case, without the calls and checks of the general path.
	if o := r.o; o != nil && o.eng.TryLock() {
		if o.gen == r.gen && o.state == Inactive && o.eng.Stopped() == nil && o.eng.Calls == nil {
			defer o.eng.Unlock()
			o.move(Active)
			o.active = 1
			o.op.Start()
			return nil
		}
		o.eng.Unlock()
	}
	o := r.enter()
	if o == nil {
		return newError(calls.Start, nullHandle)
	}
	defer o.leave(o.begin(calls.Start))
	if err := o.startable(); err != nil {
		return err
	}
	o.auditStart()
	o.start()
	runtime.KeepAlive(r.o)
	return nil
}

// Cancel asks the operation to end without effect, and does not wait for that. After Wait,
// Status.Cancelled says whether the operation was cancelled or has completed. Cancel of a request
// that is complete and not observed yet does nothing. For null and inactive requests, and for
// collectives, it returns ErrRequest.
func (r Request) Cancel() error {
	o := r.enter()
	if o == nil {
		return newError(calls.Cancel, nullHandle)
	}
	defer o.eng.Unlock()
	switch o.state {
	case Inactive:
		return o.newError(calls.Cancel, "the request is inactive")
	case Active:
		if o.MustEnd {
			return o.newError(calls.Cancel, "a collective cannot be cancelled")
		}
		o.op.Cancel()
	}
	return nil
}

// Free makes r and every copy of it null. An active operation goes on in the background and keeps
// its buffer until it is complete. Free of a null request returns ErrRequest, and so does Free of a
// collective that is active (MPI 4.1, sections 6.12 and 6.13).
func (r Request) Free() error {
	o := r.enter()
	if o == nil {
		return newError(calls.FreeRequest, nullHandle)
	}
	defer o.eng.Unlock()
	if o.MustEnd && o.state == Active {
		return o.newError(calls.FreeRequest, "the collective is active")
	}
	o.Abandon()
	return nil
}

const nullHandle = "the handle is null"

// newError makes an ErrRequest of a call, with its reason.
func newError(call calls.ID, reason string) error {
	return fmt.Errorf("%v: %w: %s", call, ErrRequest, reason)
}

// newError makes an ErrRequest that also names the operation.
func (o *Object) newError(call calls.ID, reason string) error {
	return o.op.Describe(newError(call, reason))
}
