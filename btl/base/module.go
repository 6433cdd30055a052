package base

import (
	"errors"
	"iter"
	"slices"

	"github.com/mpigo/mpigo/btl"
)

// Incarnation is a transport's endpoint: a pointer to a struct that embeds Endpoint.
type Incarnation interface {
	comparable
	btl.Endpoint
	embedder

	// Stop is called once, when the endpoint has just become Failed and before Events.Failed
	// reports it. The transport stops polling and sending on the endpoint.
	Stop()
}

// embedder is implemented by everything that embeds Endpoint.
type embedder interface {
	common() *Endpoint
}

var _ embedder = (*Endpoint)(nil)

// Owner is the transport's module, which embeds Module.
type Owner[E Incarnation] interface {
	btl.Module
	// Endpoints yields the newest endpoint to each module of each peer, in the order of ranks.
	Endpoints() iter.Seq[E]
}

// Module is the common part of a transport's module. A transport embeds it by value and calls Init.
type Module[E Incarnation] struct {
	// Unsettled makes the next progress call look at what is deferred. The transport clears it
	// there and sets it again for work of its own that is left (see Waiting).
	Unsettled bool
	// Closed is set once the module is closed: no event is reported any more.
	Closed bool

	// Events is the layer above.
	Events btl.Events
	// Stale counts fragments and completions of old incarnations that were dropped (C5).
	Stale int
	// FlushNative is the transport's native status of an operation that ends because its endpoint
	// has failed, "" if it has none.
	FlushNative string

	owner   Owner[E]
	attrs   btl.Attrs
	address []byte

	failing  []E          // Up, with a deferred failure
	draining []E          // Failed, not yet Drained
	refused  []refused[E] // operations that end alone at the next progress call
	err      *btl.Error   // the whole module is Failed and not yet Drained; nil otherwise
}

// refused is an invalid operation: it ends with an error, and its endpoint stays Up. It is in its
// endpoint's Pending queue.
type refused[E Incarnation] struct {
	endpoint E
	op       *btl.Op
	err      *btl.Error
}

// Init sets what is known once the module can be reached: address is what Address returns.
func (r *Module[E]) Init(owner Owner[E], events btl.Events, attrs btl.Attrs, address []byte) {
	r.owner, r.Events, r.attrs, r.address = owner, events, attrs, address
}

// Attrs implements btl.Module.
func (r *Module[E]) Attrs() *btl.Attrs { return &r.attrs }

// SetAddress replaces what Address returns.
func (r *Module[E]) SetAddress(address []byte) { r.address = address }

// Address implements btl.Module.
func (r *Module[E]) Address() []byte { return r.address }

// Fail implements btl.Module.
func (r *Module[E]) Fail(cause error) {
	r.FailModule(r.ErrorBecause(btl.AllPeers, btl.ClassDevice, cause))
}

// NewError makes an error of this rail (C7).
func (r *Module[E]) NewError(peer int, class btl.Class, side btl.Side, native string, err error) *btl.Error {
	return &btl.Error{Rail: r.attrs.Name, Peer: peer, Class: class, Side: side, Native: native, Err: err}
}

// ErrorAbout is err as an error of this rail with that peer.
func (r *Module[E]) ErrorAbout(peer int, err *btl.Error) *btl.Error {
	return r.NewError(peer, err.Class, err.Side, err.Native, err.Err)
}

// ErrorBecause is the error of a failure that the layer above asked for. If cause is or wraps a
// *btl.Error, its class, side and native status count; otherwise class does.
func (r *Module[E]) ErrorBecause(peer int, class btl.Class, cause error) *btl.Error {
	var be *btl.Error
	if errors.As(cause, &be) {
		return r.NewError(peer, be.Class, be.Side, be.Native, cause)
	}
	return r.NewError(peer, class, btl.SideLocal, "", cause)
}

// ModuleError is why the whole module is Failed, nil if it is not, or is Drained again.
func (r *Module[E]) ModuleError() *btl.Error { return r.err }

// ConnectError is the error of Connect while the whole module is Failed and not yet Drained, nil
// otherwise.
func (r *Module[E]) ConnectError(peer int) error {
	if r.err == nil {
		return nil
	}
	return r.NewError(peer, r.err.Class, r.err.Side, r.err.Native, btl.ErrFailed)
}

