package progress

import (
	"context"
	"runtime"
	"slices"
	"time"
)

const (
	// yieldsPerLook: looking at the clock costs as much as a turn, so a driver that
	// yields looks only this often whether it has yielded long enough.
	yieldsPerLook = 16
	// goschedEvery: Gosched wakes further threads of the process, which look for work on
	// processors that other ranks could use. A driver that yields to these does it only so often. Where
	// the process runs one thread at a time there are none to wake, and its other goroutines have
	// nobody else to run them.
	goschedEvery      = 32
	goschedEveryAlone = 4
	// letGoYields bounds how long a driver stays away for those who want the lock.
	letGoYields = 100
	// napNanos bounds a sleep when some poller cannot ring the bell, and the first part of any.
	napNanos = int64(time.Millisecond)
	// sleepNanos bounds every sleep, so that even a lost ring only costs this much, and
	// so that low-frequency checks (is the peer alive?) still run.
	sleepNanos = int64(100 * time.Millisecond)
)

// Wait drives the engine, or parks while another goroutine does, until w is done. The
// lock is held at the call and on return, and given up in between. Not from inside a
// poller or a timer.
//
// It returns nil when w is done; the context's error if ctx ended before; the error of
// Stop if the engine was stopped before. ctx may be nil.
func (e *Engine) Wait(ctx context.Context, w *Waiter) error {
	if w.need <= 0 {
		return nil
	}
	if ctx != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return e.WaitOn(ctx, w, e.Spin(&w.need))
}

