// Package request holds the handles of operations under way, their state machine, and
// the calls that wait for and test them (MPI 4.1, sections 3.7 and 3.9).
//
//	persistent:      init → Inactive ⇄ (Start / Wait, Test observes completion) Active → freed
//	non-persistent:  Active → Complete → (Wait, Test observes it) null
//
// A [Request] is a small value: a pointer to an [Object] and the generation of it that
// the handle was made for. When a non-persistent request has been waited for, or any has
// been freed, the object's generation moves on; every copy of the handle is then stale
// and behaves as the null handle, and the object is used again for another operation.
//
// Requests may be used from any goroutine. All that an Object holds is guarded by the
// lock of the progress engine that it belongs to.
package request

import (
	"errors"
	"math/bits"
	"strconv"

	"github.com/mpigo/mpigo/progress"
)

// What a status and a wait say when there is nothing to say, and MPI's special ranks and tags.
const (
	AnySource = -1
	AnyTag    = -1
	ProcNull  = -2
	// Undefined is the index, or the count, of a call that had nothing active to look at.
	Undefined = -3
)

var (
	// ErrRequest: the handle does not permit this call in its state.
	ErrRequest = errors.New("invalid request")
	// ErrPending: neither finished nor failed.
	ErrPending = errors.New("still pending")
	// ErrInStatus: see the error of each status.
	ErrInStatus = errors.New("error in status")
	// ErrCount: a negative count, or a slice of the wrong length.
	ErrCount = errors.New("invalid count")
	// ErrTruncate: the message was longer than the receive's buffer.
	ErrTruncate = errors.New("message truncated")
	// ErrComm: not a communicator, or one that does not permit the call.
	ErrComm = errors.New("invalid communicator")
	// ErrUnreachable: no rail leads to the peer.
	ErrUnreachable = errors.New("peer unreachable")
	// ErrProcFailed: the peer's process is gone, or about to leave.
	ErrProcFailed = errors.New("peer process failed")
)

// Status is what a completed operation says about itself.
type Status struct {
	// Source and Tag of the message received; AnySource and AnyTag if there is none.
	Source, Tag int
	// Count of whole elements of the receive's type; −1 after a probe.
	Count int
	// Bytes received.
	Bytes     int64
	Cancelled bool
	// Err is filled only by calls over several requests.
	Err error
}

// Empty is the empty status (MPI 4.1, section 3.7.3).
func Empty() Status { return Status{Source: AnySource, Tag: AnyTag} }

// State of an Object.
type State uint8

const (
	// Idle: in its owner's pool; no handle to it is valid.
	Idle State = iota
	// Inactive: persistent and not started.
	Inactive
	// Active: under way.
	Active
	// Complete: done, and nobody has observed it yet.
	Complete
)

var stateNames = [...]string{"idle", "inactive", "active", "complete"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "state " + strconv.Itoa(int(s))
}

// legal[from][to] is the table of transitions.
var legal = [4][4]bool{
	Idle:     {Inactive: true, Active: true},
	Inactive: {Active: true, Idle: true},
	Active:   {Complete: true},
	Complete: {Inactive: true, Idle: true},
}

// Operation is what stands behind a request: a send, a receive, a collective. Every
// method is called with the engine's lock held.
type Operation interface {
	// Start begins a persistent operation that is inactive. The object is Active
	// already; the operation may complete it inside the call. What goes wrong is told
	// by completing it with an error.
	Start()
	// Cancel asks an active operation to end. It either completes the object with a
	// status that says Cancelled, inside the call, or does nothing.
	Cancel()
	// Release gives the object back: no handle is valid any more and the operation is
	// not active. The object is Idle and may be used again.
	Release()
	// Describe wraps an error of this operation with what it was about.
	Describe(err error) error
}

// Object is a request's body. Operations embed it, keep it in pools, and move it along
// with Activate and Complete. It must not be copied. Guarded by the engine's lock.
type Object struct {
	eng *progress.Engine
	op  Operation
	gen uint64 // that valid handles bear

	active     int32 // 1 while Active, else 0, for Spin
	state      State
	persistent bool
	orphan     bool // freed while active: released when complete
	marked     bool // by StartAll, to find a handle given twice

	ordinal uint64 // place in the engine's order of completions

	// Who waits for it, while it is active: mostly one, more in crowd.
	waiter *progress.Waiter
	crowd  []*progress.Waiter

	// ElemBytes is the size of an element, to count a status; with 0, a status of some
	// bytes has Count −1.
	ElemBytes int
	// The outcome, once complete.
	source, tag int
	bytes       int64
	cancelled   bool
	err         error
}

