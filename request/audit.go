package request

import (
	"math"
	"runtime"
)

// Auditor watches an operation in the checked mode of package comm. The engine's lock is held
// during every method.
type Auditor interface {
	// Started is called before a Start of a persistent request.
	Started()
	// Completed is called when the operation ends with err, which may be nil. Its result is the
	// error of the request. It is not called if the operation was cancelled, or the request freed.
	Completed(err error) error
	// Look is called when a call tests a request that has completed without an error, and was not
	// observed yet. Its result is the error of the request.
	Look() error
	// Released is called when the user has learned of the completion without observing it.
	Released()
	// Ended is called when no handle is valid any more and the operation has ended.
	Ended()
}

// Audit makes an auditor watch the operation until its completion is observed, or until a
// persistent request is freed. An audited operation takes no shortcut. Lock held.
func (o *Object) Audit(a Auditor) {
	o.auditor = a
	o.ending |= isAudited
}

// Unaudit undoes Audit, for an operation that has not begun. Lock held.
func (o *Object) Unaudit() {
	o.auditor = nil
	o.ending &^= isAudited
}

// endAudit is called when the object becomes idle.
func (o *Object) endAudit() {
	if a := o.Auditor(); a != nil {
		a.Ended()
	}
	o.auditor, o.ending = nil, 0
}

// Auditor returns what Audit has set, or nil. Lock held.
func (o *Object) Auditor() Auditor {
	if o.ending&isAudited == 0 {
		return nil
	}
	return o.auditor
}

func (o *Object) auditStart() {
	if a := o.Auditor(); a != nil && o.eng.Stopped() == nil {
		a.Started()
	}
}

// An audited handle points to an object of its own, which stands for the operation's object. Only
// copies of the handle refer to it, so the garbage collector detects that the user has lost them
// all. No valid handle has its generation: code checks for an audited handle only when a handle
// seems stale, so other handles cost nothing.
const noGeneration = math.MaxUint64

// AuditedHandle is Handle of an object that is audited. lost is called, on some goroutine and
// without the lock, if no copy of the handle is left while the request is outstanding. Lock
// held.
func (o *Object) AuditedHandle(lost func(a Auditor)) Request {
	stand := &Object{gen: noGeneration, eng: o.eng, target: o}
	runtime.AddCleanup(stand, lostHandle.collected, lostHandle{o, o.gen, lost})
	return Request{stand, o.gen}
}

// lostHandle is an audited handle without any copy left.
type lostHandle struct {
	o    *Object
	gen  uint64
	lost func(a Auditor)
}

// The runtime calls collected, also for handles of completed requests. It must not wait for the
// lock.
func (h lostHandle) collected() {
	if h.o.eng.TryLock() {
		h.report()
		return
	}
	go func() {
		h.o.eng.Lock()
		h.report()
	}()
}

// report calls lost if the handle is lost. It releases the lock.
func (h lostHandle) report() {
	a := h.o.Auditor()
	// Calls that may release the lock keep their handles until they end. So no call is under way.
	isLost := a != nil && h.o.gen == h.gen && h.o.Outstanding()
	h.o.eng.Unlock()
	if isLost {
		go h.lost(a)
	}
}

// audited returns the object that an audited handle stands for, or nil. Lock held.
func (r Request) audited() *Object {
	o := r.o.target
	if o == nil || o.gen != r.gen {
		return nil
	}
	o.look()
	return o
}

// look asks the auditor of a complete object.
func (o *Object) look() {
	if o.state == Complete && o.err == nil && !o.cancelled && o.ending&isAudited != 0 {
		o.err = o.auditor.Look()
	}
}

// resolve replaces audited handles by those of the objects that they stand for. Lock held.
func (l *list) resolve() {
	handles := l.reqs
	l.handles = &handles[0]
	l.reqs = make([]Request, len(handles))
	for i, r := range handles {
		if r.o == nil || r.o.target == nil {
			l.reqs[i] = r
			continue
		}
		l.reqs[i] = Request{r.o.target, r.gen}
		r.audited()
	}
}
