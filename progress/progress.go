// Package progress is the engine that a rank's waiting goroutines turn.
//
// There is no progress thread. Whoever waits for something drives: it polls the
// transports until what it waits for has happened. One goroutine drives at a time, the
// others park, and when the driver has what it wanted the next one takes over. One lock,
// the engine's, guards everything that belongs to the rank: the engine itself, its
// requests, the PML and the BTLs. It is uncontended in a program that communicates from
// one goroutine, and the driver lets go of it whenever somebody else wants it.
//
// When nothing arrives, a driver goes through three stages: it spins, it yields
// the processor, and it sleeps on the engine's Bell, which peers ring only after they
// have seen the sleeper's flag (Idler.Arm).
package progress

// Poller is something that a turn of the engine polls. Called with the engine's lock
// held; it never blocks, and returns how many events it handled.
type Poller interface {
	Progress() int
}

// Idler is a Poller that can wake a sleeping engine. Both calls are made with the
// engine's lock held.
type Idler interface {
	// Arm asks for the engine's Bell to be rung at the next event. It reports false if
	// this poller cannot promise that; the engine then only naps. The engine polls
	// once more after arming, so an event between the last poll and Arm is not missed.
	Arm() bool
	// Disarm takes that back. It follows every Arm, whatever that reported.
	Disarm()
}

// Clock gives monotonic time in nanoseconds, from any origin.
type Clock interface {
	Now() int64
}

// Bell is what a driver with nothing to do sleeps on. Ring may be called from any
// goroutine, and before Sleep: a bell that was rung stays rung until a Sleep has
// returned for it, so no ring is lost.
type Bell interface {
	Ring()
	// Sleep returns when the bell was rung, and reports that, or after at most nanos
	// nanoseconds. One goroutine at a time sleeps.
	Sleep(nanos int64) (rung bool)
	// Close releases the bell. Sleep and Ring after it return at once.
	Close() error
}
