package progress

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/mpigo/mpigo/internal/calls"
)

// ErrStopped is the error of waits on an engine that was stopped without a cause.
var ErrStopped = errors.New("progress engine stopped")

const (
	// timersEvery: every timersEvery-th turn runs the timers. In Spin, only this turn polls all
	// pollers.
	timersEvery = 8
	// turnsPerAhead: a look ahead, and the turn after it, take about as long as this many turns
	// with a Relax after each.
	turnsPerAhead = 16
	// turnsPerPoll: one Poll, including the caller's loop, takes about as long as this many turns
	// of Spin.
	turnsPerPoll = 4
)

// Config of an engine. The zero value suits tests.
type Config struct {
	// Clock is the engine's time, nil for the system's monotonic clock.
	Clock Clock
	// The driver sleeps on Wakeup; nil means a ChanWakeup. Close closes it.
	Wakeup Wakeup
	// SpinTurns is the number of turns without an event after which a driver yields.
	SpinTurns int
	// YieldNanos is how long a driver yields between turns before it sleeps.
	YieldNanos int64
	// NoSleep makes a driver yield forever.
	NoSleep bool
	// Processor makes a yield also give up the processor to other processes; nil for ranks of one
	// process.
	Processor Processor
	// QuickYields, if not 0, is the number of consecutive yields that gave the core to no other
	// process after which a driver sleeps.
	QuickYields int
	// Idle replaces the whole idle policy. The engine calls it without the lock after every turn of
	// a driver and every Poll without an event, possibly from several goroutines at once. It is for
	// tests and simulations that control the time.
	Idle func()
}

// Counters of an engine since New.
type Counters struct {
	Turns  uint64
	Events uint64 // events that the pollers report, and timers that ran
	Yields uint64
	Sleeps uint64
	Parks  uint64 // waits of goroutines while another one drove
	Done   uint64 // completed operations
}

// Engine drives one rank; New makes one. Any goroutine may call Lock, TryLock, Now, Stop and Close.
// All other methods need the lock.
type Engine struct {
	mu     sync.Mutex
	wanted atomic.Int32 // goroutines in Lock that did not get mu at once

	// Calls records the calls of the rank; nil if nothing observes them. It is set before the first
	// call, and never changes.
	Calls *calls.Recorder

	// ownEvery: every ownEvery-th yield to other processes is also a yield to other goroutines. It
	// never changes.
	ownEvery uint64

	// mu guards everything below.

	cfg      Config
	pollers  []Poller
	hot      int // index of the poller that reported an event last
	turn     uint64
	events   uint64
	driver   *Waiter   // the wait of the goroutine that drives, nil if none does
	parked   []*Waiter // waits of the parked goroutines, oldest first
	coming   int       // parked goroutines that were woken and do not have the lock yet
	sleeping bool      // the driver, or Doze, is in Wakeup.Sleep or about to call it
	armed    []Idler   // to be disarmed after the sleep
	dozing   bool      // the pollers are armed for Doze
	inSleep  bool      // a goroutine in Doze is in Wakeup.Sleep
	stopErr  error
	closed   bool
	queue    []Task // to run at the end of the turn, from ran on
	ran      int
	timers   timerHeap
	timerSeq uint64    // number of timers made so far
	waiters  []*Waiter // the pool
	polls    int       // consecutive Polls without an event
	done     uint64    // completed operations
	failed   uint64    // of those, with an error

	// Set by OnBound; nil without a test harness.
	bound, unbound func(obj any)

	spinYields  spinYields
	quickYields quickYields

	cYields uint64
	cSleeps uint64
	cParks  uint64
}

// New makes an engine.
func New(cfg Config) *Engine {
	if cfg.Clock == nil {
		cfg.Clock = SystemClock()
	}
	if cfg.Wakeup == nil {
		cfg.Wakeup = NewChanWakeup()
	}
	cfg.SpinTurns = max(cfg.SpinTurns, 0)
	e := &Engine{cfg: cfg, ownEvery: goschedEvery}
	if !cfg.NoSleep && cfg.Processor != nil {
		e.quickYields.limit = cfg.QuickYields
		e.ownEvery = max(goschedEvery, quickPerGosched*uint64(cfg.QuickYields))
	}
	if runtime.GOMAXPROCS(0) == 1 {
		e.ownEvery = goschedEveryAlone
	}
	return e
}

