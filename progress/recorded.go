package progress

import "github.com/mpigo/mpigo/internal/calls"

// What the engine tells the recorder of calls, if the rank has one: which call holds the lock, and
// when a wait is long.

// call is the call of the goroutine that holds the lock, if calls are recorded. resume makes it the
// current one again when the goroutine has taken the lock back.
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

// Leave gives the lock up in the middle of a call, and Return takes it back. Return gets what Leave
// has returned.
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

// waits says that the current call waits, and waited that its wait is over.
func (e *Engine) waits() *calls.Call {
	e.Calls.Waits()
	return e.Calls.Current()
}

func (e *Engine) waited(c *calls.Call) {
	e.Calls.Resume(c)
	e.Calls.Waited()
}

// spinRecorded is spin that tells the recorder of calls when the wait is long, and when it is over.
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

// turnsUntilLong is how many turns without an event a wait spins before it reads the clock: some
// microseconds.
const turnsUntilLong = 256
