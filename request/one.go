package request

import (
	"context"
	"unsafe"
)

// Wait returns when the operation is complete, with its status and its own error. Null and
// inactive requests give the empty status at once.
func (r Request) Wait() (st Status, err error) {
	err = r.wait(context.Background(), &st)
	return st, err
}

// WaitContext is Wait that gives up when ctx ends, with ctx's error. The operation goes
// on and its buffer stays the library's until it is complete. Of several goroutines that
// wait for one request, one gets its status and the others the empty one.
func (r Request) WaitContext(ctx context.Context) (st Status, err error) {
	err = r.wait(ctx, &st)
	return st, err
}

// wait is WaitContext.
func (r Request) wait(ctx context.Context, st *Status) error {
	o := r.enter()
	if o == nil {
		*st = Empty()
		return nil
	}
	defer o.eng.Unlock()
	if o.state == Active {
		if err := o.Await(ctx); err != nil {
			*st = Empty()
			return err
		}
	}
	if o.gen != r.gen || o.state != Complete {
		// Inactive, or another goroutine has observed or freed it meanwhile.
		*st = Empty()
		return nil
	}
	return o.take(st)
}

// Await drives the engine until o is not active any more. It returns ctx's error or the
// engine's, if that ends first. Lock held.
func (o *Object) Await(ctx context.Context) error {
	if o.state != Active {
		return nil
	}
	if ctx != nil && ctx.Err() != nil {
		return o.op.Describe(ctx.Err())
	}
	gen := o.gen
	empty := o.eng.Spin(&o.active)
	if o.active == 0 || o.gen != gen { // it may have been abandoned from within
		return nil
	}
	w := o.eng.GetWaiter(1)
	o.watch(w)
	err := o.eng.WaitOn(ctx, w, empty)
	if err != nil && o.gen == gen {
		o.unwatch(w)
		err = o.op.Describe(err)
	}
	o.eng.PutWaiter(w)
	return err
}

// Test makes progress and reports whether the operation is complete; if so, as Wait.
// Null and inactive requests are done, with the empty status.
func (r Request) Test() (st Status, done bool, err error) {
	o := r.enter()
	if o == nil {
		return Empty(), true, nil
	}
	defer o.eng.Unlock()
	switch o.settle(r.gen) {
	case settledNothing:
		return Empty(), true, nil
	case settledPending:
		return Empty(), false, o.stoppedError()
	}
	err = o.take(&st)
	return st, true, err
}

// GetStatus is Test that changes nothing: a complete request stays complete and active.
func (r Request) GetStatus() (st Status, done bool, err error) {
	o := r.enter()
	if o == nil {
		return Empty(), true, nil
	}
	defer o.eng.Unlock()
	switch o.settle(r.gen) {
	case settledNothing:
		return Empty(), true, nil
	case settledPending:
		return Empty(), false, o.stoppedError()
	}
	err = o.outcome(&st)
	return st, true, err
}

type settled uint8

const (
	settledNothing settled = iota // the handle is null or the request inactive
	settledPending
	settledComplete
)

// settle looks at o, after a turn of progress if it is active.
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

// stoppedError is the described reason why nothing will come any more, or nil.
func (o *Object) stoppedError() error {
	if err := o.eng.Stopped(); err != nil {
		return o.op.Describe(err)
	}
	return nil
}

// Count is the number of elements of type T in what a status tells of; ok is false if
// it is not a whole number of them. For a T of size zero the number is 0, and ok if
// there are no bytes.
func Count[T any](st Status) (n int, ok bool) {
	size := int64(unsafe.Sizeof(*new(T)))
	if size == 0 {
		return 0, st.Bytes == 0
	}
	return int(st.Bytes / size), st.Bytes%size == 0
}
