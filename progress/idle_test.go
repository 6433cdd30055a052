package progress

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stage is how far a driver that finds nothing has come.
type stage struct {
	turns          uint64
	yields, sleeps uint64
}

// driveStages lets a driver make so many turns, of each of which event says whether it finds
// something. The clock moves by nanosPerTurn. It returns the counters at every turn.
func driveStages(cfg Config, turns, nanosPerTurn int, event func(turn int) bool) []stage {
	clock := new(handClock)
	clock.nanos.Store(1 << 50)
	cfg.Clock, cfg.Bell = clock, new(logBell)
	e := New(cfg)
	e.Lock()
	defer e.Unlock()
	w := waiter(1)
	var seen []stage
	e.AddHigh(&pollFunc{func() int {
		c := e.Counters()
		seen = append(seen, stage{c.Turns, c.Yields, c.Sleeps})
		clock.nanos.Add(int64(nanosPerTurn))
		if len(seen) == turns {
			w.Finish()
			return 1
		}
		if event(len(seen)) {
			return 1
		}
		return 0
	}})
	if err := e.Wait(context.Background(), w); err != nil {
		panic(err)
	}
	return seen
}

func TestIdleStages(t *testing.T) {
	never := func(int) bool { return false }
	at := func(n int) func(int) bool { return func(turn int) bool { return turn == n } }
	const long = int64(time.Hour)
	for _, test := range []struct {
		name       string
		cfg        Config
		event      func(turn int) bool
		turn       int // the state just before this turn, turns counted from 1
		wantYields uint64
		wantSleeps uint64
	}{
		{"spinning", Config{SpinTurns: 50, YieldNanos: long}, never, 51, 0, 0},
		{"the first yield", Config{SpinTurns: 50, YieldNanos: long}, never, 52, 1, 0},
		{"a yield between every two turns", Config{SpinTurns: 50, YieldNanos: long}, never, 1051, 1000, 0},
		{"no spinning", Config{SpinTurns: 0, YieldNanos: long}, never, 1011, 1010, 0},
		{"negative spinning is none", Config{SpinTurns: -1, YieldNanos: long}, never, 1011, 1010, 0},
		{"an event: it spins again", Config{SpinTurns: 50, YieldNanos: long}, at(100), 151, 49, 0},
		{"and then yields again", Config{SpinTurns: 50, YieldNanos: long}, at(100), 161, 59, 0},

		// A turn takes 10 ns. The clock is looked at after every 16 yields.
		{"not yielded long enough", Config{YieldNanos: 1000}, never, 112, 111, 0},
		{"yielded long enough: it sleeps, polling before and after", Config{YieldNanos: 1000}, never, 115, 112, 1},
		{"then it sleeps after every turn", Config{YieldNanos: 1000}, never, 115 + 30, 112, 11},
		{"no yielding: 16 times all the same", Config{YieldNanos: 0}, never, 19, 16, 1},
		{"never to sleep", Config{YieldNanos: 0, NoSleep: true}, never, 10_001, 10_000, 0},
		{"yielding to other processes too", Config{YieldNanos: 1000, YieldProcess: true}, never, 115, 112, 1},

		// Asleep, every third turn is the driver's, the next is before a sleep, the next after one.
		{"woken by an event: it yields again", Config{}, at(31), 46, 30, 5},
		{"an event before the next sleep: it yields again", Config{}, at(30), 45, 30, 4},
		{"an event just after a sleep: it yields again", Config{}, at(29), 44, 30, 4},
		{"and sleeps again", Config{}, at(29), 48, 32, 5},
		{"woken by an event: it spins again", Config{SpinTurns: 50}, at(81), 131, 16, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := driveStages(test.cfg, test.turn, 10, test.event)[test.turn-1]
			require.EqualValues(t, test.turn-1, s.turns)
			assert.Equal(t, test.wantYields, s.yields, "yields")
			assert.Equal(t, test.wantSleeps, s.sleeps, "sleeps")
		})
	}
}

