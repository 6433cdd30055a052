package progress

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// timerEngine makes an engine, locked, and its clock.
func timerEngine(t *testing.T) (*Engine, *handClock) {
	clock := new(handClock)
	e := New(Config{Clock: clock})
	e.Lock()
	t.Cleanup(e.Unlock)
	return e, clock
}

// turn8 runs eight turns, one of which runs the timers.
func turn8(e *Engine) (events int) {
	for range timersEvery {
		events += e.Turn()
	}
	return events
}

func TestSystemClockAdvances(t *testing.T) {
	c := SystemClock()
	a := c.Now()
	time.Sleep(time.Millisecond)
	assert.GreaterOrEqual(t, c.Now()-a, int64(time.Millisecond))
}

func TestTimersRunInOrderOfTimeThenCreation(t *testing.T) {
	e, clock := timerEngine(t)
	var ran []string
	name := func(s string) func() { return func() { ran = append(ran, s) } }
	e.After(30, name("30"))
	e.After(10, name("10 first"))
	e.After(20, name("20"))
	e.After(10, name("10 second"))
	e.After(-5, name("at once"))
	e.After(10, name("10 third"))
	e.After(math.MaxInt64, name("never"))
	for _, step := range []struct {
		now  int64
		runs []string
	}{
		{0, []string{"at once"}},
		{9, nil},
		{10, []string{"10 first", "10 second", "10 third"}},
		{19, nil},
		{35, []string{"20", "30"}},
		{math.MaxInt64 - 1, nil},
	} {
		ran = nil
		clock.nanos.Store(step.now)
		assert.Equal(t, len(step.runs), turn8(e), "events at %d", step.now)
		assert.Equal(t, step.runs, ran, "at %d", step.now)
	}
}

func TestTimerAtEndOfTimeDoesNotOverflow(t *testing.T) {
	e, clock := timerEngine(t)
	clock.nanos.Store(1000)
	e.After(math.MaxInt64, func() { assert.Fail(t, "ran") })
	assert.Zero(t, turn8(e))
}

func TestStopTimerReportsWhetherItWasWaiting(t *testing.T) {
	e, clock := timerEngine(t)
	ran := 0
	count := func() { ran++ }
	a, b, c := e.After(1, count), e.After(2, count), e.After(3, count)
	assert.True(t, e.StopTimer(b))
	assert.False(t, e.StopTimer(b), "stopped before")
	clock.nanos.Store(10)
	assert.Equal(t, 2, turn8(e))
	assert.Equal(t, 2, ran)
	assert.False(t, e.StopTimer(a), "it has run")
	assert.False(t, e.StopTimer(c), "it has run")
}

func TestTimerStoppedByAnotherDueTimerDoesNotRun(t *testing.T) {
	e, clock := timerEngine(t)
	var second *Timer
	e.After(1, func() { assert.True(t, e.StopTimer(second)) })
	second = e.After(1, func() { assert.Fail(t, "ran") })
	clock.nanos.Store(1)
	assert.Equal(t, 1, turn8(e))
}

func TestManyTimersSomeStoppedRunInOrder(t *testing.T) {
	const timers, times = 400, 40
	e, clock := timerEngine(t)
	var ran, want []int
	var started [timers]*Timer
	at := func(i int) int { return i * 7919 % times } // each time occurs often, in no order
	for i := range started {
		started[i] = e.After(int64(at(i)), func() { ran = append(ran, i) })
		want = append(want, i)
	}
	want = slices.DeleteFunc(want, func(i int) bool { return i%3 == 0 && e.StopTimer(started[i]) })
	slices.SortStableFunc(want, func(i, j int) int { return cmp.Compare(at(i), at(j)) })
	for now := range int64(times) {
		clock.nanos.Store(now)
		turn8(e)
	}
	assert.Len(t, ran, timers*2/3)
	assert.Equal(t, want, ran)
}
