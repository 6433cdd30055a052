package progress

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// ErrStopped ends the waits of an engine that was stopped without a cause.
var ErrStopped = errors.New("progress engine stopped")

const (
	// lowEvery: pollers of low priority and timers run at every lowEvery-th turn. In Spin, that is
	// also the only one at which all of high priority do.
	lowEvery = 8
	// pollsPerSpin: a call that comes back by itself takes about this many spins' time.
	pollsPerSpin = 4
)

// Config of an engine. The zero value is a good one for tests.
type Config struct {
	// Clock, nil for the system's monotonic clock.
	Clock Clock
	// Bell to sleep on, nil for a ChanBell. The engine closes it in Close.
	Bell Bell
	// SpinTurns is how many empty turns a driver spins before it yields.
	SpinTurns int
	// YieldNanos is how long it then yields between turns before it sleeps.
	YieldNanos int64
	// NoSleep keeps it yielding for ever.
	NoSleep bool
	// YieldProcess makes a yield also give up the processor to other processes
	// (sched_yield), for ranks that share cores.
	YieldProcess bool
	// Idle replaces the whole idle policy: it is called, without the lock, after every turn
	// of a driver and every Poll without an event, perhaps by several goroutines at
	// once. For tests and simulations that own time.
	Idle func()
}

// Counters of an engine since it was made.
type Counters struct {
	Turns  uint64 // polls of the high-priority pollers
	Events uint64 // what pollers reported
	Yields uint64
	Sleeps uint64
	Parks  uint64 // goroutines that parked because another one drove
	Done   uint64 // operations completed
}

// Engine drives one rank. All methods but Lock, TryLock, Unlock, Ring and Stop need the
// lock; the doc comment of each says so. Use New.
type Engine struct {
	mu     sync.Mutex
	wanted atomic.Int32 // goroutines in Lock that did not get mu at once

	// ownEvery: of yields to other processes, every so many-th is one to our own goroutines, too. It does
	// not change.
	ownEvery uint64

	// Guarded by mu, all below.
	cfg      Config
	high     []Poller
	low      []Poller
	hot      int // of high, the poller that had an event last
	turn     uint64
	events   uint64
	driver   *Waiter   // who drives, nil if nobody
	parked   []*Waiter // who waits for the driver to hand over, oldest first
	coming   int       // wakes of parked goroutines that do not have the lock yet
	sleeping bool      // the driver is in bell.Sleep or on its way there
	armed    []Idler   // to be disarmed after the driver's sleep
	stopErr  error
	closed   bool
	timers   timerHeap
	timerSeq uint64    // timers made so far
	waiters  []*Waiter // not in use
	polls    int       // Polls without an event, in a row
	done     uint64    // completions counted
	// See OnBound; nil except under a test harness.
	bound, unbound func(obj any)
	cYields        uint64
	cSleeps        uint64
	cParks         uint64
}

// New makes an engine.
func New(cfg Config) *Engine {
	if cfg.Clock == nil {
		cfg.Clock = SystemClock()
	}
	if cfg.Bell == nil {
		cfg.Bell = NewChanBell()
	}
	cfg.SpinTurns = max(cfg.SpinTurns, 0)
	e := &Engine{cfg: cfg, ownEvery: goschedEvery}
	if runtime.GOMAXPROCS(0) == 1 {
		e.ownEvery = goschedEveryAlone
	}
	return e
}

// Lock takes the rank's lock. If a driver holds it, the driver lets go soon.
func (e *Engine) Lock() {
	if e.mu.TryLock() {
		return
	}
	e.wanted.Add(1)
	e.mu.Lock()
	e.wanted.Add(-1)
}

// TryLock takes the rank's lock if that is free.
func (e *Engine) TryLock() bool { return e.mu.TryLock() }

// Unlock releases the rank's lock.
func (e *Engine) Unlock() { e.mu.Unlock() }

// AddHigh adds a poller for every turn. Lock held.
func (e *Engine) AddHigh(p Poller) {
	e.high = append(e.high, p)
	e.Nudge() // a sleeping driver has not armed it
}

// AddLow adds a poller for every 8th turn. Lock held.
func (e *Engine) AddLow(p Poller) {
	e.low = append(e.low, p)
	e.Nudge()
}

// Remove takes a poller out; it is not called any more after that, except that one which
// is armed is disarmed now. Lock held; not from inside Progress.
func (e *Engine) Remove(p Poller) {
	is := func(q Poller) bool { return q == p }
	e.high = slices.DeleteFunc(e.high, is)
	e.low = slices.DeleteFunc(e.low, is)
	e.armed = slices.DeleteFunc(e.armed, func(i Idler) bool {
		if any(i) != any(p) {
			return false
		}
		i.Disarm()
		return true
	})
}

// Turn polls once and returns the number of events. Lock held.
func (e *Engine) Turn() int {
	n := 0
	for i, p := range e.high {
		if k := p.Progress(); k > 0 {
			n += k
			e.hot = i
		}
	}
	e.turn++
	e.events += uint64(n)
	if e.turn%lowEvery == 0 {
		n += e.lowTurn()
	}
	return n
}

// lowTurn runs what not every turn does.
func (e *Engine) lowTurn() int {
	n := 0
	for _, p := range e.low {
		n += p.Progress()
	}
	if len(e.timers) > 0 {
		n += e.runTimers(e.cfg.Clock.Now())
	}
	e.events += uint64(n)
	return n
}

// Poll is a Turn for callers who come back by themselves, as those of Test do: after some
// in a row that found nothing it yields, so that whoever they wait for can run. Lock
// held; given up while yielding.
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
	if e.polls++; e.polls > e.cfg.SpinTurns/pollsPerSpin {
		e.polls = 0
		e.yield()
	}
	return 0
}

// CountCompletion numbers the completion of an operation. Lock held.
func (e *Engine) CountCompletion() uint64 {
	e.done++
	return e.done
}

// GetWaiter gives a Waiter, Reset to need, that is to be given back with PutWaiter.
// Lock held.
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

// maxWaiters bounds the Waiters that are kept, and room for those that park: many goroutines that
// wait at one time must not cost their memory for ever.
const maxWaiters = 1024

// PutWaiter takes back a Waiter that nobody will signal any more. Lock held.
func (e *Engine) PutWaiter(w *Waiter) {
	if len(e.waiters) < maxWaiters {
		e.waiters = append(e.waiters, w)
	}
}

// Counters returns what was counted so far. Lock held.
func (e *Engine) Counters() Counters {
	return Counters{Turns: e.turn, Events: e.events, Yields: e.cYields, Sleeps: e.cSleeps, Parks: e.cParks, Done: e.done}
}

// Now is the engine's time. It may be called from anywhere.
func (e *Engine) Now() int64 { return e.cfg.Clock.Now() }

// Ring wakes the driver if it sleeps. It may be called from anywhere.
func (e *Engine) Ring() { e.cfg.Bell.Ring() }

// Nudge makes a sleeping driver look again, because there is something new to poll for.
// Lock held.
func (e *Engine) Nudge() {
	if e.sleeping {
		e.cfg.Bell.Ring()
	}
}

// Stop makes every wait, present and future, return err (ErrStopped if nil), unless what
// it waits for has happened. Only the first Stop counts. It may be called from
// anywhere, without the lock.
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
		e.wake(w)
	}
	e.Ring()
}

// Stopped is the error of Stop, or nil. Lock held.
func (e *Engine) Stopped() error { return e.stopErr }

// Close stops the engine and releases its bell.
func (e *Engine) Close() error {
	e.Stop(nil)
	e.Lock()
	defer e.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	return e.cfg.Bell.Close()
}
