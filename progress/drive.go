package progress

import (
	"runtime"
	"time"
)

const (
	// yieldsPerClockRead: reading the clock costs as much as a turn, so a driver that yields reads
	// it only after this many yields.
	yieldsPerClockRead = 16
	// goschedEvery: Gosched wakes further threads of the process. They search for work on
	// processors that other ranks could use. A driver that yields to other processes therefore
	// calls Gosched only at every goschedEvery-th yield.
	goschedEvery = 32
	// quickPerGosched: the thread that Gosched wakes may run during the next yields, so that they
	// are not quick. With Config.QuickYields, there are quickPerGosched times as many yields
	// between two calls of Gosched.
	quickPerGosched = 4
	// goschedEveryAlone replaces goschedEvery if GOMAXPROCS is 1: then no further thread exists
	// that could be woken, or could run the other goroutines of the process.
	goschedEveryAlone = 4
	// yieldsPerOrigin: a driver that never sleeps records its origin after this many yields.
	yieldsPerOrigin = 1024
	// letGoYields bounds the number of Gosched calls after which the driver takes its lock back.
	letGoYields = 100
	// napNanos bounds a sleep that some poller cannot promise to end, and the first part of every
	// other sleep.
	napNanos = int64(time.Millisecond)
	// sleepNanos bounds every sleep: a lost wake-up delays events by no more than this, and
	// infrequent checks, such as whether a peer is alive, still run.
	sleepNanos = int64(100 * time.Millisecond)
)

// drive polls until w is over. empty is the number of turns without an event before the call.
func (e *Engine) drive(w *Waiter, empty int) {
	e.driver = w
	e.Undoze()
	defer func() { // even if a poller panics: parked goroutines then need another driver
		e.driver = nil
		e.handOver()
	}()
	var yieldSince int64 // when yielding began
	drowsy := false      // the last sleep ended without an event
	for !w.over() {
		n := e.Turn()
		e.letOthers()
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
		yields := empty - e.cfg.SpinTurns // number of yields so far
		empty++
		switch {
		case yields < 0:
			e.relax(empty)
		case e.cfg.NoSleep:
			if yields > 0 && yields%yieldsPerOrigin == 0 {
				w.origin.note(e)
				e.noteParked()
			}
			e.yield()
		case drowsy, e.quickYields.sleepsAtOnce(), yields > 0 && yields%yieldsPerClockRead == 0 && e.Now()-yieldSince >= e.cfg.YieldNanos:
			w.origin.note(e)
			if drowsy = !e.sleep(w); drowsy {
				e.noteParked()
			} else {
				empty = 0
			}
		default:
			if yields == 0 {
				yieldSince = e.Now()
				e.quickYields.begins()
			}
			e.yield()
		}
	}
}

// idle calls Config.Idle without the lock.
func (e *Engine) idle() {
	call := e.Leave()
	defer e.Return(call) // even if it panics, because the function that recovers unlocks
	e.cfg.Idle()
}

// yield lets other goroutines run, and with Config.Processor other processes.
func (e *Engine) yield() {
	e.cYields++
	cpu := e.cfg.Processor
	own := cpu == nil || e.cYields%e.ownEvery == 0
	call := e.Leave()
	timed := e.quickYields.limit > 0
	var took int64
	switch {
	case timed:
		start := e.Now()
		cpu.Yield()
		took = e.Now() - start
	case cpu != nil:
		cpu.Yield()
	}
	if own {
		runtime.Gosched()
	}
	e.Return(call)
	if timed {
		e.noteYield(took)
	}
}

// noteYield records how long a yield took. It makes the driver sleep if its yields give the core to
// no other process.
func (e *Engine) noteYield(took int64) {
	q := &e.quickYields
	if q.took(took); !q.isOver() {
		return
	}
	if now := e.Now(); q.isDue(now) {
		delay, ok := e.cfg.Processor.Delay()
		q.measure(now, delay, ok)
	}
	q.rest()
}

// relax spaces the turns of a spinning wait. empty is the number of turns without an event.
func (e *Engine) relax(empty int) {
	if !e.spinYield(empty) {
		Relax()
	}
}

// spinYield occasionally yields to other processes, and reports whether it did. The event may
// depend on another thread of this rank or of the peer, which the kernel may have placed on this
// core. It keeps the lock.
func (e *Engine) spinYield(empty int) bool {
	cpu := e.cfg.Processor
	if cpu == nil || !e.spinYields.isDue(empty) {
		return false
	}
	start := e.Now()
	cpu.Yield()
	e.spinYields.took(e.Now() - start)
	return true
}

// letOthers lets goroutines run that wait for the lock or were woken. It reports whether there were
// any.
func (e *Engine) letOthers() bool {
	switch {
	case e.wanted.Load() != 0:
		e.letGo(letGoYields)
	case e.coming > 0:
		e.letGo(1)
	default:
		return false
	}
	return true
}

// letGo gives the lock to the goroutines that wait for it in Lock, and the processor to goroutines
// that were woken and will take the lock.
func (e *Engine) letGo(yields int) {
	call := e.Leave()
	for range yields {
		runtime.Gosched()
		if e.wanted.Load() == 0 {
			break
		}
	}
	e.mu.Lock()
	e.resume(call)
}

// sleep blocks on the Wakeup until an event is due (package doc, "Idle policy"). It reports whether
// there was an event.
func (e *Engine) sleep(w *Waiter) bool {
	e.awaitDozer()
	nanos := e.arm()
	defer e.disarm()
	if n := e.fullTurn(); n > 0 || w.over() {
		return n > 0
	}
	if len(e.timers) > 0 {
		nanos = min(nanos, max(e.timers[0].at-e.Now(), 0))
	}
	e.cSleeps++
	e.sleeping = true
	defer func() { e.sleeping = false }()
	if e.blockFor(min(nanos, napNanos)) || nanos <= napNanos {
		return e.fullTurn() > 0
	}
	if n := e.fullTurn(); n > 0 || w.over() {
		return n > 0
	}
	e.blockFor(nanos - napNanos)
	return e.fullTurn() > 0
}

// blockFor blocks on the Wakeup without the lock. It reports whether Wake was called.
func (e *Engine) blockFor(nanos int64) (woken bool) {
	call := e.Leave()
	defer e.Return(call)
	return e.cfg.Wakeup.Sleep(nanos)
}

// fullTurn is a turn that always runs the timers.
func (e *Engine) fullTurn() int {
	n := e.Turn()
	if e.turn%timersEvery != 0 {
		n += e.runTimers()
	}
	return n
}

// arm arms all pollers that are Idlers, and returns how long the engine may sleep.
func (e *Engine) arm() (nanos int64) {
	nanos = sleepNanos
	for _, p := range e.pollers {
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
	return nanos
}

func (e *Engine) disarm() {
	for _, i := range e.armed {
		i.Disarm()
	}
	clear(e.armed)
	e.armed = e.armed[:0]
}
