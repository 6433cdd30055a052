package pml

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// Cases that neither the traces nor the simulation tell from their opposite.

// newStreamingRecv makes a receive of 1000 bytes that waits for FRAGs. Rank 0 has sent one numbered
// fragment.
func newStreamingRecv(t *testing.T) (w *wire, r *RecvRequest) {
	w, c := newWire(t, 2)
	r = w.pmls[1].Irecv(c[1], make([]byte, 1000), 1, 0, 7, "recv")
	w.pmls[1].Arrived(w.modules[1], 0, tagRndv, rndvOf(rndvHdr{matchHdr: matchHdr{tag: 7}, length: 1000, send: 1}))
	require.Equal(t, recvStreaming, r.state)
	return w, r
}

// TestFragOfEarlierAttemptIsDropped: the receiver gives a receive that starts again a new handle.
func TestFragOfEarlierAttemptIsDropped(t *testing.T) {
	w, r := newStreamingRecv(t)
	p, old := w.pmls[1], r.name
	frag := fragOf(fragHdr{recv: old}, make([]byte, 100)...)
	p.Arrived(w.modules[1], 0, tagFrag, frag)
	require.EqualValues(t, 100, r.got)
	p.Arrived(w.modules[1], 0, tagRestartNotify, inSequence(restartOf(restartHdr{r.send, old}), 1))
	require.Zero(t, r.got)
	p.Arrived(w.modules[1], 0, tagFrag, frag)
	require.Zero(t, r.got, "the receiver counts a piece of the attempt that has failed")
	require.EqualValues(t, 1, p.Stats().StaleFragments)
	require.NotEqual(t, old, r.name)
}

// TestRepeatedFragLosesPeer: more bytes than the message has would never be equal to its length.
func TestRepeatedFragLosesPeer(t *testing.T) {
	w, r := newStreamingRecv(t)
	frag := fragOf(fragHdr{recv: r.name}, make([]byte, 600)...)
	w.pmls[1].Arrived(w.modules[1], 0, tagFrag, frag)
	require.Equal(t, request.Active, r.State())
	w.pmls[1].Arrived(w.modules[1], 0, tagFrag, frag)
	_, err := r.Take()
	require.ErrorIs(t, err, errMalformed)
}

// TestRefusedInlineSendSpendsNoCredit: otherwise the window would shrink with each refusal.
func TestRefusedInlineSendSpendsNoCredit(t *testing.T) {
	w, c := newWire(t, 2)
	p := w.pmls[0]
	require.NoError(t, p.resolve(p.peer(1)))
	w.refuse = 1
	require.False(t, p.SendNow(c[0], []byte{1}, 1, 7))
	require.Zero(t, p.peer(1).credit.sent)
	w.refuse = 0
	require.True(t, p.SendNow(c[0], []byte{1}, 1, 7))
	require.EqualValues(t, fragmentCostBytes+1, p.peer(1).credit.sent)
}

// TestLossOfPeerForgetsPendingSends: the sends have ended, and their requests may be in use again.
func TestLossOfPeerForgetsPendingSends(t *testing.T) {
	f := flooded(t, floodEager+floodAnnounced+3, false)
	pr := f.w.pmls[0].peer(1)
	require.NotNil(t, pr.pending.head)
	f.w.modules[0].lose(1, gone)
	require.True(t, pr.IsLost())
	require.Nil(t, pr.pending.head)
	require.Zero(t, f.w.pmls[0].Busy())
}

// TestDetachEndsQueuedWritesWithoutRegistration: a write that is still queued has nothing to be
// posted with if the copy cannot be registered.
func TestDetachEndsQueuedWritesWithoutRegistration(t *testing.T) {
	const n = 4 * remotePieceBytes
	w, c := newWire(t, 2, func(w *wire) {
		withRemote(btl.CapPut)(w)
		w.async = true
		w.config.Protocol = Put
	})
	r := w.pmls[1].Irecv(c[1], make([]byte, n), 1, 0, 1, "recv")
	s := w.pmls[0].Isend(c[0], pattern(n, 1), 1, 1, Standard, "send")
	w.step(0) // RNDV
	w.refuse = 1000
	w.step(0) // PUT
	require.Equal(t, sendPutting, s.state)
	require.NotEmpty(t, s.t.Pieces())
	w.unregistrable = func(*wireModule, btl.Access) error { return btl.ErrMemory }
	require.Nil(t, s.Detach())
	w.refuse = 0
	w.log = func(what string, f *flight) {
		require.False(t, what == "posted" && f.tag == bml.TagPut, "a write without a registration is posted")
	}
	w.settle()
	_, err := r.Take()
	require.NoError(t, err)
}

// TestLongFragmentThatIsNoMessageLosesPeer: the receiver counts such fragments by number when it
// keeps them for their turn or their context, so it must not keep long ones.
func TestLongFragmentThatIsNoMessageLosesPeer(t *testing.T) {
	unknown := ContextID(1<<(counterBits(2)+1) | 2)
	for tag := range btl.Tag(bml.NumKinds) {
		if !isNumbered(tag) || isMessage(tag) {
			continue
		}
		t.Run(fmt.Sprint(tag), func(t *testing.T) {
			for _, early := range []bool{false, true} {
				w, _ := newWire(t, 2)
				p := w.pmls[0]
				frag := matchOf(matchHdr{context: unknown, tag: 1}, make([]byte, 1000)...)
				if early {
					frag = inSequence(frag, 1)
				}
				p.Arrived(w.modules[0], 1, tag, frag)
				require.ErrorIs(t, p.peer(1).Err(), errMalformed, "early: %v", early)
				require.Zero(t, p.Stats().UnexpectedBytes)
			}
		})
	}
}
