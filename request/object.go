package request

import (
	"strconv"

	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/progress"
)

// State of an Object. The package doc has the table of transitions.
type State uint8

const (
	// Idle: in its owner's pool; no handle to it is valid.
	Idle State = iota
	// Inactive: persistent and not started.
	Inactive
	// Active: under way.
	Active
	// Complete: done, and no call has observed it yet.
	Complete
)

var stateNames = [...]string{"idle", "inactive", "active", "complete"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "state " + strconv.Itoa(int(s))
}

// legal is the table of transitions for move, a bit each. A constant costs no load on the path of
// short messages. The transitions of CompleteAtOnce, takeAtOnce, ActivateIdle and Taken bypass
// move, because these know the previous state.
const legal = 1<<(Idle*4+Inactive) | 1<<(Idle*4+Active) |
	1<<(Inactive*4+Active) | 1<<(Inactive*4+Idle) |
	1<<(Active*4+Complete) |
	1<<(Complete*4+Inactive) | 1<<(Complete*4+Idle)

// Operation is the operation behind a request: a send, a receive, a collective. The engine's lock
// is held during every method.
type Operation interface {
	// Start begins a persistent operation. The object is already Active. Start may complete it, and
	// reports an error by completing it with that error.
	Start()
	// Cancel asks an active operation to end. Before it returns, it either completes the object
	// with Status.Cancelled set, or does nothing.
	Cancel()
	// Release returns the object to its owner, which may use it again: it is Idle, and no handle to
	// it is valid.
	Release()
	// Describe wraps an error of this operation with the operation's parameters.
	Describe(err error) error
}

// Shortcut ends an operation and observes its completion in one step.
type Shortcut interface {
	// TakeShort looks for the end of the operation for a fraction of a microsecond. If the
	// operation ends without an error, TakeShort calls Object.Taken, and returns the arguments for
	// Complete, and true. Otherwise it changes nothing and returns false. Lock held; the object is
	// active, and no waiter watches it.
	TakeShort() (source, tag int, bytes int64, ok bool)
	// TakeRun is TakeShort for the first requests of a list, in order. It returns how many it has
	// ended, and sets their statuses, unless sts is nil. It returns −1 if it has no better way than
	// TakeShort. The first request is the shortcut's own.
	TakeRun(reqs []Request, sts []Status) int
}

// Object is the body of a request. Operations embed it, pool it, and change its state with Activate
// and Complete. It must not be copied. The engine's lock guards it.
type Object struct {
	// The fields for short messages come first, in one cache line.

	gen        uint64 // the generation of valid handles
	active     int32  // 1 while the state is Active, else 0; for Spin
	state      State
	persistent bool
	ending     uint8 // isOrphan, isAudited: the operation's end is not the common one
	marked     bool  // by StartAll, to find a handle that is in the list twice
	eng        *progress.Engine
	// The waiters of the calls that wait for the object while it is active, usually one.
	// moreWaiters is empty if waiter is nil.
	waiter *progress.Waiter
	// pool, if not nil, takes the object back in place of Operation.Release.
	pool *Pool
	// MustEnd: Cancel is an error, and so is Free while the operation is active. The owner sets it
	// before it makes a handle.
	MustEnd bool

	// ElemBytes is the size of an element, in bytes, for Status.Count. With 0, a status of one or
	// more bytes has Count −1.
	ElemBytes int
	// The outcome, once complete.
	ordinal     uint64 // number of the completion among those of the engine
	source, tag int
	bytes       int64
	cancelled   bool
	err         error
	traced      uint64 // the recorder's number of the operation; 0: it is not traced
	moreWaiters []*progress.Waiter
	done        chan struct{} // of Done, which has a waiter, too; nil: Done was not called

	auditor Auditor // if isAudited
	target  *Object // the operation's object, for that of an audited handle; else nil

	op    Operation
	ahead progress.Ahead // looks for the end of the operation; nil if there is none
	short Shortcut       // nil if there is none
}

// Bits of Object.ending.
const (
	isOrphan  = 1 << iota // freed while active; released when complete
	isAudited             // see Audit
)

// Bind ties a new object to its engine and operation. The owner calls it once, with the lock held.
func (o *Object) Bind(eng *progress.Engine, op Operation) {
	o.eng, o.op = eng, op
	eng.Bound(o)
}

// BindTo is Bind for an object that returns to a pool. Its operation completes when it begins, by
// CompleteAtOnce.
func (o *Object) BindTo(pool *Pool, eng *progress.Engine, op Operation) {
	o.Bind(eng, op)
	o.pool = pool
	o.source, o.tag = AnySource, AnyTag
}