// Bind ties an object that its owner has just allocated to its engine and operation. Once, lock
// held.
func (o *Object) Bind(eng *progress.Engine, op Operation) {
	o.eng, o.op = eng, op
	eng.Bound(o)
}

// Unbind says that the object, which is idle, is not used again. Lock held.
func (o *Object) Unbind() { o.eng.Unbound(o) }

// Activate makes an idle object an active non-persistent request. Lock held.
func (o *Object) Activate() {
	o.move(Active)
	o.active = 1
	o.persistent = false
}

// InitPersistent makes an idle object an inactive persistent request. Lock held.
func (o *Object) InitPersistent() {
	o.move(Inactive)
	o.persistent = true
}

// Complete ends an active operation: st is its status (Count and Err are ignored), err
// its own error. Lock held.
func (o *Object) Complete(st Status, err error) {
	o.cancelled = st.Cancelled
	o.CompleteTransfer(st.Source, st.Tag, st.Bytes, err)
}

// CompleteEmpty is Complete with the empty status, and without an error.
func (o *Object) CompleteEmpty() { o.CompleteTransfer(AnySource, AnyTag, 0, nil) }

// CompleteTransfer is Complete of what was not cancelled.
func (o *Object) CompleteTransfer(source, tag int, bytes int64, err error) {
	o.move(Complete)
	o.active = 0
	o.source, o.tag, o.bytes, o.err = source, tag, bytes, err
	o.ordinal = o.eng.CountCompletion()
	if o.orphan {
		o.retire()
		return
	}
	if o.waiter != nil || len(o.crowd) > 0 {
		o.notify(err != nil)
	}
}

// notify tells whoever waits, who then has nothing to do with the object any more. finish
// ends their waits whatever else is missing there.
func (o *Object) notify(finish bool) {
	if w := o.waiter; w != nil {
		o.waiter = nil
		signal(w, finish)
	}
	for i, w := range o.crowd {
		o.crowd[i] = nil
		signal(w, finish)
	}
	o.crowd = o.crowd[:0]
}

func signal(w *progress.Waiter, finish bool) {
	if finish {
		w.Finish()
	} else {
		w.Signal()
	}
}

// State of the object. Lock held.
func (o *Object) State() State { return o.state }

// Persistent reports whether the request is persistent. Lock held.
func (o *Object) Persistent() bool { return o.persistent }

// Engine that the object belongs to.
func (o *Object) Engine() *progress.Engine { return o.eng }

// Handle is a handle to the object as it is now. Lock held.
func (o *Object) Handle() Request { return Request{o, o.gen} }

// Take observes the completion of an object without a handle: status and error are
// returned and the object is inactive again or released. Complete, lock held.
func (o *Object) Take() (st Status, err error) {
	err = o.take(&st)
	return st, err
}

// take is Take. A status is too long to be handed on by value from call to call: each time it would be
// copied in pieces of other sizes than it was written in, for which a processor waits.
func (o *Object) take(st *Status) error {
	err := o.outcome(st)
	o.observe()
	return err
}

// observe ends the life of a complete object, or that of this round of a persistent one.
func (o *Object) observe() {
	if o.persistent {
		o.cancelled = false
		o.move(Inactive)
	} else {
		o.retire()
	}
}

// Abandon lets an active object finish in the background, or releases it if it is
// complete or inactive. Handles become stale, and waits for it end. Lock held.
func (o *Object) Abandon() {
	if o.state != Active {
		o.retire()
		return
	}
	o.gen++
	o.orphan = true
	o.notify(true) // nobody will hear of its end
}

// Abandoned reports whether the object was abandoned and is still active. Lock held.
func (o *Object) Abandoned() bool { return o.orphan }

// outcome fills in the status, and returns the described error, of a complete object.
func (o *Object) outcome(st *Status) error {
	st.Source, st.Tag, st.Bytes, st.Cancelled, st.Err = o.source, o.tag, o.bytes, o.cancelled, nil
	switch {
	case o.ElemBytes > 0:
		st.Count = Wholes(o.bytes, o.ElemBytes)
	case o.bytes > 0:
		st.Count = -1
	default:
		st.Count = 0
	}
	if o.err != nil {
		return o.op.Describe(o.err)
	}
	return nil
}

