package progress

// OnBound has f called with every request.Object that is bound to the engine from now
// on, when it is first made. So a test harness knows the objects of a rank, which are
// used again and again, at no cost to the operations themselves. Lock held.
func (e *Engine) OnBound(f func(obj any)) { e.bound = f }

// Bound says that an object was bound to the engine. Lock held.
func (e *Engine) Bound(obj any) {
	if e.bound != nil {
		e.bound(obj)
	}
}
