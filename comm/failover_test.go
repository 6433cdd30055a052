package comm_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

// TestProgramsSurviveRailFailures: no call of a program fails, and all bytes are right, while rails
// fail and come back.
func TestProgramsSurviveRailFailures(t *testing.T) {
	const ranks, rails, rounds = 3, 2, 60
	var fabric *loop.Fabric
	over := make(chan struct{})
	var disturber sync.WaitGroup
	opts := []comm.Option{
		comm.WithFabric(loop.Config{Rails: rails, Slots: 8, Rail: []loop.RailConfig{{MaxSendBytes: 4096}, {LatencyNanos: 300, MaxSendBytes: 4096}}}),
		comm.WithSetting("pml.notices", "false"),
		comm.OnFabric(func(f *loop.Fabric) {
			fabric = f
			disturber.Go(func() { disturb(t, f, over) })
		}),
	}
	var mu sync.Mutex
	var sum comm.Stats
	run(t, ranks, func(t rank, w *comm.Comm) {
		me := w.Rank()
		next, prev := (me+1)%ranks, (me+ranks-1)%ranks
		big, got := make([]byte, 300_000), make([]byte, 300_000)
		psend, precv := must(comm.SendInit(w, big, next, 5)), must(comm.RecvInit(w, got, prev, 5))
		// The disturber may begin late.
		for round, disturbed := 0, false; round < rounds || !disturbed; round++ {
			for _, n := range []int{0, 8, 200, 3000, 40_000} {
				b := pattern(n, me+round)
				st := must(comm.SendrecvReplace(w, b, next, n, prev, n))
				require.EqualValues(t, n, st.Bytes)
				require.Equal(t, pattern(n, prev+round), b)
			}
			copy(big, pattern(len(big), me+round))
			require.NoError(t, request.StartAll(precv, psend))
			require.NoError(t, request.WaitAll(psend, precv))
			require.Equal(t, pattern(len(big), prev+round), got)
			sum := []int{me + round}
			require.NoError(t, comm.Allreduce(w, nil, sum, comm.Sum))
			require.Equal(t, ranks*(ranks-1)/2+ranks*round, sum[0])
			b := make([]byte, 10_000)
			if me == round%ranks {
				b = pattern(len(b), round)
			}
			require.NoError(t, comm.Bcast(w, b, round%ranks))
			require.Equal(t, pattern(len(b), round), b)
			st := w.Stats()
			seen := []uint64{st.RailsFailed, st.RailsReturned}
			require.NoError(t, comm.Allreduce(w, nil, seen, comm.Sum))
			disturbed = seen[0] > 0 && seen[1] > 0
		}
		require.NoError(t, psend.Free())
		require.NoError(t, precv.Free())
		require.NoError(t, w.Barrier())
		if me == 0 {
			close(over)
			disturber.Wait()
		}
		require.NoError(t, w.Barrier())
		mu.Lock()
		defer mu.Unlock()
		st := w.Stats()
		sum.RailsFailed += st.RailsFailed
		sum.RailsReturned += st.RailsReturned
		assert.Zero(t, st.Malformed)
		assert.Zero(t, st.Illegal)
		assert.NotEmpty(t, w.Rails())
	}, opts...)
	require.NotNil(t, fabric)
	t.Logf("%d failures, %d returns", sum.RailsFailed, sum.RailsReturned)
	require.Positive(t, sum.RailsFailed)
	require.Positive(t, sum.RailsReturned)
}

// disturb breaks and repairs links, ports and rails until over is closed, and then repairs all of
// them.
func disturb(t *testing.T, f *loop.Fabric, over chan struct{}) {
	rng := rand.New(rand.NewPCG(1, 2))
	reviveAll := func() {
		for rail := range f.Rails() {
			assert.NoError(t, f.ReviveRail(rail))
			for a := range f.Ranks() {
				for b := range a {
					assert.NoError(t, f.ReviveLane(a, b, rail))
				}
			}
		}
	}
	defer reviveAll()
	for {
		select {
		case <-over:
			return
		case <-time.After(time.Duration(rng.IntN(3)) * time.Millisecond):
		}
		a, rail := rng.IntN(f.Ranks()), rng.IntN(f.Rails())
		b := (a + 1 + rng.IntN(f.Ranks()-1)) % f.Ranks()
		switch rng.IntN(5) {
		case 0, 1:
			assert.NoError(t, f.FailLane(a, b, rail, loop.Cut{HalfOpen: rng.IntN(2) == 0}))
		case 2:
			assert.NoError(t, f.FailPort(a, rail, loop.Lose))
		default:
			reviveAll()
		}
	}
}

