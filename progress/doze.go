package progress

// Dozing is progress while no goroutine waits, because the program computes: a goroutine sleeps on
// the Wakeup as a driver does, with the pollers armed, and makes turns when an event comes. It gives
// way at once to a goroutine that waits: that disarms the pollers, whose flags would make every
// message of a peer a wake-up.

// Doze makes turns until there is no event, and then sleeps until one comes, a timer is due, a
// goroutine waits, or Undoze is called. It reports whether there was an event, or another goroutine
// made turns meanwhile. It returns at once if a goroutine drives or the engine is stopped. Lock held;
// Doze gives it up while it sleeps. One goroutine at a time may call it.
func (e *Engine) Doze() (active bool) {
	if e.driver != nil || e.stopErr != nil || e.dozing || e.cfg.Idle != nil {
		return true
	}
	e.dozing = true
	nanos := e.arm()
	for e.dozing {
		turn := e.turn
		if n := e.fullTurn(); n > 0 {
			active = true
			e.letGo(1)
			continue
		}
		if len(e.timers) > 0 {
			nanos = min(nanos, max(e.timers[0].at-e.Now(), 0))
		}
		e.sleeping, e.inSleep = true, true
		e.blockFor(nanos)
		e.inSleep = false
		if !e.dozing {
			return true
		}
		e.sleeping = false
		active = active || e.fullTurn() > 0 || e.turn > turn+2
		break
	}
	e.undoze()
	return active
}

// Undoze ends Doze. Lock held.
func (e *Engine) Undoze() {
	if e.dozing {
		e.undoze()
		e.cfg.Wakeup.Wake()
	}
}

// undoze disarms the pollers. If a goroutine is in Doze, it returns when it has the lock.
func (e *Engine) undoze() {
	if e.dozing {
		e.dozing, e.sleeping = false, false
		e.disarm()
	}
}

// awaitDozer waits until no other goroutine is in Wakeup.Sleep, which only one may be.
func (e *Engine) awaitDozer() {
	for e.inSleep {
		e.cfg.Wakeup.Wake()
		e.letGo(letGoYields)
	}
}
