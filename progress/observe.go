package progress

import "runtime"

// OnBound registers two functions that tell a test harness the request objects of a rank. The
// engine calls bound with each request.Object that is bound to it from now on, when the object is
// made. It calls unbound when the object is not used any more. Objects are pooled, so the calls are
// rare, and operations themselves cost nothing more. Lock held.
func (e *Engine) OnBound(bound, unbound func(obj any)) { e.bound, e.unbound = bound, unbound }

// Bound reports to the harness that obj was bound to the engine. Lock held.
func (e *Engine) Bound(obj any) {
	if e.bound != nil {
		e.bound(obj)
	}
}

// Unbound reports to the harness that obj is not used any more. Lock held.
func (e *Engine) Unbound(obj any) {
	if e.unbound != nil {
		e.unbound(obj)
	}
}

// Need is the number of signals that w still waits for. Lock held.
func (w *Waiter) Need() int { return int(w.need) }

// IsTask reports whether a task, not a goroutine, waits with w. Lock held.
func (w *Waiter) IsTask() bool { return w.task != nil }

// MayGiveUp reports whether the end of a context can end the wait too. Lock held.
func (w *Waiter) MayGiveUp() bool { return w.mayGiveUp }

// originFrames bounds the frames of an origin. In a collective, about a dozen frames are the
// library's.
const originFrames = 20

// origin says where and since when a goroutine waits. Recording it takes about a microsecond. A
// driver records it before it sleeps, which takes longer. A goroutine that parks may be woken soon,
// so it records its origin only when the driver has slept without an event (noteParked).
type origin struct {
	isWanted bool
	since    int64 // of the engine's clock; 0: not recorded
	frames   int
	// pcs is allocated at the first call of note, and kept. It is allocated late because each
	// request has a Waiter, and most waits never sleep.
	pcs *[originFrames]uintptr
}

// note records the origin of the calling goroutine's wait, once for each wait.
func (o *origin) note(e *Engine) {
	if o.since == 0 {
		o.since = max(e.Now(), 1)
		if o.pcs == nil {
			o.pcs = new([originFrames]uintptr)
		}
		o.frames = runtime.Callers(2, o.pcs[:])
	}
}

// noteParked wakes the parked goroutines whose origins are not known. They record their origins and
// park again.
func (e *Engine) noteParked() {
	for _, w := range e.parked {
		if o := &w.origin; o.since == 0 && !o.isWanted {
			o.isWanted = true
			e.unpark(w)
		}
	}
}

// Origin returns the time since which the goroutine waits, and its program counters, as
// runtime.CallersFrames takes them. ok is false if they are not known, because the goroutine still
// spins or yields. The counters are valid until the lock is released. Lock held.
func (w *Waiter) Origin() (since int64, pcs []uintptr, ok bool) {
	o := &w.origin
	if o.since == 0 {
		return 0, nil, false
	}
	return o.since, o.pcs[:o.frames], true
}
