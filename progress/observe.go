package progress

import "runtime"

// OnBound registers two functions for a test harness, which thereby knows the request objects of a
// rank. bound is called with every request.Object that is bound to the engine from now on, when the
// object is made; unbound when the object is not used any more. Objects are pooled, so the calls
// are rare and the operations themselves pay nothing. Lock held.
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

// IsTask reports whether a task waits with w, and no goroutine. Lock held.
func (w *Waiter) IsTask() bool { return w.task != nil }

// MayGiveUp reports whether the end of a context can end the wait too. Lock held.
func (w *Waiter) MayGiveUp() bool { return w.mayGiveUp }

// originFrames bounds the frames of an origin. A collective has about a dozen of the library's.
const originFrames = 20

// origin is where and since when a goroutine waits. Noting it takes about a microsecond. A driver
// notes it when it is about to sleep, which takes longer. A goroutine that parks may be woken soon,
// so it notes it only when the driver has slept without an event (noteParked).
type origin struct {
	isWanted bool
	since    int64 // of the engine's clock; 0: not noted
	frames   int
	// pcs is made at the first note, and kept. Most waits never sleep, and each of their requests
	// has a Waiter.
	pcs *[originFrames]uintptr
}

// note notes the origin of the wait of the goroutine that calls it, once a wait.
func (o *origin) note(e *Engine) {
	if o.since == 0 {
		o.since = max(e.Now(), 1)
		if o.pcs == nil {
			o.pcs = new([originFrames]uintptr)
		}
		o.frames = runtime.Callers(2, o.pcs[:])
	}
}

// noteParked wakes the parked goroutines whose origins are not known, to note them and park again.
func (e *Engine) noteParked() {
	for _, w := range e.parked {
		if o := &w.origin; o.since == 0 && !o.isWanted {
			o.isWanted = true
			e.unpark(w)
		}
	}
}

// Origin returns the time since which the goroutine waits, and its program counters, as
// runtime.CallersFrames takes them. ok is false if the goroutine still spins or yields, so that
// they are not known. The counters are valid until the lock is released. Lock held.
func (w *Waiter) Origin() (since int64, pcs []uintptr, ok bool) {
	o := &w.origin
	if o.since == 0 {
		return 0, nil, false
	}
	return o.since, o.pcs[:o.frames], true
}
