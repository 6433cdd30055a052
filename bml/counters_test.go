package bml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// A peer is given up when one end has taken fewer messages than the other end delivered, in
// whichever order the counters become known.
func TestLostMessagesFailPeer(t *testing.T) {
	type counts struct{ delivered, taken uint32 }
	for _, c := range []struct {
		name         string
		ours, theirs counts
		missing      string // "" if no message is
		side         btl.Side
	}{
		{"nothing lost", counts{3, 5}, counts{5, 3}, "", 0},
		{"more taken than delivered", counts{3, 5}, counts{4, 4}, "", 0},
		{"nothing delivered", counts{0, 5}, counts{4, 0}, "", 0},
		{"one lost here", counts{3, 4}, counts{5, 3}, "1 messages", btl.SideLocal},
		{"lost here", counts{0, 5}, counts{7, 0}, "2 messages", btl.SideLocal},
		{"one lost there", counts{3, 5}, counts{5, 2}, "1 messages", btl.SideRemote},
		{"lost there", counts{5, 0}, counts{0, 2}, "3 messages", btl.SideRemote},
		{"lost here after the counter wrapped around", counts{0, 1<<32 - 1}, counts{1, 0}, "2 messages", btl.SideLocal},
		{"lost there after the counter wrapped around", counts{2, 0}, counts{0, 1<<32 - 1}, "3 messages", btl.SideRemote},
		{"none lost though the counter wrapped around", counts{1<<32 - 1, 2}, counts{1, 3}, "", 0},
	} {
		for _, isTheirsFirst := range []bool{false, true} {
			w, r, pr := newDeferredWire(t)
			ep := w.rails[0][0].endpoints[1]
			ep.delivered, ep.taken = c.ours.delivered, c.ours.taken
			theirs := deliveryCounters{1, c.theirs.delivered, c.theirs.taken}
			w.rails[0][0].fail(1, pathError(0))
			if !isTheirsFirst {
				w.rails[0][0].drain(1)
			}
			require.True(t, pr.IsAlive())
			w.arrive(1, 1, 0, TagRailDownAck, railMessage(railHeader{epoch: 1, counters: theirs}))
			if isTheirsFirst {
				require.True(t, pr.IsAlive(), "%s: this half is not drained", c.name)
				w.rails[0][0].drain(1)
			}
			require.Equal(t, c.missing != "", pr.IsFailing(), c.name)
			if c.missing == "" {
				continue
			}
			require.ErrorIs(t, pr.cause, request.ErrUnreachable, c.name)
			var be *btl.Error
			require.ErrorAs(t, pr.cause, &be)
			require.Equal(t, btl.Error{Rail: "wire0", Peer: 1, Class: btl.ClassDevice, Side: c.side, Err: be.Err}, *be, c.name)
			require.ErrorContains(t, pr.cause, c.missing, c.name)
			require.Equal(t, []workKind{workFailPeer}, r.kindsOfWork())
		}
	}
}

// The counters of different incarnations are not compared.
func TestCountersOfOtherIncarnationAreNotCompared(t *testing.T) {
	w, _, pr := newDeferredWire(t)
	w.rails[0][0].endpoints[1].delivered = 5
	w.rails[0][0].lose(1, pathError(0))
	for _, epoch := range []uint32{2, 0} {
		w.arrive(1, 1, 0, TagRailDownAck, railMessage(railHeader{epoch: 1, counters: deliveryCounters{epoch: epoch}}))
		require.True(t, pr.IsAlive())
	}
}

// An incarnation without traffic does not replace the counters of the one before, which the peer
// may not have received yet. The PROBE carries them.
func TestIdleIncarnationKeepsEarlierCounters(t *testing.T) {
	w, _, pr := newDeferredWire(t)
	ep := w.rails[0][0].endpoints[1]
	ep.taken = 5
	w.rails[0][0].lose(1, pathError(0))
	w.pass(6 * msec)
	require.Equal(t, railProbing, pr.rails[0].state)
	w.rails[0][0].lose(1, pathError(0))
	ours := deliveryCounters{epoch: 1, taken: 5}
	require.Equal(t, ours, pr.rails[0].recovery.ours)
	w.pass(20 * msec)
	var h railHeader
	require.NoError(t, h.decode(w.on(TagProbe)[0].frag, testVersion))
	require.Equal(t, ours, h.counters, "the counters in the PROBE")

	opened := w.rails[0][0].opened
	w.rails[0][0].lose(1, pathError(0))
	w.arrive(0, 1, 0, TagProbe, railMessage(railHeader{epoch: 4, counters: deliveryCounters{epoch: 1, delivered: 6}}))
	require.True(t, pr.IsFailing())
	require.Equal(t, opened, w.rails[0][0].opened, "a rank answers the PROBE of a failing peer")
}

// An endpoint that does not count deliveries leaves no counters to compare.
func TestEndpointWithoutCountersIsNotCompared(t *testing.T) {
	var rc recovery
	rc.countDelivered(struct{ btl.Endpoint }{&wireEndpoint{delivered: 5, epoch: 1}})
	require.Zero(t, rc.ours)
	rc.countDelivered(&wireEndpoint{delivered: 5, epoch: 1})
	require.Equal(t, deliveryCounters{1, 5, 0}, rc.ours)
	rc.countDelivered(&wireEndpoint{epoch: 2})
	require.Equal(t, deliveryCounters{1, 5, 0}, rc.ours)
}
