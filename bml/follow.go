package bml

import "github.com/mpigo/mpigo/btl"

// An acknowledgement goes with an answer only if the answer takes the same rail. So both ends are
// to have the same first rail, of those that are as good. But each end only knows how fast a rail
// is for what it sends itself: one end may find a rail slow, and the other may not.

// follow is which rail this rank takes because the peer does.
type follow struct {
	by    btl.Module // by which the last numbered fragment of the peer came
	ticks int        // in a row that have found it to be another one than that of the first rail
	rail  *Rail      // nil: none
}

// A rank takes the peer's first rail after so many ticks. The lower rank waits longer: if both
// followed each other at a time, they would only change places.
const followTicks, followTicksLower = 2, 8

// followPeer is called at each tick.
func (pr *Peer) followPeer(isLower bool) {
	f := &pr.follow
	rl := pr.by(f.by, pr.up)
	if rl == nil || rl == pr.first || pr.slow.Has(int(rl.index)) || rl.trust() < trusted || rl.latencyNanos != pr.first.latencyNanos {
		f.ticks = 0
		return
	}
	need := followTicks
	if isLower {
		need = followTicksLower
	}
	if f.ticks++; f.ticks >= need {
		f.ticks, f.rail = 0, rl
	}
}
