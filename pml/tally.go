package pml

import (
	"fmt"

	"github.com/mpigo/mpigo/btl"
)

// A device acknowledges what comes, and its rank looks at it later. If the device breaks in between, the sender was told that it is
// delivered, has forgotten it, and cannot send it again: the receiver would wait for ever. So both ends count what they send and take by a
// rail, and tell each other what they have counted of an incarnation that is over (btl.Tallier), with RAILDOWNACK, PROBE and PROBEACK. Who finds
// that something is missing gives the peer up, and so tells it.

// count notes what a Drained endpoint has counted. One that has carried nothing, because nobody has answered, leaves what was noted before.
func (m *mending) count(ep btl.Endpoint) {
	t, counts := ep.(btl.Tallier)
	if !counts {
		return
	}
	if delivered, taken := t.Tally(); delivered != 0 || taken != 0 {
		m.ours = tally{ep.Epoch(), delivered, taken}
	}
}

// reckon compares what both ends have counted, once both have. It reports whether the peer is given up.
func (p *PML) reckon(rl *rail) bool {
	pr, ours, theirs := rl.peer, rl.mending.ours, rl.mending.theirs
	if ours.epoch == 0 || ours.epoch != theirs.epoch || pr.failing != nil || pr.lost != nil {
		return false
	}
	// What has failed may have been taken all the same, so there may be more than were delivered.
	side, missing := btl.SideLocal, int32(theirs.delivered-ours.taken)
	if missing <= 0 {
		side, missing = btl.SideRemote, int32(ours.delivered-theirs.taken)
	}
	if missing <= 0 {
		return false
	}
	err := &btl.Error{Rail: rl.module.Attrs().Name, Peer: pr.rank, Class: btl.ClassDevice, Side: side,
		Err: fmt.Errorf("the device broke with %d messages that it had acknowledged", missing)}
	p.fail(pr, p.causeOf(err), nil)
	return true
}
