package progress

// OnBound has bound called with every request.Object that is bound to the engine from now
// on, when it is first made, and unbound when it is not used any more. So a test harness knows the
// objects of a rank, which are used again and again, at no cost to the operations themselves. Lock
// held.
func (e *Engine) OnBound(bound, unbound func(obj any)) { e.bound, e.unbound = bound, unbound }

// Bound says that an object was bound to the engine. Lock held.
func (e *Engine) Bound(obj any) {
	if e.bound != nil {
		e.bound(obj)
	}
}

// Unbound takes Bound back. Lock held.
func (e *Engine) Unbound(obj any) {
	if e.unbound != nil {
		e.unbound(obj)
	}
}

// Need is how many signals w is still to get. Lock held.
func (w *Waiter) Need() int { return int(w.need) }

// MayGiveUp reports whether the wait may also end because its context does. Lock held.
func (w *Waiter) MayGiveUp() bool { return w.mayGiveUp }
