package progress

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stage is the counters of a driver at one of its turns.
type stage struct {
	turns          uint64
	yields, sleeps uint64
}

// driveStages runs a driver for the given number of turns; event returns whether a turn, counted
// from 1, has an event. Each turn advances the clock by nanosPerTurn. driveStages returns the
// counters at every turn.
func driveStages(cfg Config, turns, nanosPerTurn int, event func(turn int) bool) []stage {
	clock := new(handClock)
	clock.nanos.Store(1 << 50)
	cfg.Clock, cfg.Wakeup = clock, new(logWakeup)
	e := New(cfg)
	e.Lock()
	defer e.Unlock()
	w := waiter(1)
	var seen []stage
	e.AddPoller(&pollFunc{func() int {
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
		turn       int // the turn, from 1, at which the counters are compared
		wantYields uint64
		wantSleeps uint64
	}{
		{"spinning", Config{SpinTurns: 50, YieldNanos: long}, never, 51, 0, 0},
		{"the first yield", Config{SpinTurns: 50, YieldNanos: long}, never, 52, 1, 0},
		{"one yield between two turns", Config{SpinTurns: 50, YieldNanos: long}, never, 1051, 1000, 0},
		{"without spinning", Config{SpinTurns: 0, YieldNanos: long}, never, 1011, 1010, 0},
		{"negative spinning counts as none", Config{SpinTurns: -1, YieldNanos: long}, never, 1011, 1010, 0},
		{"an event restarts spinning", Config{SpinTurns: 50, YieldNanos: long}, at(100), 151, 49, 0},
		{"after that it yields again", Config{SpinTurns: 50, YieldNanos: long}, at(100), 161, 59, 0},

		// A turn takes 10 ns. The driver reads the clock after every 16 yields.
		{"not yielded long enough", Config{YieldNanos: 1000}, never, 112, 111, 0},
		{"yielded long enough: it polls, sleeps and polls", Config{YieldNanos: 1000}, never, 115, 112, 1},
		{"after a sleep without an event it sleeps after every turn", Config{YieldNanos: 1000}, never, 115 + 30, 112, 11},
		{"without yielding it yields 16 times all the same", Config{YieldNanos: 0}, never, 19, 16, 1},
		{"NoSleep", Config{YieldNanos: 0, NoSleep: true}, never, 10_001, 10_000, 0},
		{"yields to processes", Config{YieldNanos: 1000, Processor: SystemProcessor()}, never, 115, 112, 1},

		// Between two sleeps the driver makes three turns: after the sleep, in its loop, and after
		// arming.
		{"an event in the driver's loop: it yields again", Config{}, at(31), 46, 30, 5},
		{"an event before a sleep: it yields again", Config{}, at(30), 45, 30, 4},
		{"an event after a sleep: it yields again", Config{}, at(29), 44, 30, 4},
		{"after yielding again it sleeps again", Config{}, at(29), 48, 32, 5},
		{"an event in the driver's loop: it spins again", Config{SpinTurns: 50}, at(81), 131, 16, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := driveStages(test.cfg, test.turn, 10, test.event)[test.turn-1]
			require.EqualValues(t, test.turn-1, s.turns)
			assert.Equal(t, test.wantYields, s.yields, "yields")
			assert.Equal(t, test.wantSleeps, s.sleeps, "sleeps")
		})
	}
}

// A clock may have any origin; yielding may begin at time 0.
func TestIdleStagesWithAnyClockOrigin(t *testing.T) {
	for _, origin := range []int64{-1000, -5, 0, 1 << 60} {
		clock, wakeup := new(handClock), new(logWakeup)
		clock.nanos.Store(origin)
		e := New(Config{Clock: clock, Wakeup: wakeup, YieldNanos: 100})
		w := waiter(1)
		e.AddPoller(&pollFunc{func() int { clock.nanos.Add(5); return 0 }})
		wakeup.onSleep = func() { locked(e, w.Finish) }
		require.NoError(t, wait(e, w))
		assert.EqualValues(t, 1, e.Counters().Sleeps)
		assert.EqualValues(t, 32, e.Counters().Yields)
	}
}

func TestIdleFunctionReplacesThePolicy(t *testing.T) {
	var e *Engine
	w := waiter(1)
	idled := 0
	e = New(Config{Wakeup: new(logWakeup), Idle: func() {
		if idled++; idled == 1000 {
			locked(e, w.Signal) // Idle is called without the lock
		}
	}})
	events := 0
	e.AddPoller(&pollFunc{func() int {
		if e.Counters().Turns%2 == 0 {
			return 0
		}
		events++
		return 1
	}})
	require.NoError(t, wait(e, w))
	assert.Equal(t, 1000, idled)
	assert.InDelta(t, 1000, events, 1, "turns with an event: Idle must not follow them")
	assert.Zero(t, e.Counters().Yields)
	assert.Zero(t, e.Counters().Sleeps)
}

func TestSleepTime(t *testing.T) {
	const nap, whole = int64(time.Millisecond), int64(100 * time.Millisecond)
	long := []int64{nap, whole - nap} // with a poll in between
	short := []int64{nap}
	noIdler, promises, refuses := new(pollFunc), &idler{promises: true}, &idler{promises: false}
	for _, test := range []struct {
		name  string
		polls []Poller
		timer int64 // nanoseconds from now, 0 for none
		want  []int64
	}{
		{"nothing to poll", nil, 0, long},
		{"all promise to wake", []Poller{promises, promises}, 0, long},
		{"one is no Idler", []Poller{promises, noIdler}, 0, short},
		{"one refuses", []Poller{promises, refuses, promises}, 0, short},
		{"a timer before the end of the sleep", []Poller{promises}, nap + 5000, []int64{nap, 5000}},
		{"a timer before the end of the nap", []Poller{noIdler}, 5000, []int64{5000}},
		{"a timer before the end of the first part", []Poller{promises}, 5000, []int64{5000}},
		{"a timer after the sleep", []Poller{promises}, whole + 5000, long},
		{"a timer after the nap", []Poller{noIdler}, whole, short},
	} {
		t.Run(test.name, func(t *testing.T) {
			wakeup := new(logWakeup)
			e := New(Config{Wakeup: wakeup, Clock: new(handClock)})
			e.Lock()
			defer e.Unlock()
			for _, p := range test.polls {
				e.AddPoller(p)
			}
			if test.timer != 0 {
				e.After(test.timer, func() { assert.Fail(t, "ran") })
			}
			w := waiter(1)
			wakeup.onSleep = func() {
				if len(wakeup.sleeps) == len(test.want) {
					locked(e, w.Finish)
				}
			}
			require.NoError(t, e.Wait(context.Background(), w))
			assert.Equal(t, test.want, wakeup.sleeps)
		})
	}
	for _, p := range []*idler{promises, refuses} {
		assert.NotZero(t, p.arms)
		assert.Equal(t, p.arms, p.disarms)
	}
}

// No wakeup comes for an event from just before the flag was raised. The poll after arming must
// find it.
func TestEventBeforeFlagIsUpPreventsSleep(t *testing.T) {
	wakeup := new(logWakeup)
	e := New(Config{Wakeup: wakeup})
	w := waiter(1)
	arrived := false
	p := &idler{promises: true, onArm: func() { arrived = true }}
	p.find = func() int {
		if !arrived {
			return 0
		}
		w.Signal()
		return 1
	}
	e.AddPoller(p)
	require.NoError(t, wait(e, w))
	assert.Empty(t, wakeup.sleeps)
	assert.Equal(t, [2]int{1, 1}, [2]int{p.arms, p.disarms})
	assert.EqualValues(t, 1, e.Counters().Events)
}

// The poll after arming may miss an event that was stored while the flag was stored. That costs a
// nap, not a long sleep.
func TestEventMissedByPollAfterArmingCostsANap(t *testing.T) {
	wakeup := new(logWakeup)
	e := New(Config{Wakeup: wakeup})
	w := waiter(1)
	p := &idler{promises: true}
	wakeup.onSleep = func() { locked(e, func() { p.find = after(1, w.Signal) }) }
	e.AddPoller(p)
	require.NoError(t, wait(e, w))
	assert.Equal(t, []int64{int64(time.Millisecond)}, wakeup.sleeps)
	assert.Equal(t, [2]int{1, 1}, [2]int{p.arms, p.disarms})
}

func TestAddPollerDuringSleepWakesAndArms(t *testing.T) {
	wakeup := new(logWakeup)
	e := New(Config{Wakeup: wakeup})
	old, added := &idler{promises: true}, &idler{promises: true}
	e.Lock()
	defer e.Unlock()
	e.AddPoller(old)
	w := waiter(1)
	wakeup.onSleep = func() {
		e.Lock()
		defer e.Unlock()
		switch len(wakeup.sleeps) {
		case 1:
			assert.Zero(t, wakeup.wakes)
			e.AddPoller(added)
			e.AddPoller(new(idler))
			assert.Equal(t, 2, wakeup.wakes, "each added poller ends the sleep")
		case 2:
			assert.Equal(t, 1, added.arms, "the next sleep arms the added poller")
			w.Finish()
		}
	}
	require.NoError(t, e.Wait(context.Background(), w))
	assert.Len(t, wakeup.sleeps, 2)
	assert.Equal(t, [2]int{2, 2}, [2]int{old.arms, old.disarms})
	assert.Equal(t, [2]int{1, 1}, [2]int{added.arms, added.disarms})
	wakes := wakeup.wakes
	e.Wake()
	assert.Equal(t, wakes, wakeup.wakes, "Wake of an engine that does not sleep")
}

// Each of these ends a driver's sleep at once. The time is synctest's: the wait ends at the instant
// of the cause, so the cause ended the sleep, not its time limit.
func TestSleeperIsWoken(t *testing.T) {
	const at = 10*time.Second + 12345*time.Nanosecond // during a sleep
	for _, test := range []struct {
		name string
		do   func(e *Engine, w *Waiter, p *idler, cancel func())
		want error
	}{
		{"signal", func(e *Engine, w *Waiter, _ *idler, _ func()) { locked(e, w.Signal) }, nil},
		{"finish", func(e *Engine, w *Waiter, _ *idler, _ func()) { locked(e, w.Finish) }, nil},
		{"stop", func(e *Engine, _ *Waiter, _ *idler, _ func()) { e.Stop(assert.AnError) }, assert.AnError},
		{"close", func(e *Engine, _ *Waiter, _ *idler, _ func()) { _ = e.Close() }, ErrStopped},
		{"end of the context", func(_ *Engine, _ *Waiter, _ *idler, cancel func()) { cancel() }, context.Canceled},
		{"an event whose sender wakes the engine", func(e *Engine, w *Waiter, p *idler, _ func()) {
			locked(e, func() { p.find = after(1, w.Signal) })
			e.cfg.Wakeup.Wake()
		}, nil},
		{"Wake", func(e *Engine, w *Waiter, p *idler, _ func()) {
			locked(e, func() {
				p.find = after(1, w.Signal)
				e.Wake()
			})
		}, nil},
		{"AddPoller", func(e *Engine, w *Waiter, _ *idler, _ func()) {
			locked(e, func() { e.AddPoller(&pollFunc{after(1, w.Signal)}) })
		}, nil},
		{"a new timer", func(e *Engine, w *Waiter, _ *idler, _ func()) {
			locked(e, func() { e.After(0, w.Signal) })
		}, nil},
		{"an event that another goroutine's Poll finds", func(e *Engine, w *Waiter, p *idler, _ func()) {
			locked(e, func() {
				p.find = after(1, w.Signal)
				e.Poll()
			})
		}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := New(Config{})
				p := &idler{promises: true}
				w := waiter(1)
				locked(e, func() { e.AddPoller(p) })
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				start := time.Now()
				go func() {
					time.Sleep(at)
					test.do(e, w, p, cancel)
				}()
				assert.Equal(t, test.want, waitIn(ctx, e, w))
				assert.Equal(t, at, time.Since(start))
			})
		})
	}
}

