package comm

import (
	"bytes"
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/faults"
	"github.com/mpigo/mpigo/btl/ibverbs"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/progress"
)

// verbsPair makes two ranks of this process on a simulated network.
func verbsPair(t *testing.T, net simhca.Config, opts ...Option) [2]*Comm {
	f := simhca.NewFabric(net)
	t.Cleanup(f.Close)
	worlds := hereWorld(t, 2, func(j *job, bell *progress.PipeWakeup) []btl.Module {
		m, err := faults.Wrap(faults.Config{Events: j.pml}, func(ev btl.Events) (btl.Module, error) {
			return ibverbs.New(ibverbs.Config{
				Rank: j.rank, Size: 2, Events: ev, Wakeup: bell, Secret: []byte("of the job"),
				Provider: f.NewNode(simhca.DeviceConfig{Name: "sim0"}), Device: "sim0",
			})
		})
		require.NoError(t, err)
		return []btl.Module{m}
	}, opts...)
	return [2]*Comm(worlds)
}

// TestGivenUpBcastWaitsForDevice: the root gives up while its device reads the buffer. The call
// returns when the device has finished. Then the memory can be given back, and the other rank has
// the original bytes.
func TestGivenUpBcastWaitsForDevice(t *testing.T) {
	const length = 2 << 20
	for _, free := range []bool{false, true} {
		w := verbsPair(t, simhca.Config{Latency: 20 * time.Millisecond}, WithSetting("pml.protocol", "put"))
		want, got := bytes.Repeat([]byte("some words "), length/11+1)[:length], make([]byte, length)
		received := make(chan error, 1)
		go func() { received <- Bcast(w[1], got, 0) }()

		buf, err := Alloc[byte](w[0], length)
		require.NoError(t, err)
		copy(buf, want)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer cancel()
			for phaseOf(w[0]) != "writing" && ctx.Err() == nil {
				runtime.Gosched()
			}
		}()
		require.ErrorIs(t, Bcast(w[0].WithContext(ctx), buf, 0), context.Canceled)
		if free {
			require.NoError(t, FreeAlloc(w[0], buf))
		} else {
			clear(buf)
			defer FreeAlloc(w[0], buf)
		}
		done := make(chan struct{})
		go func() { // the rest is sent in the background
			defer close(done)
			for ctx := t.Context(); ctx.Err() == nil; runtime.Gosched() {
				w[0].job.eng.Lock()
				w[0].job.eng.Turn()
				busy := w[0].job.pml.Busy()
				w[0].job.eng.Unlock()
				if busy == 0 {
					return
				}
			}
		}()
		assert.ErrorIs(t, <-received, ErrComm)
		assert.True(t, bytes.Equal(want, got), "bytes as they were sent")
		<-done
	}
}

// phaseOf is the phase of the first send of a rank, or "" if it has none.
func phaseOf(w *Comm) string {
	w.job.eng.Lock()
	defer w.job.eng.Unlock()
	for _, p := range w.job.pml.Pending() {
		if p.Sends {
			return p.Phase
		}
	}
	return ""
}
