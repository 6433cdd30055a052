package bml

import (
	"fmt"

	"github.com/mpigo/mpigo/btl"
)

// A device acknowledges a message before its rank reads it. If the device breaks in between, the
// sender has already released the fragment, and the receiver would wait for ever. So both ends
// count the messages that they deliver and take by a rail (btl.DeliveryCounter). RAILDOWNACK, PROBE
// and PROBEACK carry the counts of a drained incarnation. The end that finds a message missing
// gives the peer up, which also tells the peer.

// countDelivered keeps the counts of a drained endpoint. An endpoint that was never answered has
// carried nothing, and the earlier counts stay.
func (rc *recovery) countDelivered(ep btl.Endpoint) {
	t, counts := ep.(btl.DeliveryCounter)
	if !counts {
		return
	}
	if delivered, taken := t.DeliveryCounters(); delivered != 0 || taken != 0 {
		rc.ours = deliveryCounters{ep.Epoch(), delivered, taken}
	}
}

// compareCounters compares the counts of both ends, once both are known. It reports whether the
// peer is given up.
func (b *BML) compareCounters(rl *Rail) bool {
	pr, ours, theirs := rl.peer, rl.recovery.ours, rl.recovery.theirs
	if ours.epoch == 0 || ours.epoch != theirs.epoch || !pr.IsAlive() {
		return false
	}
	// A message that its sender saw fail may have arrived, so the peer may take more than was
	// delivered.
	side, missing := btl.SideLocal, int32(theirs.delivered-ours.taken)
	if missing <= 0 {
		side, missing = btl.SideRemote, int32(ours.delivered-theirs.taken)
	}
	if missing <= 0 {
		return false
	}
	err := &btl.Error{Rail: rl.name(), Peer: pr.rank, Class: btl.ClassDevice, Side: side,
		Err: fmt.Errorf("the device broke with %d messages that it had acknowledged", missing)}
	b.fail(pr, b.CauseOf(err), nil)
	return true
}