// CompleteAtOnce makes an idle object of BindTo a complete non-persistent request with the empty
// status. Lock held.
func (o *Object) CompleteAtOnce() Request {
	if o.state != Idle {
		o.illegal(Complete)
	}
	o.state = Complete
	o.ordinal = o.eng.CountCompletion(false)
	return Request{o, o.gen}
}

// takeAtOnce observes the completion of an object of BindTo. The status is the empty one.
func (o *Object) takeAtOnce() {
	o.state = Idle
	o.gen++
	o.pool.put(o)
}

// LookAhead sets the object's shortcut, and the Ahead that a wait asks before each progress call.
// Lock held.
func (o *Object) LookAhead(a progress.Ahead, s Shortcut) { o.ahead, o.short = a, s }

// Unbind says that the object, which is idle, will not be used again. Lock held.
func (o *Object) Unbind() { o.eng.Unbound(o) }

// Activate makes an idle object an active non-persistent request. Lock held.
func (o *Object) Activate() {
	o.move(Active)
	o.active = 1
	o.persistent = false
	o.traceBegin()
}

// ActivateIdle is Activate, short enough to be inlined.
func (o *Object) ActivateIdle() {
	if o.state != Idle {
		o.illegal(Active)
	}
	o.state, o.active, o.persistent = Active, 1, false
}

// InitPersistent makes an idle object an inactive persistent request. Lock held.
func (o *Object) InitPersistent() {
	o.move(Inactive)
	o.persistent = true
}

func (o *Object) startable() error {
	switch {
	case !o.persistent:
		return o.newError(calls.Start, "the request is not persistent")
	case o.state != Inactive:
		return o.newError(calls.Start, "the request is active")
	}
	return nil
}

func (o *Object) start() {
	o.move(Active)
	o.active = 1
	o.traceBegin()
	if err := o.eng.Stopped(); err != nil {
		o.Complete(Empty(), err)
		return
	}
	o.op.Start()
}

// Complete ends an active operation with a status, whose Count and Err are ignored, and the
// operation's own error. Lock held.
func (o *Object) Complete(st Status, err error) {
	o.cancelled = st.Cancelled
	o.CompleteTransfer(st.Source, st.Tag, st.Bytes, err)
}

// CompleteEmpty is Complete with the empty status and no error.
func (o *Object) CompleteEmpty() { o.CompleteTransfer(AnySource, AnyTag, 0, nil) }

// CompleteTransfer is Complete of an operation that was not cancelled.
func (o *Object) CompleteTransfer(source, tag int, bytes int64, err error) {
	o.move(Complete)
	o.active = 0
	if o.ending != 0 {
		o.completeSpecially(source, tag, bytes, err)
		return
	}
	o.source, o.tag, o.bytes, o.err = source, tag, bytes, err
	o.ordinal = o.eng.CountCompletion(err != nil)
	if o.waiter != nil {
		o.notify(err != nil)
	}
}

// completeSpecially is the rest of CompleteTransfer for an object that is an orphan, or audited.
func (o *Object) completeSpecially(source, tag int, bytes int64, err error) {
	orphan := o.ending&isOrphan != 0
	if !orphan && !o.cancelled {
		err = o.auditor.Completed(err)
	}
	o.source, o.tag, o.bytes, o.err = source, tag, bytes, err
	o.ordinal = o.eng.CountCompletion(err != nil)
	if orphan {
		o.retire()
		return
	}
	o.notify(err != nil)
}

// takeShort asks the shortcut of an active object, if it has one and no waiter watches it. It sets
// *st, unless st is nil.
func (o *Object) takeShort(st *Status) bool {
	if o.short == nil || o.waiter != nil || o.ending != 0 {
		return false
	}
	source, tag, bytes, ok := o.short.TakeShort()
	if ok && st != nil {
		o.Fill(st, source, tag, bytes)
	}
	return ok
}

// MayTake reports whether a shortcut may end the operation of a request: r is a handle of o, which
// is active and not audited, and no waiter watches it.
func (o *Object) MayTake(r Request) bool {
	return r.o == o && r.gen == o.gen && o.state == Active && o.waiter == nil && o.ending == 0
}

// Taken combines Complete without an error and Take, for a shortcut. The caller sets the status
// (Fill), counts the completions of a run (Engine.CountCompletions), and releases the object if
// Taken returns true. Nothing waits for the object.
func (o *Object) Taken() (release bool) {
	o.active = 0
	if o.persistent {
		o.state = Inactive
		return false
	}
	o.state = Idle
	o.gen++
	return true
}