// A clock may start anywhere, also so that yielding begins at 0.
func TestIdleStagesOfAnyClock(t *testing.T) {
	for _, origin := range []int64{-1000, -5, 0, 1 << 60} {
		clock, bell := new(handClock), new(logBell)
		clock.nanos.Store(origin)
		e := New(Config{Clock: clock, Bell: bell, YieldNanos: 100})
		w := waiter(1)
		e.AddHigh(&pollFunc{func() int { clock.nanos.Add(5); return 0 }})
		bell.onSleep = func() { locked(e, w.Finish) }
		require.NoError(t, wait(e, w))
		assert.EqualValues(t, 1, e.Counters().Sleeps)
		assert.EqualValues(t, 32, e.Counters().Yields)
	}
}

func TestIdleFunctionReplacesThePolicy(t *testing.T) {
	var e *Engine
	w := waiter(1)
	idled := 0
	e = New(Config{Bell: new(logBell), Idle: func() {
		if idled++; idled == 1000 {
			locked(e, w.Signal) // it has not the lock
		}
	}})
	events := 0
	e.AddHigh(&pollFunc{func() int {
		if e.Counters().Turns%2 == 0 {
			return 0
		}
		events++
		return 1
	}})
	require.NoError(t, wait(e, w))
	assert.Equal(t, 1000, idled)
	assert.InDelta(t, 1000, events, 1, "not called after a turn with an event")
	assert.Zero(t, e.Counters().Yields)
	assert.Zero(t, e.Counters().Sleeps)
}

func TestHowLongItSleeps(t *testing.T) {
	const nap, whole = int64(time.Millisecond), int64(100 * time.Millisecond)
	long := []int64{nap, whole - nap} // with a look in between
	short := []int64{nap}
	cannot, can, wont := new(pollFunc), &idler{rings: true}, &idler{rings: false}
	for _, test := range []struct {
		name  string
		high  []Poller
		low   []Poller
		timer int64 // nanoseconds from now, 0 for none
		want  []int64
	}{
		{"nothing to poll", nil, nil, 0, long},
		{"all promise to ring", []Poller{can}, []Poller{can}, 0, long},
		{"one cannot", []Poller{can, cannot}, nil, 0, short},
		{"one of low priority cannot", []Poller{can}, []Poller{cannot}, 0, short},
		{"one will not now", []Poller{can, wont, can}, nil, 0, short},
		{"one of low priority will not now", nil, []Poller{wont, can}, 0, short},
		{"a timer before that", []Poller{can}, nil, nap + 5000, []int64{nap, 5000}},
		{"a timer before the nap's end", []Poller{cannot}, nil, 5000, []int64{5000}},
		{"a timer before the first part's end", []Poller{can}, nil, 5000, []int64{5000}},
		{"a timer after that", []Poller{can}, nil, whole + 5000, long},
		{"a timer after the nap", []Poller{cannot}, nil, whole, short},
	} {
		t.Run(test.name, func(t *testing.T) {
			bell := new(logBell)
			e := New(Config{Bell: bell, Clock: new(handClock)})
			e.Lock()
			defer e.Unlock()
			for _, p := range test.high {
				e.AddHigh(p)
			}
			for _, p := range test.low {
				e.AddLow(p)
			}
			if test.timer != 0 {
				e.After(test.timer, func() { assert.Fail(t, "ran") })
			}
			w := waiter(1)
			bell.onSleep = func() {
				if len(bell.sleeps) == len(test.want) {
					locked(e, w.Finish)
				}
			}
			require.NoError(t, e.Wait(context.Background(), w))
			assert.Equal(t, test.want, bell.sleeps)
		})
	}
	for _, p := range []*idler{can, wont} {
		assert.NotZero(t, p.arms)
		assert.Equal(t, p.arms, p.disarms)
	}
}

// What arrives just before the flag is up is not rung for: it must be found without a sleep.
func TestEventBeforeTheFlagIsUp(t *testing.T) {
	for _, low := range []bool{false, true} {
		bell := new(logBell)
		e := New(Config{Bell: bell})
		w := waiter(1)
		arrived := false
		p := &idler{rings: true, onArm: func() { arrived = true }}
		p.find = func() int {
			if !arrived {
				return 0
			}
			w.Signal()
			return 1
		}
		if low {
			e.AddLow(p)
		} else {
			e.AddHigh(p)
		}
		require.NoError(t, wait(e, w))
		assert.Empty(t, bell.sleeps, "low priority: %v", low)
		assert.Equal(t, 1, p.arms)
		assert.Equal(t, 1, p.disarms)
		assert.EqualValues(t, 1, e.Counters().Events)
	}
}

