package bml

import (
	"fmt"

	"github.com/mpigo/mpigo/btl"
)

// A device acknowledges what comes, and its rank looks at it later. If the device breaks in
// between, the sender was told that the fragment is delivered, has forgotten it, and cannot send it
// again: the receiver would wait for ever. So both ends count what they deliver and take by a rail
// (btl.DeliveryCounter), and exchange the counts of an incarnation that is over with RAILDOWNACK,
// PROBE and PROBEACK. The end that finds a message missing gives the peer up, and so tells it.

// countDelivered notes what a drained endpoint has counted. An endpoint that has carried nothing,
// because it was never answered, leaves what was noted before.
func (rc *recovery) countDelivered(ep btl.Endpoint) {
	t, counts := ep.(btl.DeliveryCounter)
	if !counts {
		return
	}
	if delivered, taken := t.DeliveryCounters(); delivered != 0 || taken != 0 {
		rc.ours = deliveryCounters{ep.Epoch(), delivered, taken}
	}
}

// compareCounters compares what both ends have counted, once both have. It reports whether the peer
// is given up.
func (b *BML) compareCounters(rl *Rail) bool {
	pr, ours, theirs := rl.peer, rl.recovery.ours, rl.recovery.theirs
	if ours.epoch == 0 || ours.epoch != theirs.epoch || !pr.IsAlive() {
		return false
	}
	// A message whose sender got an error may have been taken all the same, so more may be taken
	// than delivered.
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