// DeferFailure makes the next progress call fail an endpoint that is Up; until then the endpoint
// accepts nothing. op, if not nil, is the operation that met the error: it ends with err itself,
// and others with an error of ClassFlushed. The first error counts: DeferFailure reports whether
// this was it.
func (r *Module[E]) DeferFailure(e E, err *btl.Error, op *btl.Op) bool {
	c := e.common()
	if !c.Accepts() {
		return false
	}
	c.deferred, c.culprit = err, op
	r.failing = append(r.failing, e)
	r.Unsettled = true
	return true
}

// ReplaceDeferred gives a deferred failure another error: better evidence was found.
func (r *Module[E]) ReplaceDeferred(e E, err *btl.Error) { e.common().deferred = err }

// TakeFailing returns the endpoints that are Up and whose failure was deferred. The caller fails
// them, or defers them again by KeepFailing.
func (r *Module[E]) TakeFailing() []E {
	list := slices.DeleteFunc(r.failing, func(e E) bool { return e.common().state != btl.Up })
	r.failing = nil
	return list
}

// KeepFailing puts an endpoint back whose deferred failure is to wait for longer.
func (r *Module[E]) KeepFailing(e E) { r.failing = append(r.failing, e) }

// FailDeferred fails the endpoints whose failure was deferred, and returns how many. Failures that
// are deferred meanwhile are left to the next progress call, so that each call ends.
func (r *Module[E]) FailDeferred() int {
	n := 0
	for _, e := range r.TakeFailing() {
		if r.FailEndpoint(e, e.common().deferred) {
			n++
		}
	}
	return n
}

// FailEndpoint takes an endpoint from Up to Failed and reports it. It reports whether the endpoint
// was Up.
func (r *Module[E]) FailEndpoint(e E, err *btl.Error) bool {
	c := e.common()
	if c.state != btl.Up {
		return false
	}
	r.stop(e, err)
	r.Report(e)
	return true
}

// FailBecause is Endpoint.Fail of package btl.
func (r *Module[E]) FailBecause(e E, cause error) {
	r.FailEndpoint(e, r.ErrorBecause(e.common().path.Peer, btl.ClassClosed, cause))
}

// FailModule takes the whole module and all its endpoints that are Up to Failed, and reports the
// module. It reports whether the module was neither closed nor Failed.
func (r *Module[E]) FailModule(err *btl.Error) bool {
	if r.Closed || r.err != nil {
		return false
	}
	r.err = err
	r.Unsettled = true
	for e := range r.owner.Endpoints() {
		if c := e.common(); c.state == btl.Up {
			c.byModule = true
			r.stop(e, err)
		}
	}
	r.Events.Failed(r.owner, btl.WholeModule, err)
	return true
}

// stop takes an endpoint to Failed without reporting it.
func (r *Module[E]) stop(e E, err *btl.Error) {
	c := e.common()
	lifeCycle.Enter(&c.state, btl.Failed)
	c.cause = err
	r.draining = append(r.draining, e)
	r.Unsettled = true
	e.Stop()
}

// Report calls Events.Failed for a Failed endpoint, once, and only if the layer above knows the
// endpoint and the events of the whole module do not cover it. A transport calls it again before it
// drains the endpoint: Connect may have returned the endpoint after its failure.
func (r *Module[E]) Report(e E) {
	if c := e.common(); c.reportable && !c.reported && !c.byModule {
		c.reported = true
		r.Events.Failed(r.owner, c.path, c.cause)
	}
}

// TakeDraining returns the endpoints that are Failed and not yet Drained. The caller drains them,
// or puts them back by KeepDraining.
func (r *Module[E]) TakeDraining() []E {
	list := r.draining
	r.draining = nil
	return list
}

// KeepDraining puts an endpoint back that cannot be drained yet.
func (r *Module[E]) KeepDraining(e E) { r.draining = append(r.draining, e) }

// Draining is how many endpoints are Failed and not yet Drained.
func (r *Module[E]) Draining() int { return len(r.draining) }

