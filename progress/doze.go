package progress

// Dozing is progress while no goroutine waits, because the program computes: a goroutine sleeps on
// the Wakeup as a driver does, with the pollers armed, and makes turns when an event comes. It
// gives way at once to a goroutine that waits. That goroutine disarms the pollers, because with
// their flags set each message of a peer would cause a wake-up.

// Doze sleeps until an event comes, a timer is due, a goroutine waits, or Undoze is called, and
// makes turns before and after. It reports whether a goroutine waits or the engine is stopped. If
// either is already the case, it returns at once. Lock held; Doze releases it while it sleeps. One
// goroutine at a time may call it.
func (e *Engine) Doze() (gaveWay bool) {
	if e.driver != nil || e.stopErr != nil || e.dozing || e.cfg.Idle != nil {
		return true
	}
	e.dozing = true
	nanos := e.arm()
	first := min(nanos, napNanos) // as in a driver's sleep
	for _, part := range []int64{first, nanos - first, 0} {
		n := e.fullTurn()
		gave := e.letOthers() // they may have left work for the pollers
		if !e.dozing {
			return true
		}
		if n > 0 || gave || part == 0 {
			break
		}
		if len(e.timers) > 0 {
			part = min(part, max(e.timers[0].at-e.Now(), 0))
		}
		e.sleeping, e.inSleep = true, true
		e.blockFor(part)
		e.inSleep = false
		if !e.dozing {
			return true
		}
		e.sleeping = false
	}
	e.undoze()
	return false
}

// Undoze ends Doze. Lock held.
func (e *Engine) Undoze() {
	if e.dozing {
		e.undoze()
	}
}

// undoze disarms the pollers. A goroutine in Doze returns once it has the lock.
func (e *Engine) undoze() {
	e.dozing, e.sleeping = false, false
	e.disarm()
	if e.inSleep {
		e.cfg.Wakeup.Wake()
	}
}

// awaitDozer waits until no other goroutine is in Wakeup.Sleep, because only one may be there at a
// time.
func (e *Engine) awaitDozer() {
	for e.inSleep {
		e.cfg.Wakeup.Wake()
		e.letGo(letGoYields)
	}
}