// TestFinalizeWithDeadRailReportsUnreceivedSend: attempts to bring a rail back do not keep Finalize
// from giving up a send that no rank receives.
func TestFinalizeWithDeadRailReportsUnreceivedSend(t *testing.T) {
	var fabric *loop.Fabric
	err := tryRun(t, 2, func(t rank, w *comm.Comm) {
		check(w.Barrier())
		if w.Rank() == 0 {
			assert.NoError(t, fabric.FailLane(0, 1, 0, loop.Cut{}))
			assert.NoError(t, must(comm.Isend(w, make([]byte, 1<<20), 1, 7)).Free())
		}
	}, comm.WithFabric(loop.Config{Rails: 2}), comm.WithSetting("pml.notices", "false"), comm.OnFabric(func(f *loop.Fabric) { fabric = f }))
	assert.ErrorIs(t, err, comm.ErrPending)
}

// TestFinalizeWaitsGraceTimeForRail: messages that were sent and not delivered have the whole grace
// time in Finalize too.
func TestFinalizeWaitsGraceTimeForRail(t *testing.T) {
	fail := func(t *testing.T, reviveAfter time.Duration, grace string) error {
		t.Parallel()
		var fabric *loop.Fabric
		return tryRun(t, 2, func(t rank, w *comm.Comm) {
			check(w.Barrier())
			if w.Rank() == 0 {
				return
			}
			assert.NoError(t, fabric.FailLane(0, 1, 0, loop.Cut{}))
			for w.Rails()[0].State == "up" {
				must2(w.Iprobe(0, 1))
			}
			if reviveAfter > 0 {
				time.AfterFunc(reviveAfter, func() { assert.NoError(t, fabric.ReviveLane(0, 1, 0)) })
			}
			check(must(comm.Isend(w, make([]byte, 3000), 0, 7)).Free())
		}, comm.WithSetting("pml.notices", "false"), comm.WithSetting("pml.grace", grace), comm.OnFabric(func(f *loop.Fabric) { fabric = f }))
	}
	t.Run("it comes back", func(t *testing.T) { assert.NoError(t, fail(t, 2500*time.Millisecond, "10s")) })
	t.Run("it does not", func(t *testing.T) {
		err := fail(t, 0, "2500ms")
		assert.ErrorIs(t, err, comm.ErrUnreachable)
		assert.ErrorIs(t, err, btl.ErrInjected)
		assert.NotErrorIs(t, err, comm.ErrPending)
	})
}

// TestCallsWithoutRailsFailAfterGraceTime: every kind of call ends with an error that names the
// rank and the cause. The program goes on with the other ranks.
func TestCallsWithoutRailsFailAfterGraceTime(t *testing.T) {
	for _, c := range append(comm.WaitingCalls(),
		comm.WaitingCall{Name: "barrier", Call: func(w *comm.Comm, _ int) error { return w.Barrier() }},
	) {
		t.Run(c.Name, func(t *testing.T) {
			var fabric *loop.Fabric
			met, done := make(chan struct{}), make(chan struct{})
			barrier := c.Name == "barrier"
			err := tryRun(t, 3, func(t rank, w *comm.Comm) {
				check(w.Barrier())
				switch w.Rank() {
				case 0:
					<-met
					assert.NoError(t, fabric.FailLane(0, 1, 0, loop.Cut{}))
					err := c.Call(w, 1)
					close(done)
					assert.ErrorIs(t, err, comm.ErrUnreachable)
					assert.ErrorIs(t, err, btl.ErrInjected)
					var e *comm.Error
					if assert.ErrorAs(t, err, &e) && !barrier {
						assert.Equal(t, 1, e.Peer)
						check(comm.Send(w, make([]byte, 10), 2, 7))
					}
				case 1: // alive, but unreachable
					close(met)
					<-done
				case 2:
					if !barrier {
						recv[byte](w, 10, 0, 7)
						return
					}
					<-met
					if err := w.Barrier(); !errors.Is(err, comm.ErrUnreachable) {
						assert.ErrorIs(t, err, comm.ErrProcFailed)
					}
				}
			}, comm.WithSetting("pml.grace", "30ms"), comm.WithSetting("pml.notices", "false"), comm.OnFabric(func(f *loop.Fabric) { fabric = f }))
			if !barrier { // it leaves rank 1 behind, which no rank can reach
				assert.NoError(t, err)
			}
		})
	}
}
