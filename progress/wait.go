package progress

import (
	"context"
	"slices"
	"sync/atomic"
)

// Waiter counts down the signals that a goroutine, or a Task, waits for. The zero value waits for
// none; Reset and ResetTask set the number. The engine's lock guards it, and one Wait at a time
// uses it. Reusing a Waiter costs no allocation.
type Waiter struct {
	eng    *Engine
	need   int32
	ctxErr error
	task   Task          // runs when all signals have come; nil if a goroutine waits
	ch     chan struct{} // made when the goroutine first parks, empty when it is not parked
	parked bool
	// mayGiveUp: the wait's context may end. It is used only for reports, and not set while the
	// wait still spins.
	mayGiveUp bool
	origin    origin
}

// Reset prepares w to wait for need signals.
func (w *Waiter) Reset(need int) { w.need, w.ctxErr, w.eng, w.task = int32(need), nil, nil, nil }

// ResetTask prepares w to queue a task after need signals. need is at least 1.
func (w *Waiter) ResetTask(need int, e *Engine, t Task) {
	w.need, w.ctxErr, w.eng, w.task = int32(need), nil, e, t
}

// Signal counts one signal. Lock held.
func (w *Waiter) Signal() {
	w.need--
	if w.need != 0 || w.eng == nil {
		return
	}
	if w.task != nil {
		w.eng.Queue(w.task)
	} else {
		w.eng.signalled(w)
	}
}

// Finish ends the wait, whatever signals are missing. Lock held.
func (w *Waiter) Finish() {
	w.need = min(w.need, 1)
	w.Signal()
}

// Done reports whether all signals have come. Lock held.
func (w *Waiter) Done() bool { return w.need <= 0 }

func (w *Waiter) over() bool {
	return w.need <= 0 || w.ctxErr != nil || w.eng.stopErr != nil
}

// Wait drives the engine, or parks while another goroutine does, until w is done. The lock is held
// at the call and on return; Wait releases it in between. It must not be called from a poller or
// timer.
//
// Wait returns nil when w is done; ctx's error if ctx ended before that; the error of Stop if the
// engine was stopped before that. ctx may be nil.
func (e *Engine) Wait(ctx context.Context, w *Waiter) error {
	if w.need <= 0 {
		return nil
	}
	if ctx != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return e.WaitOn(ctx, w, e.Spin(&w.need, nil))
}

// WaitOn does the rest of Wait after a Spin; empty is the result of Spin.
func (e *Engine) WaitOn(ctx context.Context, w *Waiter, empty int) error {
	if w.need <= 0 {
		return nil
	}
	w.eng, w.ctxErr, w.origin.since, w.origin.isWanted = e, nil, 0, false
	if e.Calls != nil {
		defer e.waited(e.waits())
	}
	if w.mayGiveUp = ctx != nil && ctx.Done() != nil; w.mayGiveUp {
		if err := ctx.Err(); err != nil {
			return err
		}
		// The function runs on its own goroutine, possibly after this wait has ended.
		waiting := true
		stop := context.AfterFunc(ctx, func() {
			e.Lock()
			defer e.Unlock()
			if waiting {
				w.ctxErr = ctx.Err()
				e.signalled(w)
			}
		})
		defer func() {
			waiting = false
			stop()
		}()
	}
	for !w.over() {
		if e.driver == nil {
			e.drive(w, empty)
			empty = 0
		} else {
			e.park(w)
		}
	}
	// If w was woken to drive and no longer needs to, another one must drive.
	e.handOver()
	if w.need <= 0 {
		return nil
	}
	if w.ctxErr != nil {
		return w.ctxErr
	}
	return e.stopErr
}

// Condition is what a wait is for.
type Condition interface {
	// Watch has w signalled once when the condition holds, or never will. Lock held.
	Watch(w *Waiter)
	// Unwatch reverts Watch, also if w was signalled. Lock held.
	Unwatch(w *Waiter)
}

// WaitFor is WaitOn with a Waiter of its own that c signals. Every wait for one condition is a Spin
// and, if that does not end it, a WaitFor. It is not called if the condition holds.
func (e *Engine) WaitFor(ctx context.Context, c Condition, empty int) error {
	w := e.GetWaiter(1)
	c.Watch(w)
	err := e.WaitOn(ctx, w, empty)
	c.Unwatch(w)
	e.PutWaiter(w)
	return err
}

// Spin is the first stage of a wait, and mostly the only one: it polls until *need is not positive.
// The completion of the operation decrements *need, under the lock. Spin keeps the lock and ignores
// contexts. Therefore it returns early in these cases:
//
//   - Another goroutine drives or wants the lock.
//   - The engine is stopped.
//   - An operation fails, because the caller may wait for several.
//   - Config.SpinTurns turns were made, with or without events.
//
// Spin returns the number of turns since the last event, for WaitOn. Lock held; only tasks or ahead
// may release it. Spin must not be called from a poller or timer.
//
// ahead, if not nil, is called before each turn, until it cannot look any more.
func (e *Engine) Spin(need *int32, ahead Ahead) (empty int) {
	if *need <= 0 || e.driver != nil || e.stopErr != nil || e.cfg.Idle != nil {
		return 0
	}
	e.Undoze()
	if e.Calls != nil {
		return e.spinRecorded(need, ahead)
	}
	return e.spin(need, ahead, e.cfg.SpinTurns)
}

