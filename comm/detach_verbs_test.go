package comm

import (
	"bytes"
	"context"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/faults"
	"github.com/mpigo/mpigo/btl/ibverbs"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/progress"
)

// verbsPair makes two ranks of this process on a simulated network.
func verbsPair(t *testing.T, opts ...Option) [2]*Comm {
	f := simhca.NewFabric(simhca.Config{})
	t.Cleanup(f.Close)
	return verbsPairOn(t, f, opts...)
}

// verbsPairOn makes two ranks of this process on a network.
func verbsPairOn(t *testing.T, f *simhca.Fabric, opts ...Option) [2]*Comm {
	worlds := localWorld(t, 2, func(j *job, wakeup *progress.PipeWakeup) []btl.Module {
		return []btl.Module{must(faults.Wrap(faults.Config{Events: j.pml}, func(ev btl.Events) (btl.Module, error) {
			return ibverbs.New(ibverbs.Config{
				Rank: j.rank, Size: 2, Events: ev, Wakeup: wakeup, Secret: []byte("of the job"),
				Provider: f.NewNode(simhca.DeviceConfig{Name: "sim0"}), Device: "sim0",
			})
		}))}
	}, opts...)
	return [2]*Comm(worlds)
}

// TestGivenUpBcastWaitsForDevice: the root gives up while its device reads the buffer. The call
// returns when the device has finished. Then the memory can be freed, and the other rank has the
// original bytes.
func TestGivenUpBcastWaitsForDevice(t *testing.T) {
	const length = 2 << 20
	for _, free := range []bool{false, true} {
		f := simhca.NewFabric(simhca.Config{Virtual: true})
		t.Cleanup(f.Close)
		w := verbsPairOn(t, f, WithSetting("pml.protocol", "put"))
		want, got := bytes.Repeat([]byte("some words "), length/11+1)[:length], make([]byte, length)
		received := make(chan error, 1)
		go func() { received <- Bcast(w[1], got, 0) }()

		buf, err := Alloc[byte](w[0], length)
		require.NoError(t, err)
		copy(buf, want)
		ctx, cancel := context.WithCancel(t.Context())
		over, stop := context.WithCancel(t.Context())
		var network sync.WaitGroup
		network.Go(func() { // the device stops while it writes, until the root has given up
			gaveUp := func() bool { return w[0].team.Unfit() != nil }
			for ; over.Err() == nil && phaseOf(w[0]) != "writing"; runtime.Gosched() {
				f.Advance()
			}
			for cancel(); over.Err() == nil && !locked(w[0], gaveUp); {
				runtime.Gosched()
			}
			for ; over.Err() == nil; runtime.Gosched() {
				f.Advance()
			}
		})
		require.ErrorIs(t, Bcast(w[0].WithContext(ctx), buf, 0), context.Canceled)
		if free {
			require.NoError(t, FreeAlloc(w[0], buf))
		} else {
			clear(buf)
			defer FreeAlloc(w[0], buf)
		}
		var rest sync.WaitGroup
		rest.Go(func() { // the rest is sent in the background
			busy := func() bool {
				w[0].job.eng.Turn()
				return w[0].job.pml.Busy() > 0
			}
			for t.Context().Err() == nil && locked(w[0], busy) {
				runtime.Gosched()
			}
		})
		assert.ErrorIs(t, <-received, ErrComm)
		assert.True(t, bytes.Equal(want, got), "bytes as they were sent")
		rest.Wait()
		stop()
		network.Wait()
	}
}

// phaseOf is the phase of the first send of a rank, or "" if it has none.
func phaseOf(w *Comm) string {
	for _, p := range locked(w, w.job.pml.Pending) {
		if p.Sends {
			return p.Phase
		}
	}
	return ""
}

// TestMessageThatNoRailTakesFailsAlone: over simulated verbs, a message that the rail refuses
// ends with an error at both ends, and no other operation fails. A collective ends at every rank,
// and the communicator can still be used.
func TestMessageThatNoRailTakesFailsAlone(t *testing.T) {
	const often = 4 // attempts, after which the sender gives the operation up
	for _, n := range []int{10, 5000, 200_000} {
		for _, protocol := range []string{"copy", "get", "put"} {
			w := verbsPair(t, WithSetting("pml.protocol", protocol), WithSetting("check", "false"))
			in, out := bytes.Repeat([]byte{5}, n), make([]byte, n)
			both := func(from, to func() error) (sent, got error) {
				done := make(chan error, 1)
				go func() { done <- from() }()
				got = to()
				return <-done, got
			}
			send := func() error { return Ssend(w[0], in, 1, 3) }
			recv := func() error { _, err := Recv(w[1], out, 0, 3); return err }
			sent, got := both(send, recv)
			require.NoError(t, sent)
			require.NoError(t, got)
			wrong := func() {
				w[0].job.eng.Lock()
				w[0].job.modules[0].(btl.Injector).Inject(btl.Fault{Kind: btl.FaultWrong, Peer: 1, Count: often})
				w[0].job.eng.Unlock()
			}
			wrong()
			sent, got = both(send, recv)
			assert.ErrorContains(t, sent, "no rail takes it: rail ibverbs to rank 1: usage: fragment too long", "%d bytes by %s", n, protocol)
			assert.ErrorContains(t, got, "the other rank could not send it", "%d bytes by %s", n, protocol)
			assert.NotErrorIs(t, sent, ErrUnreachable)
			wrong()
			sent, got = both(func() error { return Bcast(w[0], in, 0) }, func() error { return Bcast(w[1], out, 0) })
			if n > 8<<10 { // a shorter message is sent from a copy, and Finalize reports it
				assert.ErrorContains(t, sent, "no rail takes it")
			}
			assert.ErrorContains(t, got, "the other rank could not send it")
			clear(out)
			sent, got = both(send, recv)
			require.NoError(t, sent)
			require.NoError(t, got)
			require.Equal(t, in, out)
			for _, c := range w {
				require.Zero(t, c.Stats().RailsFailed)
			}
		}
	}
}