// Wholes is how many elements of a size, which is positive, are whole in so many bytes. To divide
// by what is mostly a power of two would take longer than all else here.
func Wholes(bytes int64, size int) int {
	if size&(size-1) == 0 {
		return int(bytes >> bits.TrailingZeros(uint(size)))
	}
	return int(bytes / int64(size))
}

func (o *Object) retire() {
	o.move(Idle)
	o.gen++
	o.orphan = false
	o.err, o.cancelled = nil, false
	o.op.Release()
}

func (o *Object) move(to State) {
	if !legal[o.state&3][to&3] {
		o.illegal(to)
	}
	o.state = to
}

func (o *Object) illegal(to State) {
	panic("request: illegal transition " + o.state.String() + " → " + to.String())
}

// watch has w signalled at completion. The object is active.
func (o *Object) watch(w *progress.Waiter) {
	if o.waiter == nil {
		o.waiter = w
		return
	}
	o.crowd = append(o.crowd, w)
}

// unwatch takes watch back.
func (o *Object) unwatch(w *progress.Waiter) {
	if o.waiter == w {
		o.waiter = nil
		return
	}
	for i, c := range o.crowd {
		if c == w {
			last := len(o.crowd) - 1
			o.crowd[i] = o.crowd[last]
			o.crowd[last] = nil
			o.crowd = o.crowd[:last]
			return
		}
	}
}

// Request is a handle. The zero value is the null handle. Copies are equal in every
// respect. It may be shared by goroutines.
type Request struct {
	o   *Object
	gen uint64
}

// enter takes the engine's lock and returns the live object behind r, or nil, without
// the lock, if the handle is null or stale.
func (r Request) enter() *Object {
	if r.o == nil {
		return nil
	}
	r.o.eng.Lock()
	if r.o.gen != r.gen {
		r.o.eng.Unlock()
		return nil
	}
	return r.o
}

// IsNull reports whether r is the null handle, or a stale one, which is the same.
func (r Request) IsNull() bool {
	o := r.enter()
	if o == nil {
		return true
	}
	o.eng.Unlock()
	return false
}

// IsActive reports whether the operation was started and its completion not yet observed.
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

// Start begins an inactive persistent request. Null, active and non-persistent handles
// give ErrRequest, and nothing changes.
func (r Request) Start() error {
	o := r.enter()
	if o == nil {
		return fault("start", nullHandle)
	}
	defer o.eng.Unlock()
	if err := o.startable(); err != nil {
		return err
	}
	o.start()
	return nil
}

func (o *Object) startable() error {
	switch {
	case !o.persistent:
		return o.fault("start", "the request is not persistent")
	case o.state != Inactive:
		return o.fault("start", "the request is active")
	}
	return nil
}

func (o *Object) start() {
	o.move(Active)
	o.active = 1
	if err := o.eng.Stopped(); err != nil {
		o.Complete(Empty(), err)
		return
	}
	o.op.Start()
}

// Cancel asks the operation to end without having happened. It does not wait for that:
// Wait tells by Status.Cancelled how it ended. A request that is complete but not waited for stays
// as it is. Null and inactive handles give ErrRequest.
func (r Request) Cancel() error {
	o := r.enter()
	if o == nil {
		return fault("cancel", nullHandle)
	}
	defer o.eng.Unlock()
	switch o.state {
	case Inactive:
		return o.fault("cancel", "the request is inactive")
	case Active:
		o.op.Cancel()
	}
	return nil
}

// Free makes r, and every copy of it, null. An active operation finishes in the
// background, and keeps its buffer until then. A null handle gives ErrRequest.
func (r Request) Free() error {
	o := r.enter()
	if o == nil {
		return fault("free", nullHandle)
	}
	defer o.eng.Unlock()
	o.Abandon()
	return nil
}

// Fault is an ErrRequest with its reason.
type Fault struct {
	Call, Reason string
}

func (f *Fault) Error() string { return f.Call + ": " + ErrRequest.Error() + ": " + f.Reason }
func (f *Fault) Unwrap() error { return ErrRequest }

const nullHandle = "the handle is null"

func fault(call, reason string) error { return &Fault{call, reason} }

// fault is one that says which operation it is about.
func (o *Object) fault(call, reason string) error { return o.op.Describe(fault(call, reason)) }
