package simulation

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/request"
)

// quietWorld is two ranks that have exchanged a message in each direction, and are idle. Over
// verbs, the last rail is of InfiniBand, the others of RoCE.
func quietWorld(t *testing.T, on Transport, rails int, grace int64) *world {
	s := setup{ranks: 2, slots: 16, fragBytes: 1000, window: 1000, maxBytes: 1500, skipOdds: 8, groups: [][]int{{0, 1}, {1, 0}}, deadRail: -1, victims: [2]int{0, 1}, grace: grace}
	for range rails {
		s.rails = append(s.rails, railSetup{latency: 1000, jitter: 1, mbps: 100})
	}
	w, err := newWorld(&plan{seed: uint64(rails), transport: on, setup: s}, false)
	require.NoError(t, err)
	t.Cleanup(w.close)
	for _, r := range w.ranks {
		r.matching = nil // it knows only the messages of a plan
	}
	for from := range 2 {
		got := w.waitFor(1-from, from)
		w.sendFrom(from)
		w.until(t, "a message", func() bool { return got() != nil })
		require.NoError(t, *got())
	}
	w.until(t, "quiet", func() bool { return !w.isBusy() && w.allUp() })
	return w
}

// waitFor posts a receive. The result returns nil until the receive is complete, then its error.
func (w *world) waitFor(rank, source int) func() *error {
	var h request.Request
	r := w.ranks[rank]
	r.call(func(p *pml.PML) { h = p.Irecv(r.ctxs[0], make([]byte, 8), 1, source, 1, "irecv").Handle() })
	var end *error
	return func() *error {
		if end == nil {
			if _, done, err := h.Test(); done {
				end = &err
			}
		}
		return end
	}
}

// sendFrom sends a message from a rank to the other rank, and frees the request.
func (w *world) sendFrom(rank int) {
	r := w.ranks[rank]
	var h request.Request
	r.call(func(p *pml.PML) { h = p.Isend(r.ctxs[0], make([]byte, 8), 1-rank, 1, pml.Standard, "isend").Handle() })
	r.must(h.Free())
}

// until lets time pass until cond holds, at most two seconds.
func (w *world) until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := w.net.Now() + 2_000_000_000; !cond(); {
		require.Less(t, w.net.Now(), end, "waited too long for "+what)
		for range 12 {
			for _, r := range w.ranks {
				r.turn()
			}
		}
		if !w.next() {
			w.pass(1_000_000)
		}
	}
}

// A rank only waits for a message, and has no operation in flight. It notices that all rails are
// cut, although no port reports that, and its receive ends when the grace time is over.
func TestRecvEndsAfterSilentCutOfAllRails(t *testing.T) {
	const grace = 300_000_000
	for rails := 1; rails <= 2; rails++ {
		t.Run(fmt.Sprint(rails), func(t *testing.T) {
			w := quietWorld(t, Verbs, rails, grace)
			got := w.waitFor(1, 0)
			at := w.net.Now()
			w.part()
			w.until(t, "the receive's end", func() bool { return got() != nil })
			require.ErrorIs(t, *got(), request.ErrUnreachable)
			require.Greater(t, w.net.Now()-at, int64(grace))
			require.Less(t, w.net.Now()-at, int64(grace+200_000_000))
		})
	}
}

// The receive takes a message that arrives by the other rail. If there is only one rail, the
// receive takes the message when the rail is repaired within the grace time.
func TestRecvSurvivesSilentCutOfOneRail(t *testing.T) {
	for rails := 1; rails <= 2; rails++ {
		t.Run(fmt.Sprint(rails), func(t *testing.T) {
			w := quietWorld(t, Verbs, rails, 1_000_000_000)
			got := w.waitFor(1, 0)
			w.net.cut(link{{0, 0}, {1, 0}}, 0, false)
			for rank, r := range w.ranks {
				w.until(t, "the failure", func() bool { up, _ := r.p.RailsUp(1 - rank); return up == rails-1 })
			}
			require.Nil(t, got())
			if rails == 1 {
				w.net.mend(link{{0, 0}, {1, 0}})
				w.until(t, "the rail", w.allUp)
			}
			w.sendFrom(0)
			w.until(t, "the message", func() bool { return got() != nil })
			require.NoError(t, *got())
		})
	}
}

// A device breaks with messages that it has acknowledged and its rank has not polled. The ranks
// find out by another rail, or when the device is back.
func TestRecvFailsWhenDeviceLosesAcknowledgedMessages(t *testing.T) {
	for rails := 1; rails <= 2; rails++ {
		t.Run(fmt.Sprintf("%d rails", rails), func(t *testing.T) {
			w := quietWorld(t, Verbs, rails, 1_000_000_000)
			from, to := w.ranks[0], w.ranks[1]
			w.sendFrom(0)
			for range 200 { // rank 1 does not poll
				from.turn()
				w.next()
			}
			require.Zero(t, from.p.Busy())
			w.net.device(1, 0, 0, 0)
			got := w.waitFor(1, 0)
			w.until(t, "the device to be closed", func() bool { return to.p.Rails()[0].State == "down" })
			w.net.port(port{1, 0}, true, 0)
			w.until(t, "the end of the receive", func() bool { return got() != nil })
			require.ErrorIs(t, *got(), request.ErrUnreachable)
			require.ErrorContains(t, *got(), "had acknowledged")
		})
	}
}
