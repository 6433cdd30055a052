package comm

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/tcp"
	"github.com/mpigo/mpigo/internal/race"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
)

// tcpWorld makes ranks of this process that are joined by TCP rails, one for each address. Rank 0
// makes no connection while *blocked is set, which the lock of its engine guards.
func tcpWorld(t *testing.T, ranks int, addresses []string, blocked *bool, opts ...Option) []*Comm {
	secret := sha256.Sum256([]byte("a secret"))
	return localWorld(t, ranks, func(j *job, wakeup *progress.PipeWakeup) (modules []btl.Module) {
		j.progressAsync()
		for _, a := range addresses {
			modules = append(modules, must(tcp.New(tcp.Config{
				Rank: j.rank, Size: ranks, Events: j.pml, Wakeup: wakeup, AsyncProgress: j.async.request,
				Blocked: func(int) bool { return j.rank == 0 && *blocked }, Local: netip.MustParseAddr(a), Secret: secret[:],
			})))
		}
		return modules
	}, append(opts, WithSetting("pml.notices", "false"))...)
}

func openDescriptors(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}

// TestTrafficSurvivesConnectionFailures: a hundred times a connection is cut under traffic of all
// kinds, sometimes several at once or a whole rail. No call fails, every byte is right, and no
// descriptor remains.
func TestTrafficSurvivesConnectionFailures(t *testing.T) {
	const ranks = 3
	cuts := race.Some(100)
	worlds := tcpWorld(t, ranks, []string{"127.0.0.1", "127.0.0.2"}, new(bool))
	// The first error ends the calls of all ranks.
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	over := make(chan struct{})
	var traffic, all sync.WaitGroup
	for _, w := range worlds {
		traffic.Add(1) // until it has exchanged messages with the others
		met := sync.OnceFunc(traffic.Done)
		all.Go(func() {
			defer met()
			if err := exchangeUntil(ctx, w, over, met); err != nil {
				t.Errorf("rank %d: %v", w.Rank(), err)
				cancel()
			}
		})
	}
	traffic.Wait()
	before := openDescriptors(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for n := 0; n < cuts && ctx.Err() == nil; {
		j := worlds[rng.IntN(ranks)].job
		m := j.modules[rng.IntN(len(j.modules))]
		j.eng.Lock()
		switch {
		case n%10 == 9:
			m.Fail(btl.ErrInjected)
			n++
		case m.(interface{ Break(peer int) bool }).Break((j.rank + 1 + rng.IntN(ranks-1)) % ranks):
			n++
		}
		j.eng.Unlock()
		// Wait for some traffic.
		moved := (&observed{job: j}).Progress
		for target := moved() + uint64(rng.IntN(40)); moved() < target && ctx.Err() == nil; {
		}
	}
	close(over)
	all.Wait()
	var st Stats
	for _, w := range worlds {
		one := w.Stats()
		st.RailsFailed += one.RailsFailed
		st.RailsReturned += one.RailsReturned
		require.Zero(t, one.Malformed)
	}
	require.Positive(t, st.RailsFailed)
	require.Positive(t, st.RailsReturned)
	require.LessOrEqual(t, openDescriptors(t), before+2*ranks*len(worlds[0].job.modules), "connections and attempts that are left open")
	t.Logf("%d failures, %d returns", st.RailsFailed, st.RailsReturned)
}

// exchangeUntil exchanges messages of all sizes with both neighbours in a ring until over is
// closed, and all ranks know, or ctx ends. It calls met when it has exchanged some.
func exchangeUntil(ctx context.Context, w *Comm, over <-chan struct{}, met func()) error {
	me, n := w.Rank(), w.Size()
	next, prev := (me+1)%n, (me+n-1)%n
	sizes := []int{1, 100, 5000, 70_000, 300_000}
	w = w.WithContext(ctx)
	for round := 0; ; round++ {
		size := sizes[round%len(sizes)]
		in, out, want := make([]byte, size), make([]byte, size), make([]byte, size)
		for i := range in {
			in[i], want[i] = byte(i*7+me+round), byte(i*7+prev+round)
		}
		r, err := Irecv(w, out, prev, 1)
		if err != nil {
			return err
		}
		if err := Send(w, in, next, 1); err != nil {
			return err
		}
		if _, err := r.WaitContext(ctx); err != nil {
			return err
		}
		stop := []int{0}
		if me == 0 {
			select {
			case <-over:
				stop[0] = 1
			default:
			}
		}
		if err := errors.Join(same(fmt.Sprint("round ", round), want, out), Bcast(w, stop, 0)); err != nil {
			return err
		}
		if round >= len(sizes) {
			met()
		}
		if stop[0] == 1 {
			return nil
		}
	}
}

// TestRecvSurvivesFailuresOfOneAddress: the connections of one address fail repeatedly at once. A
// rank that only receives continues over the other address.
func TestRecvSurvivesFailuresOfOneAddress(t *testing.T) {
	worlds := tcpWorld(t, 2, []string{"127.0.0.1", "127.0.0.2"}, new(bool))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	sender, receiver := worlds[0].WithContext(ctx), worlds[1].WithContext(ctx)
	done := make(chan error, 1)
	go func() {
		for i := range 200 {
			got := make([]int, 1)
			if _, err := Recv(receiver, got, 0, 0); err != nil || got[0] != i {
				done <- fmt.Errorf("message %d is %d: %w", i, got[0], err)
				return
			}
		}
		done <- nil
	}()
	for i := range 200 {
		require.NoError(t, Send(sender, []int{i}, 1, 0))
		if i%20 == 10 {
			j := worlds[0].job
			j.eng.Lock()
			j.modules[0].Fail(btl.ErrInjected)
			j.eng.Unlock()
		}
	}
	require.NoError(t, <-done)
}

// connected makes two ranks that one address joins and that have exchanged messages.
func connected(t *testing.T, grace string, blocked *bool) []*Comm {
	worlds := tcpWorld(t, 2, []string{"127.0.0.1"}, blocked, WithSetting("pml.grace", grace))
	answered := make(chan error, 1)
	go func() {
		b := make([]byte, 1)
		_, err := Recv(worlds[1], b, 0, 0)
		answered <- errors.Join(err, Send(worlds[1], b, 0, 0))
	}()
	b := make([]byte, 1)
	require.NoError(t, Send(worlds[0], b, 1, 0))
	_, err := Recv(worlds[0], b, 1, 0)
	require.NoError(t, errors.Join(err, <-answered))
	for _, w := range worlds {
		w.job.others = alone{} // Finalize does not wait for the other rank
	}
	return worlds
}

// breakConnection breaks the connection of rank 0 to rank 1. Lock held.
func breakConnection(t *testing.T, w *Comm) {
	require.True(t, w.job.modules[0].(interface{ Break(rank int) bool }).Break(1))
}

// TestFinalizeReportsLostShortMessage: the last rail to a rank fails with a short message whose
// send has returned. No other message is sent to that rank.
func TestFinalizeReportsLostShortMessage(t *testing.T) {
	t.Parallel() // it waits for the grace time, which a busy machine needs for the first connection
	var blocked bool
	w := connected(t, "3s", &blocked)[0]
	locked(w, func() any {
		blocked = true
		breakConnection(t, w)
		require.Nil(t, w.job.pml.Send(w.p2p, []byte{1}, 1, 7, pml.Standard, "send"))
		return nil
	})
	require.Eventually(t, func() bool {
		return locked(w, func() bool {
			w.job.eng.Turn()
			return !w.job.pml.HasBcopies()
		})
	}, time.Minute, time.Millisecond, "the send is never given up")
	err := w.Finalize()
	require.ErrorIs(t, err, ErrUnreachable)
	require.ErrorContains(t, err, "send (peer 1, tag 7)")
}

// TestRailComesBackWhileSenderComputes: the only connection breaks with a short message whose send
// has returned, and the sender makes no further call. The receiver reconnects and gets the message.
func TestRailComesBackWhileSenderComputes(t *testing.T) {
	worlds := connected(t, "1m", new(bool))
	locked(worlds[0], func() any {
		j := worlds[0].job
		breakConnection(t, worlds[0])
		require.Nil(t, j.pml.Send(worlds[0].p2p, []byte{42}, 1, 7, pml.Standard, "send"))
		for j.pml.Stats().RailsFailed == 0 {
			j.eng.Turn()
		}
		return nil
	})
	b := make([]byte, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := Recv(worlds[1].WithContext(ctx), b, 0, 7)
	require.NoError(t, err)
	require.EqualValues(t, 42, b[0])
}

// TestRailComesBackWhileOtherRankComputes: as before, but nothing was sent. The receiver does not
// lose the rank that will send.
func TestRailComesBackWhileOtherRankComputes(t *testing.T) {
	worlds := connected(t, "1m", new(bool))
	locked(worlds[0], func() any { breakConnection(t, worlds[0]); return nil })
	received := make(chan error, 1)
	go func() {
		_, err := Recv(worlds[1], make([]byte, 1), 0, 7)
		received <- err
	}()
	require.Eventually(t, func() bool {
		return len(received) > 0 || worlds[1].Stats().RailsReturned > 0 &&
			slices.ContainsFunc(worlds[1].Rails(), func(r RailStatus) bool { return r.Peer == 0 && r.State == "up" })
	}, 30*time.Second, time.Millisecond, "the rail does not come back")
	require.Empty(t, received, "the rank is given up")
	require.NoError(t, Send(worlds[0], []byte{1}, 1, 7))
	require.NoError(t, <-received)
}