// A due timer ends the sleep, even a timer that was made during the sleep.
func TestTimerEndsSleep(t *testing.T) {
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

// A long wait makes few turns.
func TestLongWaitSleeps(t *testing.T) {
	for _, test := range []struct {
		name     string
		poller   Poller
		perSleep time.Duration
	}{
		{"with an Idler that promises", &idler{promises: true}, 100 * time.Millisecond},
		{"in naps, with a Poller that is no Idler", new(pollFunc), time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const spin, patience = 100, 10 * time.Second
				e := New(Config{SpinTurns: spin})
				locked(e, func() { e.AddPoller(test.poller) })
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				assert.Equal(t, context.DeadlineExceeded, waitIn(ctx, e, waiter(1)))
				c := e.Counters()
				assert.InDelta(t, patience/test.perSleep, c.Sleeps, 1)
				assert.LessOrEqual(t, c.Turns, spin+yieldsPerClockRead+4*c.Sleeps+4)
				assert.LessOrEqual(t, c.Yields, uint64(yieldsPerClockRead+1))
			})
		})
	}
}

// TestLongWaitSleeps uses the Wakeup and the clock that processes use.
func TestLongWaitSleepsOnPipe(t *testing.T) {
	wakeup, err := NewPipeWakeup()
	require.NoError(t, err)
	e := New(Config{Wakeup: wakeup, SpinTurns: 100, YieldNanos: 1000})
	var sleeps []Counters // at the beginning of each sleep
	locked(e, func() { e.AddPoller(&idler{promises: true, onArm: func() { sleeps = append(sleeps, e.Counters()) }}) })
	w := waiter(1)
	done := spawn(func() error { return wait(e, w) })
	eventually(t, e, func() bool { return len(sleeps) > 4 && e.sleeping }, "the driver sleeps several times")
	locked(e, func() {
		for i, c := range sleeps[1:] {
			before := sleeps[i]
			assert.Equal(t, before.Sleeps+1, c.Sleeps)
			assert.LessOrEqual(t, c.Turns-before.Turns, uint64(4))
			assert.Equal(t, before.Yields, c.Yields, "no yields between two sleeps")
		}
		w.Signal()
	})
	require.NoError(t, within(t, done, "the wait"))
	require.NoError(t, e.Close())
}