// An event before the flag is up may be seen late, because its sender's store and our flag's
// crossed. It costs a nap, not a sleep.
func TestEventThatIsSeenLate(t *testing.T) {
	bell := new(logBell)
	e := New(Config{Bell: bell})
	w := waiter(1)
	p := &idler{rings: true}
	bell.onSleep = func() { locked(e, func() { p.find = after(1, w.Signal) }) }
	e.AddHigh(p)
	require.NoError(t, wait(e, w))
	assert.Equal(t, []int64{int64(time.Millisecond)}, bell.sleeps)
	assert.Equal(t, [2]int{1, 1}, [2]int{p.arms, p.disarms})
}

// What happens while the driver sleeps, its arms being watched.
func TestPollersThatComeAndGoDuringASleep(t *testing.T) {
	bell := new(logBell)
	e := New(Config{Bell: bell})
	old, gone, late := &idler{rings: true}, &idler{rings: true}, &idler{rings: true}
	e.Lock()
	defer e.Unlock()
	e.AddHigh(old)
	e.AddHigh(gone)
	e.AddLow(gone)
	w := waiter(1)
	bell.onSleep = func() {
		e.Lock()
		defer e.Unlock()
		switch len(bell.sleeps) {
		case 1:
			assert.Equal(t, 2, gone.arms)
			e.Remove(gone)
			assert.Equal(t, 2, gone.disarms, "removed, it is disarmed at once")
			assert.Zero(t, bell.rings)
			e.AddHigh(late)
			e.AddLow(new(idler))
			assert.Equal(t, 2, bell.rings, "a new one ends the sleep")
		case 2:
			assert.Equal(t, 1, late.arms, "the next sleep arms the new one")
			w.Finish()
		}
	}
	require.NoError(t, e.Wait(context.Background(), w))
	assert.Len(t, bell.sleeps, 2)
	assert.Equal(t, [2]int{2, 2}, [2]int{old.arms, old.disarms})
	assert.Equal(t, [2]int{2, 2}, [2]int{gone.arms, gone.disarms})
	assert.Equal(t, [2]int{1, 1}, [2]int{late.arms, late.disarms})
	rings := bell.rings
	e.Nudge()
	assert.Equal(t, rings, bell.rings, "awake, it needs no ring")
}

// What woke the driver is found at once, also when it is of low priority.
func TestEventThatEndsTheSleep(t *testing.T) {
	for _, low := range []bool{false, true} {
		bell := new(logBell)
		e := New(Config{Bell: bell})
		w := waiter(1)
		p := &idler{rings: true}
		bell.onSleep = func() { locked(e, func() { p.find = after(1, w.Signal) }) }
		if low {
			e.AddLow(p)
		} else {
			e.AddHigh(p)
		}
		require.NoError(t, wait(e, w))
		assert.Equal(t, 1, p.arms, "low priority: %v", low)
		assert.Equal(t, 1, p.disarms)
	}
}