// Drained moves a Failed endpoint to Drained. All its operations must have been called back.
// Events.Drained is not called: see ReportDrained.
func (r *Module[E]) Drained(e E) {
	c := e.common()
	c.culprit = nil
	lifeCycle.Enter(&c.state, btl.Drained)
}

// ReportDrained calls Events.Drained for an endpoint, if Events.Failed was called for it.
func (r *Module[E]) ReportDrained(e E) {
	if c := e.common(); c.reported {
		r.Events.Drained(r.owner, c.path)
	}
}

// Discard takes an endpoint that has failed unknown to the layer above off the list of those to be
// drained. The caller has drained it.
func (r *Module[E]) Discard(e E) {
	r.draining = slices.DeleteFunc(r.draining, func(other E) bool { return other == e })
}

// DrainEndpoints drains all Failed endpoints: tearDown calls back what is outstanding and returns
// how many events that made. What fails meanwhile is left to the next progress call. It returns the
// number of events. after, if not nil, is called for each endpoint once it was reported.
func (r *Module[E]) DrainEndpoints(tearDown, after func(E) int) int {
	n := 0
	for _, e := range r.TakeDraining() {
		r.Report(e)
		n += tearDown(e) + 1
		r.Drained(e)
		r.ReportDrained(e)
		if after != nil {
			n += after(e)
		}
	}
	return n
}

// DrainModule reports the whole module Drained, if it is Failed and all its endpoints are Drained.
// It reports whether it did.
func (r *Module[E]) DrainModule() bool {
	if r.err == nil || len(r.draining) > 0 {
		return false
	}
	r.err = nil
	r.Events.Drained(r.owner, btl.WholeModule)
	return true
}

// Waiting reports whether a progress call has to look at failures: what Unsettled is to be set to.
func (r *Module[E]) Waiting() bool {
	return len(r.failing)+len(r.draining)+len(r.refused) > 0 || r.err != nil
}

// Refuse takes an operation that is wrong in itself: the next progress call ends it with err, of
// ClassUsage, and the endpoint stays Up.
func (r *Module[E]) Refuse(e E, op *btl.Op, err *btl.Error) {
	e.common().Pending.Push(op)
	r.refused = append(r.refused, refused[E]{e, op, err})
	r.Unsettled = true
}

// EndRefused ends the operations that Refuse took, and returns how many. Those of endpoints that
// have failed meanwhile end with their endpoints.
func (r *Module[E]) EndRefused() int {
	n := 0
	list := r.refused
	r.refused = nil
	for _, x := range list {
		if c := x.endpoint.common(); c.state == btl.Up {
			c.Pending.Remove(x.op)
			x.op.Done(x.op, x.err)
			n++
		}
	}
	return n
}

// FlushError is what an operation of a Failed endpoint ends with: its own error if it met the
// deferred failure, else one of ClassFlushed that wraps the cause of the failure.
func (r *Module[E]) FlushError(e E, op *btl.Op) *btl.Error {
	c := e.common()
	if op != nil && op == c.culprit {
		return c.deferred
	}
	err := r.NewError(c.path.Peer, btl.ClassFlushed, btl.SideNone, r.FlushNative, nil)
	if c.cause != nil {
		err.Err = c.cause
	}
	return err
}

// Flush calls back all operations of a queue of a Failed endpoint, and returns how many.
func (r *Module[E]) Flush(e E, q *btl.Queue) int {
	n := 0
	for op := q.Pop(); op != nil; op = q.Pop() {
		op.Done(op, r.FlushError(e, op))
		n++
	}
	return n
}

// CloseEndpoint takes an endpoint that is Up to Failed because the module closes. Nothing is
// reported. It reports whether the endpoint has operations to be called back: it was not Drained.
func (r *Module[E]) CloseEndpoint(e E) bool {
	c := e.common()
	switch c.state {
	case btl.Up:
		lifeCycle.Enter(&c.state, btl.Failed)
		c.cause = r.NewError(c.path.Peer, btl.ClassClosed, btl.SideLocal, "", btl.ErrClosed)
		e.Stop()
	case btl.Drained:
		return false
	}
	return true
}

// Forget drops all that is deferred: the module is closed.
func (r *Module[E]) Forget() {
	r.failing, r.draining, r.refused, r.err, r.Unsettled = nil, nil, nil, nil, false
}
