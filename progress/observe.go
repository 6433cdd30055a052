package progress

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
