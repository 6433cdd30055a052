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

// TestRestartKeepsFragments: bytes that came in fragments before a restart stay, and the receive
// keeps its handle, so that late fragments still count.
func TestRestartKeepsFragments(t *testing.T) {
	w, r := newStreamingRecv(t)
	p, name := w.pmls[1], r.name
	in := pattern(1000, 1)
	p.Arrived(w.modules[1], 0, tagFrag, fragOf(fragHdr{recv: name, offset: 200}, in[200:300]...))
	require.EqualValues(t, 100, r.have.bytes)
	p.Arrived(w.modules[1], 0, tagRestartNotify, inSequence(restartOf(restartHdr{r.send, name}), 1))
	require.Equal(t, name, r.name)
	require.EqualValues(t, 100, r.have.bytes)
	require.EqualValues(t, 1, p.Stats().Restarts)
	p.Arrived(w.modules[1], 0, tagFrag, fragOf(fragHdr{recv: name}, in[:200]...))
	p.Arrived(w.modules[1], 0, tagFrag, fragOf(fragHdr{recv: name, offset: 300}, in[300:]...))
	require.Equal(t, in, r.buf)
	requireSuccess(t, r)
	require.Zero(t, p.Stats().StaleFragments)
}

// TestRepeatedFragIsDropped: a failed rail may have delivered a fragment that goes again by another
// one. Its bytes count once, and are written once: the user may own the buffer when the second copy
// arrives.
func TestRepeatedFragIsDropped(t *testing.T) {
	w, r := newStreamingRecv(t)
	p, in := w.pmls[1], pattern(1000, 1)
	arrive := func(from, to int, data []byte) {
		p.Arrived(w.modules[1], 0, tagFrag, fragOf(fragHdr{recv: r.name, offset: int64(from)}, data[from:to]...))
	}
	arrive(0, 600, in)
	arrive(0, 600, pattern(1000, 2))
	arrive(100, 500, pattern(1000, 2))
	require.EqualValues(t, 600, r.have.bytes)
	require.Equal(t, in[:600], r.buf[:600], "the second copy was written")
	require.EqualValues(t, 2, p.Stats().StaleFragments)
	require.Equal(t, request.Active, r.State())
	buf := r.buf
	late := fragOf(fragHdr{recv: r.name, offset: 0}, make([]byte, 600)...)
	arrive(500, 1000, in) // of which a part is new
	requireSuccess(t, r)
	require.Equal(t, in, buf)
	p.Arrived(w.modules[1], 0, tagFrag, late)
	require.Equal(t, in, buf, "a fragment was written after the receive was complete")
	require.EqualValues(t, 3, p.Stats().StaleFragments)
	require.True(t, p.peer(0).IsAlive())
}

// TestFragOutsideItsMessageLosesPeer: also in bytes that came with the announcement.
func TestFragOutsideItsMessageLosesPeer(t *testing.T) {
	for _, offset := range []int64{-1, 901, 1000, 1 << 62} {
		w, r := newStreamingRecv(t)
		w.pmls[1].Arrived(w.modules[1], 0, tagFrag, fragOf(fragHdr{recv: r.name, offset: offset}, make([]byte, 100)...))
		w.pmls[1].Progress()
		requireFailure(t, errMalformed, r)
	}
	w, r := newStreamingRecv(t)
	r.got = 10
	w.pmls[1].Arrived(w.modules[1], 0, tagFrag, fragOf(fragHdr{recv: r.name, offset: 9}, make([]byte, 100)...))
	w.pmls[1].Progress()
	requireFailure(t, errMalformed, r)
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
				p.Progress()
				require.ErrorIs(t, p.peer(1).Err(), errMalformed, "early: %v", early)
				require.Zero(t, p.Stats().UnexpectedBytes)
			}
		})
	}
}
