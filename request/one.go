package request

import (
	"context"
	"runtime"

	"github.com/mpigo/mpigo/internal/calls"
)

// Wait waits until the operation is complete and returns its status and its own error. For null and
// inactive requests it returns the empty status at once.
func (r Request) Wait() (st Status, err error) {
	if r.waitShort(&st) {
		return st, nil
	}
	err = r.wait(context.Background(), &st)
	return st, err
}

// waitShort is wait for a request that is complete without an error, or that a shortcut ends. It
// reports whether the wait has ended.
func (r Request) waitShort(st *Status) bool {
	o := r.o
	if o == nil || !o.eng.TryLock() {
		return false
	}
	defer o.eng.Unlock()
	rec := o.eng.Calls
	if rec != nil && rec.IsDue(calls.Wait, 0) {
		return false
	}
	if o.state == Active && o.gen == r.gen {
		return o.takeShort(st) && counted(rec)
	}
	if o.state != Complete || o.gen != r.gen || o.err != nil {
		return false
	}
	_ = o.take(st)
	return counted(rec)
}

// WaitContext is Wait that returns ctx's error when ctx ends. The operation goes on, and the
// library keeps its buffer until it is complete. If several goroutines wait for one request, one of
// them gets its status and the others get the empty status.
func (r Request) WaitContext(ctx context.Context) (st Status, err error) {
	err = r.wait(ctx, &st)
	return st, err
}

// wait is WaitContext that sets *st.
func (r Request) wait(ctx context.Context, st *Status) error {
	o := r.enter()
	if o == nil {
		*st = Empty()
		return nil
	}
	defer runtime.KeepAlive(r.o) // see lostHandle.report
	defer o.leave(o.begin(calls.Wait))
	if o.state == Active {
		if err := o.Await(ctx); err != nil {
			*st = Empty()
			return err
		}
	}
	if o.gen != r.gen || o.state != Complete {
		// It was inactive, or another goroutine has observed or freed it.
		*st = Empty()
		return nil
	}
	return o.take(st)
}

// Await drives the engine until o is not active any more. If ctx ends or the engine stops earlier,
// it returns that error. Lock held.
func (o *Object) Await(ctx context.Context) error {
	if o.state != Active {
		return nil
	}
	if ctx != nil && ctx.Err() != nil {
		return o.op.Describe(ctx.Err())
	}
	gen := o.gen
	empty := o.eng.Spin(&o.active, o.ahead)
	if o.active == 0 || o.gen != gen { // a poller may have abandoned it
		return nil
	}
	err := o.eng.WaitFor(ctx, o, empty)
	if err != nil && o.gen == gen {
		err = o.op.Describe(err)
	}
	return err
}

// AwaitOrCancel is Await for a call that returns only when the operation has ended. If ctx ends, it
// cancels the operation and goes on waiting, because it may be too late to cancel. gaveUp is the
// error of ctx. stopped is the error of a stopped engine: the operation is abandoned then. Lock
// held.
func (o *Object) AwaitOrCancel(ctx context.Context) (gaveUp, stopped error) {
	gaveUp = o.Await(ctx)
	if o.state == Active {
		o.op.Cancel()
		if stopped = o.Await(context.Background()); stopped != nil {
			o.Abandon()
		}
	}
	return gaveUp, stopped
}

// Test makes progress and reports whether the operation is complete; if so, it does as Wait. Null
// and inactive requests are done, with the empty status.
func (r Request) Test() (st Status, done bool, err error) {
	o := r.enter()
	if o == nil {
		return Empty(), true, nil
	}
	defer runtime.KeepAlive(r.o)
	defer o.leave(o.begin(calls.Test))
	switch o.settle(r.gen) {
	case settledNothing:
		return Empty(), true, nil
	case settledPending:
		return Empty(), false, o.stoppedError()
	}
	err = o.take(&st)
	return st, true, err
}

// GetStatus is Test that does not observe the completion: the request stays complete and active.
func (r Request) GetStatus() (st Status, done bool, err error) {
	o := r.enter()
	if o == nil {
		return Empty(), true, nil
	}
	defer runtime.KeepAlive(r.o)
	defer o.eng.Unlock()
	switch o.settle(r.gen) {
	case settledNothing:
		return Empty(), true, nil
	case settledPending:
		return Empty(), false, o.stoppedError()
	}
	err = o.outcome(&st)
	if o.ending&isAudited != 0 {
		o.auditor.Released()
	}
	return st, true, err
}

type settled uint8

const (
	settledNothing settled = iota // the request is inactive, or the handle stale
	settledPending
	settledComplete
)

// settle returns o's state for the handle of generation gen, after a turn of progress if o is
// active.
func (o *Object) settle(gen uint64) settled {
	if o.state == Active {
		o.eng.Poll()
	}
	switch {
	case o.gen != gen || o.state == Inactive:
		return settledNothing
	case o.state == Complete:
		return settledComplete
	}
	return settledPending
}

// stoppedError returns the described error of a stopped engine, else nil.
func (o *Object) stoppedError() error {
	if err := o.eng.Stopped(); err != nil {
		return o.op.Describe(err)
	}
	return nil
}
