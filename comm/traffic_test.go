package comm

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/request"
)

// TestMetricsCountTraffic: the metrics count all messages that a rank has sent and received, by
// every path. The answer does not grow with the job.
func TestMetricsCountTraffic(t *testing.T) {
	lengths := []int{0, 1, 8, 1000, 100_000, 1 << 20}
	require.NoError(t, RunLocal(3, func(w *Comm) error {
		before := newDescriber(w.job).Metrics(false)
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
		after := newDescriber(w.job).Metrics(false)
		messages := uint64(len(lengths))
		assert.GreaterOrEqual(t, after.SentMessages-before.SentMessages, messages)
		assert.GreaterOrEqual(t, after.Counters["Received"]-before.Counters["Received"], messages)
		// The barrier adds less than a KiB.
		assert.InDelta(t, total, after.SentBytes-before.SentBytes, 1024)
		assert.InDelta(t, total, after.Counters["ReceivedBytes"]-before.Counters["ReceivedBytes"], 1024)
		require.Len(t, after.Rails, 1)
		assert.Equal(t, 2, after.Rails[0].Count)
		return w.Barrier()
	}))
}

func TestFoldRailsKeepsThoseWithTrouble(t *testing.T) {
	fine := func(peer int) introspect.Rail {
		return introspect.Rail{Name: "a", Peer: peer, State: "up", Health: 1000, PeerUp: true}
	}
	weak, cut, other, slow := fine(3), fine(4), fine(5), fine(7)
	slow.Slow = true
	weak.Health, cut.State, other.Name = 500, "down", "b"
	one := func(r introspect.Rail, peer, count int) introspect.Rail {
		r.Peer, r.Count, r.PeerUp = peer, count, r.PeerUp && peer >= 0
		return r
	}
	assert.Equal(t, []introspect.Rail{one(fine(1), -1, 3), one(weak, 3, 1), one(cut, 4, 1), one(other, -1, 1), one(slow, 7, 1)},
		foldRails([]introspect.Rail{fine(1), fine(2), weak, cut, other, fine(6), slow}))
}