// WaitOn is Wait after a Spin, which has returned empty.
func (e *Engine) WaitOn(ctx context.Context, w *Waiter, empty int) error {
	if w.need <= 0 {
		return nil
	}
	w.eng, w.ctxErr = e, nil
	if w.mayGiveUp = ctx != nil && ctx.Done() != nil; w.mayGiveUp {
		if err := ctx.Err(); err != nil {
			return err
		}
		// The function runs on a goroutine of its own, perhaps after this wait has ended.
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
	// Perhaps w was woken to drive, and does not need to any more.
	e.handOver()
	if w.need <= 0 {
		return nil
	}
	if w.ctxErr != nil {
		return w.ctxErr
	}
	return e.stopErr
}

// Spin is the first stage of a wait, and most often the only one: it polls until *need, which
// what is waited for counts down under the lock, is not positive. It keeps the lock and heeds no
// context, and so gives up when there is anything else to heed, and after so many turns, be they
// empty or not. It returns the number of turns since the last event, for WaitOn to go on from. Lock
// held; not from inside a poller or a timer.
func (e *Engine) Spin(need *int32) (empty int) {
	if e.driver != nil || e.stopErr != nil || e.cfg.Idle != nil {
		return 0
	}
	for turns := e.cfg.SpinTurns; turns > 0 && e.coming == 0 && e.wanted.Load() == 0; turns-- {
		n := 0
		if e.turn%lowEvery == lowEvery-1 || e.hot >= len(e.high) {
			n = e.Turn()
		} else {
			// Mostly only the poller that has had something last: with others that have nothing,
			// a look at a line that is about to change comes later.
			n = e.high[e.hot].Progress()
			e.turn++
			e.events += uint64(n)
		}
		if *need <= 0 {
			return 0
		}
		if n > 0 {
			empty = 0
			continue
		}
		empty++
		pause()
	}
	return empty
}

// handOver wakes the next driver if there is none.
func (e *Engine) handOver() {
	if e.driver == nil && len(e.parked) > 0 {
		e.wake(e.parked[0])
	}
}

// drive polls until w is over; so many turns before it were empty.
func (e *Engine) drive(w *Waiter, empty int) {
	e.driver = w
	defer func() { // also if a poller panics: the others must not wait for a driver that is gone
		e.driver = nil
		e.handOver()
	}()
	var yieldSince int64 // when yielding began
	drowsy := false      // it has yielded long enough, and slept, and still there was no event
	for !w.over() {
		n := e.Turn()
		switch {
		case e.wanted.Load() != 0:
			e.letGo(letGoYields)
		case e.coming > 0:
			e.letGo(1)
		}
		if n > 0 {
			empty, drowsy = 0, false
			continue
		}
		if w.over() {
			return
		}
		if e.cfg.Idle != nil {
			e.idle()
			continue
		}
		yields := empty - e.cfg.SpinTurns // so far
		empty++
		switch {
		case yields < 0:
			pause()
		case yields == 0:
			yieldSince = e.Now()
			e.yield()
		case e.cfg.NoSleep:
			e.yield()
		case drowsy, yields%yieldsPerLook == 0 && e.Now()-yieldSince >= e.cfg.YieldNanos:
			if drowsy = !e.sleep(w); !drowsy {
				empty = 0
			}
		default:
			e.yield()
		}
	}
}

// idle calls the configured function without the lock.
func (e *Engine) idle() {
	e.mu.Unlock()
	defer e.Lock() // also if it panics: whoever recovers unlocks
	e.cfg.Idle()
}

// yield lets other goroutines, and other processes, run.
func (e *Engine) yield() {
	e.cYields++
	own := !e.cfg.YieldProcess || e.cYields%e.ownEvery == 0
	e.mu.Unlock()
	if e.cfg.YieldProcess {
		yieldProcess()
	}
	if own {
		runtime.Gosched()
	}
	e.Lock()
}

// letGo hands the lock to those who wait for it in Lock, and the processor to those
// who were woken and are about to.
func (e *Engine) letGo(yields int) {
	e.mu.Unlock()
	for range yields {
		runtime.Gosched()
		if e.wanted.Load() == 0 {
			break
		}
	}
	e.mu.Lock()
}

// sleep blocks on the bell until an event is due. It reports whether there was an event.
func (e *Engine) sleep(w *Waiter) bool {
	nanos := e.arm()
	defer e.disarm()
	// What came before the flags were up was not rung for.
	if n := e.fullTurn(); n > 0 || w.over() {
		return n > 0
	}
	if len(e.timers) > 0 {
		nanos = min(nanos, max(e.timers[0].at-e.Now(), 0))
	}
	e.cSleeps++
	e.sleeping = true
	defer func() { e.sleeping = false }()
	// The flags may have come too late for somebody whose event that turn came too early for: where
	// neither side fences for sure, that is seen after a nap.
	if e.blockFor(min(nanos, napNanos)) || nanos <= napNanos {
		return e.fullTurn() > 0
	}
	if n := e.fullTurn(); n > 0 || w.over() {
		return n > 0
	}
	e.blockFor(nanos - napNanos)
	return e.fullTurn() > 0
}

// blockFor blocks on the bell without the lock. It reports whether the bell was rung.
func (e *Engine) blockFor(nanos int64) (rung bool) {
	e.mu.Unlock()
	defer e.Lock()
	return e.cfg.Bell.Sleep(nanos)
}

// fullTurn is a turn that leaves nothing out.
func (e *Engine) fullTurn() int {
	n := e.Turn()
	if e.turn%lowEvery != 0 {
		n += e.lowTurn()
	}
	return n
}

// arm arms all pollers that can be, and returns how long the engine may sleep.
func (e *Engine) arm() (nanos int64) {
	nanos = sleepNanos
	for _, list := range [2][]Poller{e.high, e.low} {
		for _, p := range list {
			i, ok := p.(Idler)
			if !ok {
				nanos = napNanos
				continue
			}
			e.armed = append(e.armed, i)
			if !i.Arm() {
				nanos = napNanos
			}
		}
	}
	return nanos
}

func (e *Engine) disarm() {
	for _, i := range e.armed {
		i.Disarm()
	}
	clear(e.armed)
	e.armed = e.armed[:0]
}

// park waits until w is signalled or the driver hands over.
func (e *Engine) park(w *Waiter) {
	if w.ch == nil {
		w.ch = make(chan struct{}, 1)
	}
	e.cParks++
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
	case <-w.ch: // woken again on the way here
		e.coming--
	default:
	}
}

// signalled wakes whoever waits with w.
func (e *Engine) signalled(w *Waiter) {
	switch {
	case w.parked:
		e.wake(w)
	case e.driver == w:
		e.Nudge()
	}
}

// wake lets a parked goroutine look again.
func (e *Engine) wake(w *Waiter) {
	select {
	case w.ch <- struct{}{}:
		e.coming++
	default: // already woken
	}
}
