package calls

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sums is a sink that adds up.
type sums struct {
	weight, timed          uint64
	nanos, waiting, moving int64
	starts                 []int64
}

func (s *sums) Ended(c *Call) {
	s.weight += c.Weight
	s.timed++
	s.nanos += int64(c.Weight) * c.Nanos
	s.waiting += c.Waiting
	s.moving += c.Moving
	s.starts = append(s.starts, c.Start)
}

// call makes a call as the fast paths do.
func call(r *Recorder, id ID, bytes int) {
	if r.Count(id, bytes) {
		r.End(r.Begin(id, 1, 0, bytes))
	}
}

func TestFrequentCallsAreSampledAndWeightsCoverAll(t *testing.T) {
	var s sums
	r := New(&s, false)
	const n = 1_000_000
	began := time.Now()
	for range n {
		call(r, Send, 8)
	}
	took := time.Since(began)
	require.Equal(t, []Count{{Send, 4, n}}, r.Counts(), "the count is exact")
	require.InDelta(t, n, s.weight, 2*maxInterval, "all calls but those after the last sample")
	require.Less(t, s.timed, uint64(100+4*took.Nanoseconds()/SampleNanos), "about one sample in SampleNanos")
}

func TestRareCallsAreAllTimed(t *testing.T) {
	var s sums
	r := New(&s, false)
	for range 20 {
		call(r, Send, 8)
		time.Sleep(2 * SampleNanos)
	}
	require.EqualValues(t, 20, s.timed)
	require.EqualValues(t, 20, s.weight)
}

func TestWithAllEachCallIsTimed(t *testing.T) {
	var s sums
	r := New(&s, true)
	for range 1000 {
		call(r, Recv, 100)
	}
	require.EqualValues(t, 1000, s.timed)
	require.EqualValues(t, 1000, s.weight)
	require.IsNonDecreasing(t, s.starts)
}

func TestLongWaitOfCallThatIsNoSampleIsRecorded(t *testing.T) {
	var s sums
	r := New(&s, false)
	for !r.IsDue(Send, 8) || s.timed < 10 { // until samples are far apart
		call(r, Send, 8)
	}
	call(r, Send, 8)
	for r.IsDue(Send, 8) {
		call(r, Send, 8)
	}
	before := s
	require.False(t, r.Count(Send, 8))
	c := r.Begin(Send, 1, 0, 8)
	r.Waits()
	time.Sleep(3 * time.Millisecond)
	r.Transfer(true)
	time.Sleep(2 * time.Millisecond)
	r.Transfer(false)
	r.Waited()
	r.End(c)
	require.Equal(t, before.timed+1, s.timed)
	require.Equal(t, before.weight+1, s.weight, "it stands for itself")
	require.GreaterOrEqual(t, s.waiting, 3*time.Millisecond.Nanoseconds())
	require.GreaterOrEqual(t, s.moving, 2*time.Millisecond.Nanoseconds())
}

// A call of another goroutine begins and ends while the first one waits without the lock.
func TestCurrentCallIsThatOfTheGoroutineThatHoldsTheLock(t *testing.T) {
	r := New(&sums{}, true)
	r.Count(Recv, 0)
	a := r.Begin(Recv, 0, 0, 0)
	r.Waits()
	r.Count(Send, 0)
	b := r.Begin(Send, 0, 0, 0)
	require.NotEqual(t, a.Track, b.Track, "they overlap")
	require.Same(t, b, r.Current())
	r.End(b)
	r.Resume(a)
	require.Same(t, a, r.Current())
	r.End(a)
	require.Nil(t, r.Current())
}

func TestCallsAllocateNothing(t *testing.T) {
	for _, all := range []bool{false, true} {
		s := sums{starts: make([]int64, 0, 1<<16)}
		r := New(&s, all)
		require.Zero(t, testing.AllocsPerRun(1000, func() {
			call(r, Send, 8)
			r.End(r.CountAndBegin(WaitAll, -1, -1, 0))
		}))
	}
}
