package bml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

// A fragment that waits for one rail is not overtaken when another rail becomes the first.
func TestOrderHoldsWhenFirstRailChanges(t *testing.T) {
	for _, isInline := range []bool{false, true} {
		w := newWire(t, 2, func(w *wire) {
			withRails(2)(w)
			w.async = false
			for i := range w.attrs {
				w.attrs[i].Caps |= btl.CapInline
				w.attrs[i].InlineBytes = 40
			}
		})
		r := w.ranks[0]
		pr := r.Peer(1)
		require.NoError(t, r.Resolve(pr))
		pr.rails[0].health = 0 // it has just come back
		r.prefer(pr)
		w.refuse = 1
		r.send(1, "a") // waits for rail 1
		pr.rails[0].health = trusted
		r.gain(&pr.rails[0].trustee) // as its timer does
		require.Same(t, &pr.rails[0], pr.first)
		if !isInline || !pr.SendInline(tagNumbered, numbered(pr.NextSeq(), "")[:testHeaderBytes], []byte("b")) {
			r.send(1, "b")
		}
		w.settle()
		require.Equal(t, []string{"a", "b"}, w.ranks[1].got)
	}
}

// The peer's half has failed twice, and its RAILDOWN of the first time is still on its way. This
// rank's half of the first incarnation is up, and is drained before the second one counts as over.
func TestRailDownOfLaterIncarnationDrainsEarlierOne(t *testing.T) {
	w := newWire(t, 2, withRails(2), synchronous)
	r := w.ranks[0]
	r.send(1, "")
	w.settle()
	w.arrive(0, 1, 0, TagRailDown, railMessage(railHeader{sender: 1, receiver: 1, epoch: 2}))
	require.Equal(t, railFailing, r.Peer(1).rails[1].state)
	require.Empty(t, railDownAcks(w, 1), "it is not drained")
	w.rails[1][0].drain(1)
	require.Equal(t, []railHeader{{sender: 1, receiver: 1, version: testVersion, epoch: 2}}, railDownAcks(w, 1))

	// Nothing can arrive from an incarnation that is over, or from an unknown rail.
	for _, h := range []railHeader{{sender: 1, receiver: 1, epoch: 1}, {sender: 9, receiver: 9, epoch: 1}} {
		w.flying = nil
		w.arrive(0, 1, 0, TagRailDown, railMessage(h))
		h.version = testVersion
		require.Equal(t, []railHeader{h}, railDownAcks(w, 1))
	}
}

// railDownAcks decodes the RAILDOWNACKs on their way to a rank.
func railDownAcks(w *wire, to int) (all []railHeader) {
	for _, f := range w.on(TagRailDownAck) {
		if f.to == to {
			var h railHeader
			require.NoError(w.t, h.decode(f.frag, testVersion))
			all = append(all, h)
		}
	}
	return all
}

// A sequence number is the low half of a 64-bit count.
func TestSequenceWrapsAround(t *testing.T) {
	w := newWire(t, 2, synchronous)
	const near = 1<<32 - 3
	w.ranks[0].Peer(1).sendSeq, w.ranks[1].Peer(0).recvSeq = near, near
	var want []string
	for _, payload := range []string{"a", "b", "c", "d", "e", "f"} {
		w.ranks[0].send(1, payload)
		want = append(want, payload)
	}
	for len(w.flying) > 0 { // the last first
		w.step(len(w.flying) - 1)
	}
	require.Equal(t, want, w.ranks[1].got)
	require.EqualValues(t, near+6, w.ranks[1].Peer(0).recvSeq)
	require.EqualValues(t, 5, w.ranks[1].Stats().Early)
	require.Zero(t, w.ranks[1].early, "not every early fragment was forgotten")
}
