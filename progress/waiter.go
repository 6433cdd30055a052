package progress

// Waiter counts down to what a goroutine waits for. The zero value waits for nothing;
// set it with Reset. It is guarded by the engine's lock and used by one Wait at a time;
// it may be kept and used again, and then costs no allocation.
type Waiter struct {
	eng    *Engine
	need   int32
	ctxErr error
	ch     chan struct{} // made when first parked, empty when not parked
	parked bool
	// mayGiveUp: its context may end. For reports; set once the wait has not ended by spinning.
	mayGiveUp bool
}

// Reset prepares w to wait for need signals.
func (w *Waiter) Reset(need int) { w.need, w.ctxErr, w.eng = int32(need), nil, nil }

// Signal says that one of the things waited for has happened. Lock held.
func (w *Waiter) Signal() {
	w.need--
	if w.need == 0 && w.eng != nil {
		w.eng.signalled(w)
	}
}

// Finish ends the wait, whatever is still missing. Lock held.
func (w *Waiter) Finish() {
	w.need = min(w.need, 1)
	w.Signal()
}

// Done reports whether all that was waited for has happened. Lock held.
func (w *Waiter) Done() bool { return w.need <= 0 }

func (w *Waiter) over() bool {
	return w.need <= 0 || w.ctxErr != nil || w.eng.stopErr != nil
}
