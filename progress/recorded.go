package progress

import "github.com/mpigo/mpigo/internal/calls"

// If the rank has a recorder of calls, the engine tells it which call holds the lock, and when a
// wait is long.

// call returns the call of the goroutine that holds the lock, if calls are recorded. resume makes
// it the current call again after the goroutine has taken the lock back.
func (e *Engine) call() *calls.Call {
	if e.Calls == nil {
		return nil
	}
	return e.Calls.Current()
}

func (e *Engine) resume(c *calls.Call) {
	if e.Calls != nil {
		e.Calls.Resume(c)
	}
}

// Leave releases the lock in the middle of a call, and Return takes it back. The result of Leave is
// passed to Return.
func (e *Engine) Leave() *calls.Call {
	c := e.call()
	e.mu.Unlock()
	return c
}

// Return reverts Leave.
func (e *Engine) Return(c *calls.Call) {
	e.Lock()
	e.resume(c)
}

// waits records that the current call waits, and waited that its wait is over.
func (e *Engine) waits() *calls.Call {
	e.Calls.Waits()
	return e.Calls.Current()
}

func (e *Engine) waited(c *calls.Call) {
	e.Calls.Resume(c)
	e.Calls.Waited()
}

// spinRecorded does what spin does, and also tells the recorder of calls when the wait is long, and
// when it is over.
func (e *Engine) spinRecorded(need *int32, ahead Ahead) (empty int) {
	first := min(e.cfg.SpinTurns, turnsUntilLong)
	empty = e.spin(need, ahead, first)
	if *need <= 0 || empty < first {
		return empty
	}
	e.Calls.Waits()
	if empty = e.spin(need, ahead, e.cfg.SpinTurns-first); *need <= 0 {
		e.Calls.Waited()
		return 0
	}
	return min(empty+first, e.cfg.SpinTurns)
}

// turnsUntilLong is the number of turns without an event after which a spinning wait reads the
// clock: some microseconds.
const turnsUntilLong = 256
