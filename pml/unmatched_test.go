package pml

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

var errAllFinalized = errors.New("finalized")

// finalized has all ranks of a wire in Finalize.
func finalized(w *wire) {
	for _, p := range w.pmls {
		p.Leave(errAllFinalized)
	}
}

// TestSendsThatNobodyReceivesAreRejected: those that have arrived, that come later, that a probe
// has taken out of matching, that are held behind others, or are for a communicator that is not
// there. They stay active, and hold nothing up; all others are delivered.
func TestSendsThatNobodyReceivesAreRejected(t *testing.T) {
	for name, arrivesLater := range map[string]bool{"they are here": false, "they still come": true} {
		t.Run(name, func(t *testing.T) {
			for _, caps := range []btl.Caps{0, btl.CapGet, btl.CapPut} {
				w, c := newWire(t, 2, func(w *wire) {
					withRemote(caps)(w)
					w.async = true
				})
				a, b := w.pmls[0], w.pmls[1]
				id := a.NewContextID()
				elsewhere := a.AddContext(id, c[0].group, 0, testCaller{})
				var rejected, delivered []*SendRequest
				never := func(n, tag int, mode Mode, ctx *Context) {
					rejected = append(rejected, a.Isend(ctx, pattern(n, 1), 1, tag, mode, "send"))
				}
				receives := b.Irecv(c[1], make([]byte, 1000), 1, 0, 9, "recv")
				never(1000, 1, Standard, c[0])
				w.settle()
				taken, _, found := b.Improbe(c[1], 0, 1)
				require.True(t, found)
				require.NotNil(t, taken)
				never(0, 2, Synchronous, c[0])
				never(100, 3, Synchronous, c[0])
				never(1000, 4, Standard, c[0])
				never(1000, 1, Standard, elsewhere)
				short := a.Isend(c[0], pattern(50, 1), 1, 5, Standard, "send")
				delivered = append(delivered, short, a.Isend(c[0], pattern(1000, 9), 1, 9, Standard, "send"))
				if !arrivesLater {
					w.settle()
				}
				finalized(w)
				b.RejectUnmatched()
				a.RejectUnmatched()
				w.settle()
				for _, s := range delivered {
					_, err := s.Take()
					require.NoError(t, err)
				}
				_, err := receives.Take()
				require.NoError(t, err)
				for _, s := range rejected {
					require.Equal(t, request.Active, s.State())
				}
				require.Zero(t, a.Unfinished())
				list := a.Unmatched()
				require.Len(t, list, len(rejected))
				require.Equal(t, "send peer 1 tag 1 of 1000 bytes: waiting for the receiver", list[0].String())
				require.Len(t, b.Unreceived(), 1, "the short one, whose sender does not wait")
				require.NoError(t, a.Close(errAllFinalized))
				for _, s := range rejected {
					_, err := s.Take()
					require.ErrorIs(t, err, errAllFinalized)
				}
				require.Zero(t, a.Unfinished())
				require.Empty(t, a.Unmatched())
				require.Zero(t, b.Stats().Malformed)
			}
		})
	}
}

// TestHeldSendsAreRejected: the window opens for those that are held, so that each is delivered,
// received or rejected.
func TestHeldSendsAreRejected(t *testing.T) {
	f := flooded(t, 1000, false)
	a, b := f.w.pmls[0], f.w.pmls[1]
	last := b.Irecv(f.c[1], make([]byte, 1), 1, 0, 2, "recv")
	s := a.Isend(f.c[0], pattern(1, 1), 1, 2, Standard, "send")
	finalized(f.w)
	b.RejectUnmatched()
	f.w.settle()
	for _, r := range []ended{last, s} {
		_, err := r.Take()
		require.NoError(t, err)
	}
	require.Zero(t, a.Unfinished())
	require.Len(t, a.Unmatched(), 1000-floodEager)
	require.Nil(t, a.peers[1].pending.head)
}

// TestSendToFinalizedPeerWaitsForItsVerdict: in Finalize a FINALIZED does not end what a receive of the
// peer, or its rejection, is to end.
func TestSendToFinalizedPeerWaitsForItsVerdict(t *testing.T) {
	w, c := newWire(t, 2, nil)
	s := w.pmls[0].Isend(c[0], nil, 1, 1, Synchronous, "ssend")
	w.settle()
	finalized(w)
	w.pmls[1].TellFinalized()
	w.settle()
	require.Equal(t, 1, w.pmls[0].Unfinished())
	w.pmls[1].RejectUnmatched()
	w.settle()
	require.Zero(t, w.pmls[0].Unfinished())
	require.Len(t, w.pmls[0].Unmatched(), 1)
	require.Equal(t, request.Active, s.State())
}

// TestRejectedCollectiveIsNotReported: what a collective that was given up has sent is over when it
// is rejected.
func TestRejectedCollectiveIsNotReported(t *testing.T) {
	w, c, _ := newControlled(t, 2, nil)
	s := w.pmls[0].Isend(c[0], pattern(1000, 1), 1, 0, Standard, "bcast")
	w.settle()
	finalized(w)
	w.pmls[1].RejectUnmatched()
	w.settle()
	require.Zero(t, w.pmls[0].Unfinished())
	require.Empty(t, w.pmls[0].Unmatched())
	_, err := s.Take()
	require.NoError(t, err)
}

// TestRejectionOutsideFinalize: a peer that rejects a message though not all ranks are finalized
// ends the send.
func TestRejectionOutsideFinalize(t *testing.T) {
	w, c := newWire(t, 2, nil)
	s := w.pmls[0].Isend(c[0], nil, 1, 1, Synchronous, "ssend")
	w.settle()
	w.pmls[1].RejectUnmatched()
	w.settle()
	_, err := s.Take()
	require.ErrorIs(t, err, request.ErrProcFailed)
	require.Zero(t, w.pmls[0].Unfinished())
}

// TestNoticesAreNoUnfinishedWork: what the library sends of itself does not count.
func TestNoticesAreNoUnfinishedWork(t *testing.T) {
	w, c := newWire(t, 2, func(w *wire) { w.async = true })
	p := w.pmls[0]
	w.pmls[1].Isend(c[1], pattern(1000, 1), 0, 1, Standard, "send")
	w.settle()
	p.Irecv(c[0], make([]byte, 1000), 1, 1, 1, "recv")
	p.TellFinalized()
	require.Equal(t, 2, p.Busy(), "ACK and FINALIZED")
	require.Zero(t, p.Unfinished())
}

// TestSendThatFailsInFinalizeIsReported: nobody else would learn that the peer was lost. What
// failed before was the caller's to look at.
func TestSendThatFailsInFinalizeIsReported(t *testing.T) {
	for _, before := range []bool{false, true} {
		w, c := newWire(t, 2, func(w *wire) { w.async = true })
		p := w.pmls[0]
		p.Isend(c[0], pattern(1000, 1), 1, 1, Standard, "send").Abandon()
		w.settle()
		if !before {
			finalized(w)
		}
		w.modules[0].lose(1, gone)
		require.Zero(t, p.Unfinished())
		if before {
			require.NoError(t, p.Undelivered())
		} else {
			require.ErrorIs(t, p.Undelivered(), request.ErrProcFailed)
		}
	}
}
