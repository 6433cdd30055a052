package comm

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/request"
)

// TestMetricsCountTraffic: what a rank has sent is counted by peer, however messages go.
func TestMetricsCountTraffic(t *testing.T) {
	lengths := []int{0, 1, 8, 1000, 100_000, 1 << 20}
	require.NoError(t, RunLocal(3, func(w *Comm) error {
		before := newDescriber(w.job).Metrics().Traffic
		if err := w.Barrier(); err != nil {
			return err
		}
		to, from := (w.Rank()+1)%3, (w.Rank()+2)%3
		total := uint64(0)
		for _, n := range lengths {
			req, err := Isend(w, make([]byte, n), to, 1)
			if err != nil {
				return err
			}
			if _, err := Recv(w, make([]byte, n), from, 1); err != nil {
				return err
			}
			if err := request.WaitAll(req); err != nil {
				return err
			}
			total += uint64(n)
		}
		after := newDescriber(w.job).Metrics().Traffic
		sent := sentTo(after, to)
		assert.GreaterOrEqual(t, sent.Messages-sentTo(before, to).Messages, uint64(len(lengths)))
		// The barrier adds less than a KiB.
		assert.InDelta(t, total, sent.Bytes-sentTo(before, to).Bytes, 1024)
		return w.Barrier()
	}))
}

func sentTo(list []introspect.Traffic, peer int) (sent introspect.Traffic) {
	for _, t := range list {
		if t.Peer == peer {
			sent = t
		}
	}
	return sent
}
