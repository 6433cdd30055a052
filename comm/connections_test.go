package comm

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/tcp"
	"github.com/mpigo/mpigo/progress"
)

// tcpWorld makes ranks of this process that rails over TCP join, one for each address.
func tcpWorld(t *testing.T, ranks int, addresses ...string) []*Comm {
	secret := sha256.Sum256([]byte("a secret"))
	return hereWorld(t, ranks, func(j *job, bell *progress.PipeWakeup) (modules []btl.Module) {
		j.async = newAsyncProgress(j.eng, j.pml.HasBcopies)
		for _, a := range addresses {
			m, err := tcp.New(tcp.Config{Rank: j.rank, Size: ranks, Events: j.pml, Wakeup: bell, AsyncProgress: j.async.request, Local: netip.MustParseAddr(a), Secret: secret[:]})
			require.NoError(t, err)
			modules = append(modules, m)
		}
		return modules
	}, WithSetting("pml.notices", "false"))
}

func openDescriptors(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}

// TestConnectionsDie: a hundred times a connection is cut under traffic of all kinds, now and then
// several at once or a whole rail. The ranks notice nothing, every byte is right, and no descriptor
// is left.
func TestConnectionsDie(t *testing.T) {
	const ranks, cuts = 3, 100
	worlds := tcpWorld(t, ranks, "127.0.0.1", "127.0.0.2")
	// And the first error ends the calls of all.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	over := make(chan struct{})
	var traffic, all sync.WaitGroup
	for _, w := range worlds {
		traffic.Add(1) // until it has met the others
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
		moved := (&observed{job: j}).Progress
		// Traffic goes on meanwhile.
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
		in, out := make([]byte, size), make([]byte, size)
		for i := range in {
			in[i] = byte(i*7 + me + round)
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
		for i := range out {
			if out[i] != byte(i*7+prev+round) {
				return fmt.Errorf("round %d: byte %d of %d is %d", round, i, size, out[i])
			}
		}
		stop := []int{0}
		if me == 0 {
			select {
			case <-over:
				stop[0] = 1
			default:
			}
		}
		if err := Bcast(w, stop, 0); err != nil {
			return err
		}
		if round == len(sizes) {
			met()
		}
		if stop[0] == 1 {
			return nil
		}
	}
}

// TestOneAddressGoes: the connections by one address fail again and again at once, and a rank that
// only waits goes on by the other.
func TestOneAddressGoes(t *testing.T) {
	worlds := tcpWorld(t, 2, "127.0.0.1", "127.0.0.2")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
