package pml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/request"
)

// TestFinalizedEndsWhatWaitsForRank: operations that need the finalized rank end with an error. All
// others go on.
func TestFinalizedEndsWhatWaitsForRank(t *testing.T) {
	w, c := newWire(t, 3)
	p := w.pmls[0]
	buf := func() []byte { return make([]byte, 1000) }
	whole := w.pmls[1].Isend(c[1], pattern(8, 1), 0, 50, Standard, "send")
	announced := w.pmls[1].Isend(c[1], pattern(1000, 1), 0, 51, Standard, "send")
	w.settle()
	freedSend := p.Isend(c[0], pattern(1000, 0), 1, 1, Standard, "send")
	freedSend.Abandon()
	begin := func() map[string]ended {
		return map[string]ended{
			"send":      p.Isend(c[0], pattern(1000, 0), 1, 1, Standard, "send"),
			"ssend":     p.Isend(c[0], nil, 1, 1, Synchronous, "ssend"),
			"receive":   p.Irecv(c[0], buf(), 1, 1, 1, "recv"),
			"any tag":   p.Irecv(c[0], buf(), 1, 1, 52, "recv"),
			"probe":     p.Probe(c[0], 1, 3, false, "probe"),
			"mprobe":    p.Probe(c[0], 1, 3, true, "mprobe"),
			"to itself": p.Irecv(c[0], buf(), 1, 0, 1, "recv"),
			"any":       p.Irecv(c[0], buf(), 1, request.AnySource, 2, "recv"),
			"probe any": p.Probe(c[0], request.AnySource, 3, false, "probe"),
			"of 2":      p.Irecv(c[0], buf(), 1, 2, 2, "recv"),
		}
	}
	before := begin()
	w.settle()
	w.pmls[1].TellFinalized()
	w.settle()
	for _, all := range []map[string]ended{before, begin()} {
		for name, r := range all {
			switch name {
			case "to itself", "any", "probe any", "of 2":
				require.Equal(t, request.Active, r.State(), name)
			default:
				require.Equal(t, request.Complete, r.State(), name)
				_, err := r.Take()
				require.ErrorIs(t, err, request.ErrProcFailed, name)
			}
		}
	}
	require.ErrorIs(t, p.Lost(c[0], 1), request.ErrProcFailed)
	require.NoError(t, p.Lost(c[0], 2))
	require.NoError(t, p.Lost(c[0], request.AnySource))
	require.Equal(t, sendRTS, freedSend.state, "a freed send ended")
	// Messages from before are received. Sends that need no answer succeed.
	for tag, n := range map[int]int{50: 8, 51: 1000} {
		r := p.Irecv(c[0], buf(), 1, 1, tag, "recv")
		w.settle()
		st := requireSuccess(t, r)
		require.EqualValues(t, n, st.Bytes)
	}
	for _, s := range []*SendRequest{whole, announced, p.Isend(c[0], nil, 1, 1, Standard, "send")} {
		requireSuccess(t, s)
	}
	w.settle()
	w.pmls[1].TellFinalized()
	require.Empty(t, w.flying, "FINALIZED was sent twice")
	require.NoError(t, p.Close(nil))
	p.TellFinalized()
	require.Empty(t, w.flying)
}

// TestFinalizedFollowsPendingSends: a peer gets FINALIZED after the sends that wait for its window.
func TestFinalizedFollowsPendingSends(t *testing.T) {
	f := flooded(t, 1000, false)
	w, c, p := f.w, f.c, f.w.pmls[1]
	last := w.pmls[0].Isend(c[0], pattern(1, 99), 1, 2, Standard, "send")
	require.Equal(t, sendPending, last.state)
	w.pmls[0].TellFinalized()
	w.settle()
	require.NoError(t, p.Lost(c[1], 0))
	r := p.Irecv(c[1], make([]byte, 1), 1, 0, 2, "recv")
	w.settle()
	requireSuccess(t, r)
	require.ErrorIs(t, p.Lost(c[1], 0), request.ErrProcFailed)
	f.receive(0)
}

// TestFinalizedEndsPendingSends: sends that wait for the finalized rank's window end with an error,
// except freed ones.
func TestFinalizedEndsPendingSends(t *testing.T) {
	f := flooded(t, 1000, false)
	p, pr := f.w.pmls[0], f.w.pmls[0].peers[1]
	kept := f.sends[len(f.sends)-2]
	kept.Abandon()
	f.w.pmls[1].TellFinalized()
	f.w.settle()
	n := 0
	for _, s := range f.sends {
		if s == nil || s == kept {
			continue
		}
		if _, err := s.Take(); err != nil {
			require.ErrorIs(t, err, request.ErrProcFailed)
			n++
		}
	}
	require.Equal(t, 1000-floodEager-1, n)
	require.True(t, pr.pending.head == kept && pr.pending.tail == kept)
	require.Equal(t, 1, p.Busy())
	_, err := p.Isend(f.c[0], nil, 1, 1, Standard, "send").Take()
	require.ErrorIs(t, err, request.ErrProcFailed, "a new send would be pending too")
}

// TestFinalizedRankWithReceivesStillMatches: a finalized rank with receives under way may match
// messages.
func TestFinalizedRankWithReceivesStillMatches(t *testing.T) {
	for _, streams := range []bool{false, true} {
		w, c := newWire(t, 2)
		p := w.pmls[0]
		r := w.pmls[1].Irecv(c[1], make([]byte, 1000), 1, 0, 7, "recv")
		s := p.Isend(c[0], pattern(1000, 0), 1, 7, Standard, "send")
		if streams {
			w.step(0)
			require.Equal(t, recvStreaming, r.state)
		}
		waiting := p.Irecv(c[0], nil, 1, 1, 1, "recv")
		w.pmls[1].TellFinalized()
		w.settle()
		requireFailure(t, request.ErrProcFailed, waiting)
		requireSuccess(t, r, s)
		require.Equal(t, request.Active, p.Isend(c[0], nil, 1, 1, Synchronous, "ssend").State())
	}
}
