package pml

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

var errAllFinalized = errors.New("finalized")

// finalized puts all ranks of a wire in Finalize.
func finalized(w *wire) {
	for _, p := range w.pmls {
		p.Leave(errAllFinalized)
	}
}

// TestRejectUnmatchedKeepsSendsActive: messages without a receive have arrived, are still to
// arrive, are taken by a matched probe, or are for an unknown communicator. Their sends stay active
// and block nothing. All other messages are delivered.
func TestRejectUnmatchedKeepsSendsActive(t *testing.T) {
	for name, arrivesLater := range map[string]bool{"arrived": false, "to arrive": true} {
		t.Run(name, func(t *testing.T) {
			for _, caps := range []btl.Caps{0, btl.CapGet, btl.CapPut} {
				w, c := newWire(t, 2, withRemote(caps), withAsync(true))
				a, b := w.pmls[0], w.pmls[1]
				id := a.NewContextID()
				elsewhere := a.AddContext(id, c[0].group, 0, testCaller{})
				var rejected, delivered []ended
				unmatched := func(n, tag int, mode Mode, ctx *Context) {
					rejected = append(rejected, a.Isend(ctx, pattern(n, 1), 1, tag, mode, "send"))
				}
				receives := b.Irecv(c[1], make([]byte, 1000), 1, 0, 9, "recv")
				unmatched(1000, 1, Standard, c[0])
				w.settle()
				taken, _, found := b.Improbe(c[1], 0, 1)
				require.True(t, found)
				require.NotNil(t, taken)
				unmatched(0, 2, Synchronous, c[0])
				unmatched(100, 3, Synchronous, c[0])
				unmatched(1000, 4, Standard, c[0])
				unmatched(1000, 1, Standard, elsewhere)
				short := a.Isend(c[0], pattern(50, 1), 1, 5, Standard, "send")
				delivered = append(delivered, short, a.Isend(c[0], pattern(1000, 9), 1, 9, Standard, "send"))
				if !arrivesLater {
					w.settle()
				}
				finalized(w)
				b.RejectUnmatched()
				a.RejectUnmatched()
				w.settle()
				requireSuccess(t, delivered...)
				requireSuccess(t, receives)
				for _, s := range rejected {
					require.Equal(t, request.Active, s.State())
				}
				require.Zero(t, a.Unfinished())
				list := a.Unmatched()
				require.Len(t, list, len(rejected))
				require.Equal(t, "send peer 1 tag 1 of 1000 bytes: waiting for the receiver", list[0].String())
				require.Len(t, b.Unreceived(), 1, "only the eager message, whose sender does not wait")
				require.NoError(t, a.Close(errAllFinalized))
				requireFailure(t, errAllFinalized, rejected...)
				require.Zero(t, a.Unfinished())
				require.Empty(t, a.Unmatched())
				require.Zero(t, b.Stats().Malformed)
			}
		})
	}
}

// TestRejectUnmatchedOpensWindow: the window opens for pending sends, so that each is received or
// rejected.
func TestRejectUnmatchedOpensWindow(t *testing.T) {
	f := flooded(t, 1000, false)
	a, b := f.w.pmls[0], f.w.pmls[1]
	last := b.Irecv(f.c[1], make([]byte, 1), 1, 0, 2, "recv")
	s := a.Isend(f.c[0], pattern(1, 1), 1, 2, Standard, "send")
	finalized(f.w)
	b.RejectUnmatched()
	f.w.settle()
	requireSuccess(t, last, s)
	require.Zero(t, a.Unfinished())
	require.Len(t, a.Unmatched(), 1000-floodEager)
	require.Nil(t, a.peers[1].pending.head)
}

// TestSendInFinalizeWaitsForRejection: in Finalize, FINALIZED does not end a send. A receive or a
// rejection of the peer does.
func TestSendInFinalizeWaitsForRejection(t *testing.T) {
	w, c := newWire(t, 2)
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

// TestRejectedSendOfCollectiveSucceeds: the sends of a collective that was given up end when they
// are rejected.
func TestRejectedSendOfCollectiveSucceeds(t *testing.T) {
	w, c, _ := newControlled(t, 2)
	s := w.pmls[0].Isend(c[0], pattern(1000, 1), 1, 0, Standard, "bcast")
	w.settle()
	finalized(w)
	w.pmls[1].RejectUnmatched()
	w.settle()
	require.Zero(t, w.pmls[0].Unfinished())
	require.Empty(t, w.pmls[0].Unmatched())
	requireSuccess(t, s)
}

// TestRejectionOutsideFinalizeFailsSend: a peer rejects a message although this rank is not in
// Finalize.
func TestRejectionOutsideFinalizeFailsSend(t *testing.T) {
	w, c := newWire(t, 2)
	s := w.pmls[0].Isend(c[0], nil, 1, 1, Synchronous, "ssend")
	w.settle()
	w.pmls[1].RejectUnmatched()
	w.settle()
	requireFailure(t, request.ErrProcFailed, s)
	require.Zero(t, w.pmls[0].Unfinished())
}

// TestUnfinishedOmitsControlFragments: fragments that the PML sends for itself do not count.
func TestUnfinishedOmitsControlFragments(t *testing.T) {
	w, c := newWire(t, 2, withAsync(true))
	p := w.pmls[0]
	w.pmls[1].Isend(c[1], pattern(1000, 1), 0, 1, Standard, "send")
	w.settle()
	p.Irecv(c[0], make([]byte, 1000), 1, 1, 1, "recv")
	p.TellFinalized()
	require.Equal(t, 2, p.Busy(), "ACK and FINALIZED")
	require.Zero(t, p.Unfinished())
}

// TestUndeliveredReportsFreedSendThatFailsInFinalize: before Finalize the caller could have looked
// at the request.
func TestUndeliveredReportsFreedSendThatFailsInFinalize(t *testing.T) {
	for _, before := range []bool{false, true} {
		w, c := newWire(t, 2, withAsync(true))
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
