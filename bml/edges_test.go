package bml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

// A PROBE for a rail that this rank cannot open again is ignored.
func TestProbeForRailWithoutReopen(t *testing.T) {
	w := newWire(t, 2, withRails(2))
	r := w.ranks[0]
	pr := r.Peer(1)
	require.NoError(t, r.Resolve(pr))
	w.rails[1][0].lose(1, pathError(1))
	require.Equal(t, railDown, pr.rails[1].state)
	w.arrive(1, 1, 0, TagProbe, railMessage(railHeader{sender: 1, receiver: 1, epoch: 2}))
	require.Equal(t, railDown, pr.rails[1].state)
	require.Empty(t, w.on(TagProbeAck))
	require.True(t, pr.IsAlive())
}

// A piece that is posted after its peer was lost is not left in the transfer.
func TestPieceForLostPeer(t *testing.T) {
	w := newWire(t, 2)
	r := w.ranks[0]
	pr := r.Peer(1)
	require.NoError(t, r.Resolve(pr))
	tr := r.Transfer(nil, pr, nil)
	tr.Begin(0, 10)
	op, _, _ := r.NextPiece(tr, Fragments, testHeaderBytes)
	var end error
	op.Then = func(op *Op, err error) { end = err; r.PutOp(op) }
	r.ProtocolError(pr, ErrMalformed)
	r.Progress()
	w.rails[0][0].drain(1)
	require.True(t, pr.IsLost())
	r.PostPiece(op)
	require.ErrorIs(t, end, ErrMalformed)
	require.Empty(t, tr.Pieces())
}

// A PROBEACK that is delivered while the peer fails does not bring the rail back.
func TestProbeAckToFailingPeer(t *testing.T) {
	w := newWire(t, 2, func(w *wire) { w.grace, w.mended = 10*sec, true })
	r := w.ranks[0]
	pr := r.Peer(1)
	require.NoError(t, r.Resolve(pr))
	w.rails[0][0].lose(1, pathError(0))
	w.pass(10 * msec)
	require.Equal(t, railProbing, pr.rails[0].state)
	w.arrive(0, 1, 0, TagProbe, railMessage(railHeader{epoch: pr.rails[0].endpoint.Epoch()}))
	require.Len(t, w.on(TagProbeAck), 1)
	events := len(r.events)
	r.Fail(pr, btl.ErrInjected)
	w.end(w.on(TagProbeAck)[0], nil)
	require.Len(t, r.events, events, "a rail is reported to be back")
	require.Equal(t, railProbing, pr.rails[0].state)
}
