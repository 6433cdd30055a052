package comm_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/comm"
)

// TestProgramsSurviveRailFailures: programs with all kinds of calls notice nothing while rails fail
// and come back.
func TestProgramsSurviveRailFailures(t *testing.T) {
	const ranks, rails, rounds = 3, 2, 60
	var fabric *loop.Fabric
	over := make(chan struct{})
	var killer sync.WaitGroup
	opts := []comm.Option{
		comm.WithFabric(loop.Config{Rails: rails, Slots: 8, Rail: []loop.RailConfig{{MaxSendBytes: 4096}, {LatencyNanos: 300, MaxSendBytes: 4096}}}),
		comm.WithSetting("pml.notices", "false"),
		comm.OnFabric(func(f *loop.Fabric) {
			fabric = f
			killer.Go(func() { disturb(t, f, over) })
		}),
	}
	var mu sync.Mutex
	var sum comm.Stats
	run(t, ranks, func(t rank, w *comm.Comm) {
		me := w.Rank()
		next, prev := (me+1)%ranks, (me+ranks-1)%ranks
		big := make([]byte, 300_000)
		psend, err := comm.SendInit(w, big, next, 5)
		require.NoError(t, err)
		got := make([]byte, len(big))
		precv, err := comm.RecvInit(w, got, prev, 5)
		require.NoError(t, err)
		for round := range rounds {
			for _, n := range []int{0, 8, 200, 3000, 40_000} {
				b := pattern(n, me+round)
				st, err := comm.SendrecvReplace(w, b, next, n, prev, n)
				require.NoError(t, err)
				require.EqualValues(t, n, st.Bytes)
				require.Equal(t, pattern(n, prev+round), b)
			}
			copy(big, pattern(len(big), me+round))
			require.NoError(t, precv.Start())
			require.NoError(t, psend.Start())
			_, err := psend.Wait()
			require.NoError(t, err)
			_, err = precv.Wait()
			require.NoError(t, err)
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
		}
		require.NoError(t, psend.Free())
		require.NoError(t, precv.Free())
		require.NoError(t, w.Barrier())
		if me == 0 {
			close(over)
			killer.Wait()
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
	mend := func() {
		for rail := range f.Rails() {
			assert.NoError(t, f.ReviveRail(rail))
			for a := range f.Ranks() {
				for b := range a {
					assert.NoError(t, f.ReviveLane(a, b, rail))
				}
			}
		}
	}
	defer mend()
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
			mend()
		}
	}
}

// TestFinalizeWithDeadRailReportsUnreceivedSend: attempts to bring a rail back do not keep Finalize
// from giving up a send that no rank receives.
func TestFinalizeWithDeadRailReportsUnreceivedSend(t *testing.T) {
	var fabric *loop.Fabric
	err := comm.RunLocal(2, func(w *comm.Comm) error {
		if err := w.Barrier(); err != nil {
			return err
		}
		if w.Rank() == 0 {
			assert.NoError(t, fabric.FailLane(0, 1, 0, loop.Cut{}))
			r, err := comm.Isend(w, make([]byte, 1<<20), 1, 7)
			if err != nil {
				return err
			}
			assert.NoError(t, r.Free())
		}
		return w.Finalize()
	}, comm.WithFabric(loop.Config{Rails: 2}), comm.WithSetting("pml.notices", "false"), comm.OnFabric(func(f *loop.Fabric) { fabric = f }))
	assert.ErrorIs(t, err, comm.ErrPending)
}

// TestFinalizeWaitsGraceTimeForRail: messages that were sent and not delivered have the whole grace
// time in Finalize too.
func TestFinalizeWaitsGraceTimeForRail(t *testing.T) {
	away := func(t *testing.T, mendAfter time.Duration, grace string) error {
		t.Parallel()
		var fabric *loop.Fabric
		return comm.RunLocal(2, func(w *comm.Comm) error {
			if err := w.Barrier(); err != nil || w.Rank() == 0 {
				return err
			}
			assert.NoError(t, fabric.FailLane(0, 1, 0, loop.Cut{}))
			for w.Rails()[0].State == "up" {
				if _, _, err := w.Iprobe(0, 1); err != nil {
					return err
				}
			}
			if mendAfter > 0 {
				time.AfterFunc(mendAfter, func() { assert.NoError(t, fabric.ReviveLane(0, 1, 0)) })
			}
			r, err := comm.Isend(w, make([]byte, 3000), 0, 7)
			if err != nil {
				return err
			}
			return r.Free()
		}, comm.WithSetting("pml.notices", "false"), comm.WithSetting("pml.grace", grace), comm.OnFabric(func(f *loop.Fabric) { fabric = f }))
	}
	t.Run("it comes back", func(t *testing.T) { assert.NoError(t, away(t, 2500*time.Millisecond, "10s")) })
	t.Run("it does not", func(t *testing.T) {
		err := away(t, 0, "2500ms")
		assert.ErrorIs(t, err, comm.ErrUnreachable)
		assert.ErrorIs(t, err, btl.ErrInjected)
		assert.NotErrorIs(t, err, comm.ErrPending)
	})
}

// TestCallsWithoutRailsFailAfterGraceTime: every kind of call ends with an error that names the
// rank and the cause. The program goes on with the other ranks.
func TestCallsWithoutRailsFailAfterGraceTime(t *testing.T) {
	calls := map[string]func(w *comm.Comm) error{
		"send":   func(w *comm.Comm) error { return comm.Send(w, make([]byte, 100_000), 1, 0) },
		"small":  func(w *comm.Comm) error { return comm.Ssend(w, []byte{1}, 1, 0) },
		"recv":   func(w *comm.Comm) error { _, err := comm.Recv(w, make([]byte, 1), 1, 0); return err },
		"probe":  func(w *comm.Comm) error { _, err := w.Probe(1, 0); return err },
		"mprobe": func(w *comm.Comm) error { _, _, err := w.Mprobe(1, 0); return err },
		"iprobe": func(w *comm.Comm) error {
			for {
				if _, _, err := w.Iprobe(1, 0); err != nil {
					return err
				}
			}
		},
		"sendrecv": func(w *comm.Comm) error {
			_, err := comm.Sendrecv(w, make([]byte, 100_000), 1, 0, make([]byte, 1), 1, 0)
			return err
		},
		"isend": func(w *comm.Comm) error {
			r, err := comm.Isend(w, make([]byte, 100_000), 1, 0)
			if err == nil {
				_, err = r.Wait()
			}
			return err
		},
		"irecv": func(w *comm.Comm) error {
			r, err := comm.Irecv(w, make([]byte, 1), 1, 0)
			for err == nil {
				_, _, err = r.Test()
			}
			return err
		},
		"persistent receive": func(w *comm.Comm) error {
			r, err := comm.RecvInit(w, make([]byte, 1), 1, 0)
			if err != nil {
				return err
			}
			for range 2 { // again once the rank is lost
				assert.NoError(t, r.Start())
				_, err = r.Wait()
				assert.ErrorIs(t, err, comm.ErrUnreachable)
			}
			return errors.Join(err, r.Free())
		},
		"barrier": func(w *comm.Comm) error { return w.Barrier() },
		"persistent": func(w *comm.Comm) error {
			r, err := comm.SendInit(w, make([]byte, 100_000), 1, 0)
			if err != nil {
				return err
			}
			err = r.Start()
			if err == nil {
				_, err = r.Wait()
			}
			return errors.Join(err, r.Free())
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			var fabric *loop.Fabric
			met, done := make(chan struct{}), make(chan struct{})
			err := comm.RunLocal(3, func(w *comm.Comm) error {
				if err := w.Barrier(); err != nil {
					return err
				}
				switch w.Rank() {
				case 1: // alive, but unreachable
					close(met)
					<-done
					return nil
				case 2:
					if name != "barrier" {
						_, err := comm.Recv(w, make([]byte, 10), 0, 7)
						return err
					}
					<-met
					err := w.Barrier()
					if !errors.Is(err, comm.ErrUnreachable) && !errors.Is(err, comm.ErrProcFailed) {
						return fmt.Errorf("barrier: %w", err)
					}
					return nil
				}
				<-met
				assert.NoError(t, fabric.FailLane(0, 1, 0, loop.Cut{}))
				err := call(w)
				close(done)
				assert.ErrorIs(t, err, comm.ErrUnreachable)
				assert.ErrorIs(t, err, btl.ErrInjected)
				var e *comm.Error
				if assert.ErrorAs(t, err, &e) && name != "barrier" {
					assert.Equal(t, 1, e.Peer)
				}
				if name == "barrier" {
					return nil
				}
				return comm.Send(w, make([]byte, 10), 2, 7)
			}, comm.WithSetting("pml.grace", "30ms"), comm.WithSetting("pml.notices", "false"), comm.OnFabric(func(f *loop.Fabric) { fabric = f }))
			if name != "barrier" { // it leaves rank 1 behind, which no rank can reach
				assert.NoError(t, err)
			}
		})
	}
}