// Lock takes the rank's lock. If the driver holds it, the driver releases it at its next turn.
func (e *Engine) Lock() {
	if e.mu.TryLock() {
		return
	}
	e.wanted.Add(1)
	e.mu.Lock()
	e.wanted.Add(-1)
}

// TryLock takes the rank's lock if it is free, and reports whether it did.
func (e *Engine) TryLock() bool { return e.mu.TryLock() }

// Unlock releases the rank's lock.
func (e *Engine) Unlock() { e.mu.Unlock() }

// AddPoller adds a poller, which the engine polls from then on. Lock held.
func (e *Engine) AddPoller(p Poller) {
	e.pollers = append(e.pollers, p)
	e.Wake() // a sleeping driver has not armed p
}

// Turn runs one turn and returns the number of events. Lock held.
func (e *Engine) Turn() int {
	n := 0
	for i, p := range e.pollers {
		if k := p.Progress(); k > 0 {
			n += k
			e.hot = i
		}
	}
	e.turn++
	e.events += uint64(n)
	if e.turn%timersEvery == 0 {
		n += e.runTimers()
	}
	if len(e.queue) > 0 {
		e.runQueue()
	}
	return n
}

// Queue makes a task run once, at the end of the current turn, or of the next one if no turn is
// running. Lock held.
func (e *Engine) Queue(t Task) {
	e.queue = append(e.queue, t)
	e.Wake()
}

// runQueue runs the queued tasks, including those that are queued meanwhile. A task may release the
// lock for a time. Another goroutine then runs the other tasks.
func (e *Engine) runQueue() {
	for len(e.queue) > 0 {
		t := e.queue[e.ran]
		e.queue[e.ran] = nil
		if e.ran++; e.ran == len(e.queue) {
			e.queue, e.ran = e.queue[:0], 0
		}
		t.Run()
	}
}

// Poll is a Turn for callers that poll in a loop of their own, as callers of Test do. After some
// consecutive calls without an event it yields, so that other goroutines and processes can run.
// Lock held; Poll releases it while it yields.
func (e *Engine) Poll() int {
	n := e.Turn()
	if n > 0 {
		e.polls = 0
		return n
	}
	if e.cfg.Idle != nil {
		e.idle()
		return 0
	}
	e.Undoze()
	if e.polls++; e.polls > e.cfg.SpinTurns/turnsPerPoll {
		e.polls = 0
		e.yield()
	}
	return 0
}

// CountCompletion counts the completion of an operation and returns its number, from 1. Lock held.
func (e *Engine) CountCompletion(failed bool) uint64 {
	e.done++
	if failed {
		e.failed++
	}
	return e.done
}

// CountCompletions counts the completion of n operations without an error. Lock held.
func (e *Engine) CountCompletions(n int) { e.done += uint64(n) }

// Failed is the number of operations that have completed with an error. Lock held.
func (e *Engine) Failed() uint64 { return e.failed }

// Counters returns the counters. Lock held.
func (e *Engine) Counters() Counters {
	return Counters{Turns: e.turn, Events: e.events, Yields: e.cYields, Sleeps: e.cSleeps, Parks: e.cParks, Done: e.done}
}

// Now is the engine's time in nanoseconds. The lock is not needed.
func (e *Engine) Now() int64 { return e.cfg.Clock.Now() }

// Wake wakes a sleeping driver, because there is new work for its polls. Lock held.
func (e *Engine) Wake() {
	if e.sleeping {
		e.cfg.Wakeup.Wake()
	}
}

// Stop makes all current and future waits return err (ErrStopped if nil), unless their operations
// have completed. Only the first Stop counts. Stop takes the lock itself.
func (e *Engine) Stop(err error) {
	e.Lock()
	defer e.Unlock()
	if e.stopErr != nil {
		return
	}
	if err == nil {
		err = ErrStopped
	}
	e.stopErr = err
	for _, w := range e.parked {
		e.unpark(w)
	}
	e.Wake()
	e.Undoze()
}

// Stopped returns the error of Stop, or nil. Lock held.
func (e *Engine) Stopped() error { return e.stopErr }

// Close stops the engine and closes its Wakeup. It takes the lock itself.
func (e *Engine) Close() error {
	e.Stop(nil)
	e.Lock()
	defer e.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	return e.cfg.Wakeup.Close()
}