// notify signals and removes all waiters. With finish it ends their waits, even if other requests
// are pending.
func (o *Object) notify(finish bool) {
	if w := o.waiter; w != nil {
		o.waiter = nil
		signal(w, finish)
	}
	for i, w := range o.moreWaiters {
		o.moreWaiters[i] = nil
		signal(w, finish)
	}
	o.moreWaiters = o.moreWaiters[:0]
	o.done = nil
}

func signal(w *progress.Waiter, finish bool) {
	if finish {
		w.Finish()
	} else {
		w.Signal()
	}
}

// State returns the object's state. Lock held.
func (o *Object) State() State { return o.state }

// Operation is the operation behind the object.
func (o *Object) Operation() Operation { return o.op }

// Persistent reports whether the request is persistent. Lock held.
func (o *Object) Persistent() bool { return o.persistent }

// Handle returns a handle of the current generation. Lock held.
func (o *Object) Handle() Request { return Request{o, o.gen} }

// Take observes the completion of a complete object, for an owner that has no handle. It returns
// the status and the error; the object is inactive again, or released. Lock held.
func (o *Object) Take() (st Status, err error) {
	err = o.take(&st)
	return st, err
}

// take is Take that sets *st. A Status returned by value through several calls is copied in other
// sizes than it was written in, which stalls the processor's store forwarding.
func (o *Object) take(st *Status) error {
	err := o.outcome(st)
	o.observe()
	return err
}

// observe makes a complete object inactive if it is persistent, else releases it.
func (o *Object) observe() {
	if o.persistent {
		o.traceEnd()
		o.cancelled = false
		o.move(Inactive)
	} else {
		o.retire()
	}
}

// Abandon leaves an active operation to end in the background, and releases a complete or inactive
// object. Handles become stale, and waits for it end. Lock held.
func (o *Object) Abandon() {
	if o.state != Active {
		o.retire()
		return
	}
	o.gen++
	o.ending |= isOrphan
	o.notify(true)
}

// Abandoned reports whether the object was abandoned and is still active. Lock held.
func (o *Object) Abandoned() bool { return o.ending&isOrphan != 0 }

// outcome sets *st to the status of a complete object, and returns its described error.
func (o *Object) outcome(st *Status) error {
	o.Fill(st, o.source, o.tag, o.bytes)
	st.Cancelled = o.cancelled
	if o.err != nil {
		return o.op.Describe(o.err)
	}
	return nil
}

// Fill sets *st to the status of a successful transfer.
func (o *Object) Fill(st *Status, source, tag int, bytes int64) {
	st.Source, st.Tag, st.Bytes, st.Cancelled, st.Err = source, tag, bytes, false, nil
	switch {
	case o.ElemBytes > 0:
		st.Count = WholeElements(bytes, o.ElemBytes)
	case bytes > 0:
		st.Count = -1
	default:
		st.Count = 0
	}
}

// retire makes the object idle, its handles stale, and releases it.
func (o *Object) retire() {
	o.move(Idle)
	o.traceEnd()
	o.gen++
	if o.ending != 0 {
		o.endAudit()
	}
	o.err, o.cancelled = nil, false
	if o.pool != nil {
		o.pool.put(o)
		return
	}
	o.op.Release()
}

func (o *Object) move(to State) {
	if uint16(legal)>>(o.state*4+to)&1 == 0 {
		o.illegal(to)
	}
	o.state = to
}

func (o *Object) illegal(to State) {
	panic("request: illegal transition " + o.state.String() + " → " + to.String())
}

// Watch registers w with an active object: w is signalled when the object completes, and finished
// if it completes with an error. Lock held.
func (o *Object) Watch(w *progress.Waiter) { o.watch(w) }

// Unwatch undoes Watch, also after the object has completed. Lock held.
func (o *Object) Unwatch(w *progress.Waiter) { o.unwatch(w) }

// watch registers w to be signalled when the object, which is active, completes.
func (o *Object) watch(w *progress.Waiter) {
	if o.waiter == nil {
		o.waiter = w
		return
	}
	o.moreWaiters = append(o.moreWaiters, w)
}

// unwatch undoes watch.
func (o *Object) unwatch(w *progress.Waiter) {
	if o.waiter == w {
		o.waiter = nil
		if last := len(o.moreWaiters) - 1; last >= 0 {
			o.waiter, o.moreWaiters[last] = o.moreWaiters[last], nil
			o.moreWaiters = o.moreWaiters[:last]
		}
		return
	}
	for i, c := range o.moreWaiters {
		if c == w {
			last := len(o.moreWaiters) - 1
			o.moreWaiters[i] = o.moreWaiters[last]
			o.moreWaiters[last] = nil
			o.moreWaiters = o.moreWaiters[:last]
			return
		}
	}
}