// Each of these ends a driver's sleep at once. Time is synctest's: that the wait ends at
// the very instant of the cause shows that it was a ring and not the sleep's time.
func TestWhatWakesASleeper(t *testing.T) {
	const at = 10*time.Second + 12345*time.Nanosecond // within a sleep
	for _, test := range []struct {
		name string
		do   func(e *Engine, w *Waiter, p *idler, cancel func())
		want error
	}{
		{"signal", func(e *Engine, w *Waiter, _ *idler, _ func()) { locked(e, w.Signal) }, nil},
		{"finish", func(e *Engine, w *Waiter, _ *idler, _ func()) { locked(e, w.Finish) }, nil},
		{"stop", func(e *Engine, _ *Waiter, _ *idler, _ func()) { e.Stop(assert.AnError) }, assert.AnError},
		{"close", func(e *Engine, _ *Waiter, _ *idler, _ func()) { _ = e.Close() }, ErrStopped},
		{"the context's end", func(_ *Engine, _ *Waiter, _ *idler, cancel func()) { cancel() }, context.Canceled},
		{"an event that is rung for", func(e *Engine, w *Waiter, p *idler, _ func()) {
			locked(e, func() { p.find = after(1, w.Signal) })
			e.Ring()
		}, nil},
		{"a nudge", func(e *Engine, w *Waiter, p *idler, _ func()) {
			locked(e, func() {
				p.find = after(1, w.Signal)
				e.Nudge()
			})
		}, nil},
		{"a new poller", func(e *Engine, w *Waiter, _ *idler, _ func()) {
			locked(e, func() { e.AddHigh(&pollFunc{after(1, w.Signal)}) })
		}, nil},
		{"a new poller of low priority", func(e *Engine, w *Waiter, _ *idler, _ func()) {
			locked(e, func() { e.AddLow(&pollFunc{after(1, w.Signal)}) })
		}, nil},
		{"a new timer", func(e *Engine, w *Waiter, _ *idler, _ func()) {
			locked(e, func() { e.After(0, w.Signal) })
		}, nil},
		{"an event found by another goroutine's Poll", func(e *Engine, w *Waiter, p *idler, _ func()) {
			locked(e, func() {
				p.find = after(1, w.Signal)
				e.Poll()
			})
		}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := New(Config{})
				p := &idler{rings: true}
				w := waiter(1)
				locked(e, func() { e.AddHigh(p) })
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				start := time.Now()
				go func() {
					time.Sleep(at)
					test.do(e, w, p, cancel)
				}()
				e.Lock()
				err := e.Wait(ctx, w)
				e.Unlock()
				assert.Equal(t, test.want, err)
				assert.Equal(t, at, time.Since(start))
			})
		})
	}
}

// A timer ends the sleep when it is due, also one that was started during the sleep.
func TestTimerEndsTheSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Config{})
		w := waiter(2)
		start := time.Now()
		locked(e, func() { e.After(int64(30*time.Second+7), w.Signal) })
		go func() {
			time.Sleep(time.Second)
			locked(e, func() { e.After(int64(123*time.Microsecond), w.Signal) })
			time.Sleep(time.Millisecond)
			locked(e, func() { assert.False(t, w.Done()); assert.EqualValues(t, 1, w.need) })
		}()
		require.NoError(t, wait(e, w))
		assert.Equal(t, 30*time.Second+7, time.Since(start))
	})
}

// However long it waits, a waiting engine hardly turns.
func TestAWaitingEngineSleeps(t *testing.T) {
	for _, test := range []struct {
		name     string
		poller   Poller
		perSleep time.Duration
	}{
		{"on a bell that will be rung", &idler{rings: true}, 100 * time.Millisecond},
		{"in naps", new(pollFunc), time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const spin, patience = 100, 10 * time.Second
				e := New(Config{SpinTurns: spin})
				e.Lock()
				defer e.Unlock()
				e.AddHigh(test.poller)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				assert.Equal(t, context.DeadlineExceeded, e.Wait(ctx, waiter(1)))
				c := e.Counters()
				assert.InDelta(t, patience/test.perSleep, c.Sleeps, 1)
				assert.LessOrEqual(t, c.Turns, spin+yieldsPerLook+4*c.Sleeps+4)
				assert.LessOrEqual(t, c.Yields, uint64(yieldsPerLook+1))
			})
		})
	}
}

// The same on the bell and the clock that processes use.
func TestAWaitingEngineSleepsOnAPipe(t *testing.T) {
	bell, err := NewPipeBell()
	require.NoError(t, err)
	e := New(Config{Bell: bell, SpinTurns: 100, YieldNanos: 1000})
	var sleeps []Counters // as each of them began: later they depend on how far it is
	locked(e, func() { e.AddHigh(&idler{rings: true, onArm: func() { sleeps = append(sleeps, e.Counters()) }}) })
	w := waiter(1)
	done := spawn(func() error { return wait(e, w) })
	eventually(t, e, func() bool { return len(sleeps) > 4 && e.sleeping }, "the driver sleeps, and sleeps on")
	locked(e, func() {
		for i, c := range sleeps[1:] {
			before := sleeps[i]
			assert.Equal(t, before.Sleeps+1, c.Sleeps)
			assert.LessOrEqual(t, c.Turns-before.Turns, uint64(4))
			assert.Equal(t, before.Yields, c.Yields, "from sleep to sleep it does not yield")
		}
		w.Signal()
	})
	require.NoError(t, within(t, done, "the wait"))
	require.NoError(t, e.Close())
}
