// Package progress is the engine of a rank: it polls the transports while goroutines wait. It is
// for those who extend the library, and may change with any version: programs use package comm.
//
// There is no progress thread. A goroutine that waits for an operation drives the engine: it polls
// the transports until the operation has completed. At most one goroutine, the driver, polls at a
// time. The other waiting goroutines park on a channel of their own. A parked goroutine wakes when
// its own operation has completed, or when the driver leaves and another goroutine must drive.
//
// # The lock
//
// A rank has one lock, the engine's. It guards the engine, the requests, the PML and the BTLs of
// the rank. A call of the library takes it once. The driver holds it while it polls, and releases
// it whenever another goroutine waits in [Engine.Lock]. A program that communicates from one
// goroutine never contends for it. A doc comment that says "Lock held" means that the caller holds
// this lock.
//
// # Turns
//
// A turn polls every poller once, and then runs the tasks that were queued ([Engine.Queue]). Every
// eighth turn also runs the timers that are due. The first stage of a wait, [Engine.Spin], polls
// only the poller that reported an event last, except at every eighth turn.
//
// # Idle policy
//
// A driver whose turns find no event goes through three stages. An event leads back to the first.
//
//	stage  begins                                    between two turns, the driver
//	spin   with the wait, or after an event          keeps the lock and calls Relax, now and then
//	                                                 Config.Processor.Yield (spinyields.go)
//	yield  after Config.SpinTurns empty turns        releases the lock and yields to other
//	                                                 goroutines; with Config.Processor to other
//	                                                 processes (sched_yield) at every turn, and to
//	                                                 goroutines at some (goschedEvery)
//	sleep  after Config.YieldNanos of yielding, or   sleeps on Config.Wakeup, without the lock
//	       earlier if yields give the core to nobody
//	       (quickyields.go)
//
// With Config.NoSleep the driver yields forever. Config.Idle replaces the whole policy.
//
// A sleep has these steps:
//
//  1. The driver arms every poller ([Idler]): it raises a flag that the peers can see.
//  2. It polls once more, because no peer wakes it for an event from before the flag was raised.
//  3. It sleeps until a peer that sees the flag wakes it, or a timer is due, at most 1 ms.
//  4. It polls once more. If a peer sent while the flag was raised, and neither side has a full
//     fence, the peer may have missed the flag. This poll finds its message.
//  5. If it was not woken, it sleeps for the rest of 100 ms, and polls. It skips this step if a
//     poller cannot promise to wake it.
//  6. It disarms the pollers.
//
// A driver that wakes without an event makes one turn and sleeps again, without yielding first.
package progress

// Poller is polled by the turns of an engine. Progress is called with the engine's lock held. It
// never blocks, and returns the number of events that it handled.
type Poller interface {
	Progress() int
}

// Task is work that follows from an event, but must not be done inside the poller that reported the
// event.
type Task interface {
	// Run is called with the engine's lock held, at the end of a turn of any goroutine. It does not
	// wait or panic. It may release the lock for long work.
	Run()
}

// Idler is a Poller that can wake a sleeping engine. Both methods are called with the engine's lock
// held.
type Idler interface {
	// Arm asks for a call of the engine's Wakeup at the next event. It returns false if the poller
	// cannot promise that; the engine then sleeps for 1 ms at most. The engine polls once more
	// after Arm, so no event between the last poll and Arm is lost.
	Arm() bool
	// Disarm reverts Arm. It follows every Arm, whatever that returned.
	Disarm()
}

// Clock gives monotonic time in nanoseconds, from any origin.
type Clock interface {
	Now() int64
}

// Processor lets a driver give its processor core to other processes.
type Processor interface {
	// Yield lets another process run that is ready on this core (sched_yield). It returns when this
	// process runs again.
	Yield()
	// Delay returns the total time for which the threads of this process have been ready without a
	// core to run on. It decreases when threads end. ok is false if the system does not say. The
	// call takes some tens of microseconds.
	Delay() (nanos int64, ok bool)
}

// Wakeup is what an idle driver sleeps on. Wake may be called from any goroutine. If it is called
// before Sleep, the next Sleep returns at once, so no wake-up is lost. Several calls of Wake before
// a Sleep count as one.
type Wakeup interface {
	Wake()
	// Sleep returns true when Wake was called, and false after nanos nanoseconds. Only one
	// goroutine at a time may call it.
	Sleep(nanos int64) (woken bool)
	// Close releases the resources. Later calls of Sleep and Wake return at once.
	Close() error
}
