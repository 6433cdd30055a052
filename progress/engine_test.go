package progress

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTurnPollsEveryTimeAndRunsTimersEveryEighth(t *testing.T) {
	e := New(Config{})
	e.Lock()
	defer e.Unlock()
	var polls, timers int
	// A timer that makes itself again, due at once, must not keep the turn from ending.
	var again func()
	again = func() { timers++; e.After(0, again) }
	e.After(0, again)
	e.AddPoller(&pollFunc{func() int { polls++; return 2 }})
	events := 0
	for turn := 1; turn <= 24; turn++ {
		events += e.Turn()
		assert.Equal(t, turn, polls)
		assert.Equal(t, turn/8, timers)
	}
	assert.Equal(t, 24*2+3, events)
	assert.Equal(t, Counters{Turns: 24, Events: 24*2 + 3}, e.Counters())
}

func TestAddFromProgressTakesEffectNextTurn(t *testing.T) {
	e := New(Config{})
	e.Lock()
	defer e.Unlock()
	added := 0
	e.AddPoller(&pollFunc{after(1, func() { e.AddPoller(&pollFunc{func() int { added++; return 1 }}) })})
	e.Turn()
	assert.LessOrEqual(t, added, 1)
	added = 0
	e.Turn()
	assert.Equal(t, 1, added)
}

func TestCountCompletionCountsFromOne(t *testing.T) {
	e := New(Config{})
	e.Lock()
	defer e.Unlock()
	for i := range uint64(5) {
		assert.Equal(t, i+1, e.CountCompletion(false))
	}
	assert.Equal(t, Counters{Done: 5}, e.Counters())
}

func TestPollWithoutEventsYields(t *testing.T) {
	for _, test := range []struct {
		name   string
		spin   int
		event  int // polls per event, 0 for no events
		polls  int
		yields uint64
	}{
		{"no spinning: every poll yields", 0, 0, 100, 100},
		{"every (spin/4 + 1)th poll yields", 400, 0, 1010, 10},
		{"too few polls for a yield", 400, 0, 100, 0},
		{"an event restarts the count", 400, 100, 1000, 0},
		{"events rarer than yields", 400, 102, 1020, 10},
		{"an event at every poll", 0, 1, 100, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := New(Config{SpinTurns: test.spin})
			e.Lock()
			defer e.Unlock()
			polls := 0
			e.AddPoller(&pollFunc{func() int {
				if polls++; test.event > 0 && polls%test.event == 0 {
					return 1
				}
				return 0
			}})
			for range test.polls {
				e.Poll()
			}
			assert.Equal(t, test.yields, e.Counters().Yields)
			assert.EqualValues(t, test.polls, e.Counters().Turns)
		})
	}
}

// Simulated time must also pass for callers of Test.
func TestPollWithoutEventsCallsIdle(t *testing.T) {
	idled := 0
	found := 0
	var e *Engine
	e = New(Config{Idle: func() { locked(e, func() { idled++ }) }})
	e.Lock()
	defer e.Unlock()
	e.AddPoller(&pollFunc{func() int { return found }})
	e.Poll()
	e.Poll()
	assert.Equal(t, 2, idled)
	found = 1
	e.Poll()
	assert.Equal(t, 2, idled, "Idle calls after a poll with an event")
	assert.Zero(t, e.Counters().Yields)
}

func TestWaiterCountsDown(t *testing.T) {
	type step struct {
		do   func(w *Waiter)
		done bool
	}
	signal := func(w *Waiter) { w.Signal() }
	finish := func(w *Waiter) { w.Finish() }
	for _, test := range []struct {
		name  string
		need  int
		steps []step
	}{
		{"nothing", 0, []step{{nil, true}, {signal, true}, {finish, true}}},
		{"one", 1, []step{{nil, false}, {signal, true}, {signal, true}}},
		{"three", 3, []step{{nil, false}, {signal, false}, {signal, false}, {signal, true}}},
		{"finish", 3, []step{{signal, false}, {finish, true}, {signal, true}}},
		{"finish twice", 3, []step{{finish, true}, {finish, true}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := New(Config{})
			e.Lock()
			defer e.Unlock()
			w := e.GetWaiter(test.need)
			for i, step := range test.steps {
				if step.do != nil {
					step.do(w)
				}
				assert.Equal(t, step.done, w.Done(), "step %d", i)
			}
			assert.NoError(t, e.Wait(context.Background(), w))
			e.PutWaiter(w)
			assert.Same(t, w, e.GetWaiter(1), "the pool gives the same waiter again")
			assert.False(t, w.Done())
		})
	}
}

func TestCloseTwiceClosesWakeupOnce(t *testing.T) {
	wakeup := new(logWakeup)
	e := New(Config{Wakeup: wakeup})
	assert.NoError(t, e.Close())
	assert.NoError(t, e.Close())
	assert.Equal(t, 1, wakeup.closed)
	assert.ErrorIs(t, wait(e, waiter(1)), ErrStopped)
}

func TestWakeWithoutSleeperDoesNothing(t *testing.T) {
	wakeup := new(logWakeup)
	e := New(Config{Wakeup: wakeup})
	locked(e, e.Wake)
	assert.Zero(t, wakeup.wakes)
}

// After the first wait, no wait allocates.
func TestWaitAllocatesNothing(t *testing.T) {
	e := New(Config{})
	e.Lock()
	defer e.Unlock()
	var w *Waiter
	var polls atomic.Int64
	e.AddPoller(&pollFunc{func() int {
		if polls.Add(1)%3 != 0 || w == nil {
			return 0
		}
		w.Signal()
		return 1
	}})
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		w = e.GetWaiter(1)
		assert.NoError(t, e.Wait(context.Background(), w))
		e.PutWaiter(w)
	}))
}

func TestSleepAllocatesNothing(t *testing.T) {
	e := New(Config{})
	e.Lock()
	defer e.Unlock()
	var w *Waiter
	polls := 0
	e.AddPoller(&idler{promises: true, pollFunc: pollFunc{func() int {
		if polls++; polls < 25 { // past the first sleep
			return 0
		}
		w.Signal()
		return 1
	}}, onArm: e.cfg.Wakeup.Wake})
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		polls = 0
		w = e.GetWaiter(1)
		assert.NoError(t, e.Wait(context.Background(), w))
		e.PutWaiter(w)
	}))
	assert.NotZero(t, e.Counters().Sleeps)
}
