package mpitest

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/internal/observe"
)

// fakeRank is a rank whose progress the test sets.
type fakeRank struct {
	progress atomic.Uint64
	stopped  atomic.Bool
	cause    chan error // if not nil, gets the argument of Stop
}

func (f *fakeRank) Progress() uint64              { return f.progress.Load() }
func (f *fakeRank) Snapshot() observe.Snapshot    { return observe.Snapshot{Progress: f.Progress()} }
func (f *fakeRank) Leaks() observe.Leaks          { return observe.Leaks{} }
func (f *fakeRank) Unreceived() []observe.Message { return nil }

func (f *fakeRank) Stop(cause error) {
	f.stopped.Store(true)
	if f.cause != nil {
		f.cause <- cause
	}
}

// quietTB records a failure that is expected.
type quietTB struct {
	testing.TB
	text string
}

func (q *quietTB) Helper()           {}
func (q *quietTB) Error(args ...any) { q.text += args[0].(string) }

// TestPanicStopsRanksWithProcFailed: the other ranks get ErrProcFailed. In a real run, RunLocal may
// be the first to end their calls.
func TestPanicStopsRanksWithProcFailed(t *testing.T) {
	rank := fakeRank{cause: make(chan error, 1)}
	r := newRun(&quietTB{TB: t}, nil)
	r.attach(observe.Hook{}, []observe.Rank{&rank})
	rt := &rankTB{TB: r.t, run: r, prefix: "rank 0: "}
	var err error
	func() {
		defer rt.onPanic(&err)
		panic("boom")
	}()
	assert.ErrorIs(t, <-rank.cause, comm.ErrProcFailed)
	assert.EqualError(t, err, "peer process failed: rank 0: panic: boom")
}

// TestHangNeedsAllRanksWithoutProgress: Run reports a hang after 30 seconds without progress of any
// rank.
func TestHangNeedsAllRanksWithoutProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ranks := [3]fakeRank{}
		q := &quietTB{TB: t}
		r := newRun(q, nil)
		r.attach(observe.Hook{}, []observe.Rank{&ranks[0], &ranks[1], &ranks[2]})
		ended := make(chan error, 1)
		start := time.Now()
		var hung time.Duration
		go func() {
			for range 10 {
				time.Sleep(28 * time.Second)
				ranks[1].progress.Add(1)
			}
			for !ranks[1].stopped.Load() {
				time.Sleep(time.Second)
			}
			hung = time.Since(start)
			ended <- nil
		}()
		err, back := r.watch(ended)
		assert.NoError(t, err)
		assert.True(t, back)
		assert.InDelta(t, 310, hung.Seconds(), 5)
		assert.True(t, strings.HasPrefix(q.text, "hang: no rank has made progress for 30s\n"), q.text)
	})
}

// lockedRank is a rank that holds its lock until given is closed.
type lockedRank struct {
	fakeRank
	given chan struct{}
	asked atomic.Int32
}

func (l *lockedRank) Progress() uint64 {
	l.asked.Add(1)
	<-l.given
	return 1
}

// TestReportWaitsOnceForRanksThatHoldTheirLocks: the other ranks answer at once, and locked ranks
// are not asked again.
func TestReportWaitsOnceForRanksThatHoldTheirLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		given := make(chan struct{})
		defer close(given)
		two, other := [2]lockedRank{{given: given}, {given: given}}, fakeRank{}
		r := newRun(&quietTB{TB: t}, nil)
		r.attach(observe.Hook{}, []observe.Rank{&two[0], &other, &two[1]})
		start := time.Now()
		ranks, _ := r.reports()
		assert.Equal(t, askLimit, time.Since(start))
		for i, isLocked := range []bool{true, false, true} {
			assert.Equal(t, isLocked, ranks[i].Report.Locked, "rank %d", i)
			assert.Equal(t, isLocked, ranks[i].After == nil, "rank %d", i)
		}
		for i := range two {
			assert.EqualValues(t, 1, two[i].asked.Load())
		}
	})
}

func TestParseGoroutines(t *testing.T) {
	const profile = `goroutine profile: total 4
2 @ 0x47d96e 0x415619
# labels: {"mpitest":"0xc00", "mpitest rank":"3", "user":"x y"}
#	0x4dc216	main.T[...].block+0x16		/src/a b/main.go:4
#	0x4dc217	github.com/mpigo/mpigo/comm.(*Comm).recv+0x17	/src/main.go:7

1 @ 0x47d96e
# labels: {"mpitest":"0xc001", "mpitest rank":"1"}
#	0x4dc216	github.com/mpigo/mpigo/comm_test.f+0x16	/src/main.go:4

1 @ 0x442931
#	0x4c87b0	main.main+0xb0	/src/main.go:8
`
	mine := parseGoroutines(profile, "0xc00")
	require.Len(t, mine, 1)
	assert.Equal(t, stack{2, "3", []frame{
		{"main.T[...].block", "/src/a b/main.go:4"},
		{"github.com/mpigo/mpigo/comm.(*Comm).recv", "/src/main.go:7"},
	}}, mine[0])
	assert.True(t, mine[0].inLibrary())

	other := parseGoroutines(profile, "0xc001")
	require.Len(t, other, 1)
	assert.False(t, other[0].inLibrary(), "the library's tests are not the library")
}