// spin does what Spin does, for the given number of turns.
func (e *Engine) spin(need *int32, ahead Ahead, turns int) (empty int) {
	failed := e.failed
	if ahead != nil {
		if turns, empty = e.spinAhead(need, ahead, turns); *need <= 0 {
			return 0
		}
	}
	for ; turns > 0 && !e.isWanted() && e.failed == failed; turns-- {
		n := 0
		if e.turn%timersEvery == timersEvery-1 || e.hot >= len(e.pollers) {
			n = e.Turn()
		} else {
			// Polling the others too would delay the next read of the cache line on which the event
			// is expected.
			n = e.pollers[e.hot].Progress()
			e.turn++
			e.events += uint64(n)
			if len(e.queue) > 0 {
				e.runQueue()
			}
		}
		if *need <= 0 {
			return 0
		}
		if n > 0 {
			empty = 0
			continue
		}
		empty++
		e.relax(empty)
	}
	return empty
}

// isWanted reports whether another goroutine waits for the lock, or is about to.
func (e *Engine) isWanted() bool { return e.coming > 0 || e.wanted.Load() != 0 }

// YieldsAtOnce reports whether waits on this engine yield without polling first.
func (e *Engine) YieldsAtOnce() bool { return e.cfg.SpinTurns == 0 }

// YieldUntil yields to other processes, up to yields times, until one has stored target at a word
// in shared memory. It returns how often it has yielded, and whether *word is target. It keeps the
// lock, ignores contexts and makes no progress. Therefore it stops once another goroutine drives or
// wants the lock. It is for waits that are mostly short; afterwards, the caller waits in another
// way. Lock held; it must not be called from a poller or timer.
func (e *Engine) YieldUntil(word *uint64, target uint64, yields int) (yielded int, ok bool) {
	for atomic.LoadUint64(word) != target {
		if yielded == yields || e.cfg.Processor == nil || e.quickYields.skip > 0 || e.cfg.Idle != nil || e.driver != nil || e.isWanted() {
			return yielded, false
		}
		yielded++
		e.cYields++
		e.cfg.Processor.Yield()
	}
	return yielded, true
}

// Ahead looks for the one event that a wait needs, faster than a turn of the engine.
type Ahead interface {
	// Look looks for a fraction of a microsecond, and handles the event if it comes. It returns the
	// number of events, and whether it was able to look. The engine's lock is held; handling the
	// event may release it meanwhile.
	Look() (events int, able bool)
}

// spinAhead does what spin does while ahead can look. It returns the number of turns that are left,
// and the number of turns since the last event.
func (e *Engine) spinAhead(need *int32, ahead Ahead, most int) (turns, empty int) {
	failed := e.failed
	for turns = most; turns > 0 && !e.isWanted() && e.failed == failed; turns -= turnsPerAhead {
		n, able := ahead.Look()
		if !able {
			return turns, empty
		}
		e.events += uint64(n)
		if n == 0 {
			n = e.Turn()
		}
		if *need <= 0 {
			return turns, 0
		}
		if n > 0 {
			empty = 0
			continue
		}
		empty = min(empty+turnsPerAhead, e.cfg.SpinTurns) // WaitOn yields from there on
		e.spinYield(empty)
	}
	return turns, empty
}

// handOver wakes a parked goroutine to drive if no goroutine drives.
func (e *Engine) handOver() {
	if e.driver == nil && len(e.parked) > 0 {
		e.unpark(e.parked[0])
	}
}

// park waits until w is signalled, or the goroutine must drive.
func (e *Engine) park(w *Waiter) {
	if w.ch == nil {
		w.ch = make(chan struct{}, 1)
	}
	e.cParks++
	if w.origin.isWanted {
		w.origin.note(e)
	}
	e.parked = append(e.parked, w)
	w.parked = true
	e.mu.Unlock()
	<-w.ch
	e.Lock()
	e.coming--
	w.parked = false
	i := slices.Index(e.parked, w)
	e.parked = slices.Delete(e.parked, i, i+1)
	if len(e.parked) == 0 && cap(e.parked) > maxWaiters {
		e.parked = nil
	}
	select {
	case <-w.ch: // woken a second time before it took the lock
		e.coming--
	default:
	}
}

// signalled wakes the goroutine that waits with w.
func (e *Engine) signalled(w *Waiter) {
	switch {
	case w.parked:
		e.unpark(w)
	case e.driver == w:
		e.Wake()
	}
}

// unpark makes a parked goroutine check its wait again.
func (e *Engine) unpark(w *Waiter) {
	select {
	case w.ch <- struct{}{}:
		e.coming++
	default: // woken already
	}
}

// GetWaiter takes a Waiter from the pool, Reset to need. PutWaiter gives it back. Lock held.
func (e *Engine) GetWaiter(need int) *Waiter {
	var w *Waiter
	if last := len(e.waiters) - 1; last >= 0 {
		w = e.waiters[last]
		e.waiters = e.waiters[:last]
	} else {
		w = new(Waiter)
	}
	w.Reset(need)
	return w
}

// maxWaiters bounds the pool of Waiters, and the capacity kept for parked ones: a burst of waiting
// goroutines must not keep its memory forever.
const maxWaiters = 1024

// PutWaiter gives back a Waiter that gets no more signals. Lock held.
func (e *Engine) PutWaiter(w *Waiter) {
	if len(e.waiters) < maxWaiters {
		e.waiters = append(e.waiters, w)
	}
}
