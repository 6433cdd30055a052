package bml

import "math/bits"

// Rails of a later tier are spare. Those with Route.Beside carry long messages beside the rails of
// the lowest tier: they are opened with the first long message to the peer, and take the pieces for
// which they have room, as any rail does.

// isBeside reports whether a rail may now take long messages beside those of a lower tier.
func (pr *Peer) isBeside(rl *Rail) bool {
	return pr.hasLong && rl.mayBeBeside && rl.tier > pr.rails[0].tier
}

// wantLong has the rails opened that may carry long messages beside others. The rails to the peer
// are known.
func (b *BML) wantLong(pr *Peer) {
	if !b.cfg.Beside || pr.hasLong {
		return
	}
	pr.hasLong = true
	for i := range pr.rails {
		if rl := &pr.rails[i]; pr.isBeside(rl) {
			b.open(rl)
		}
	}
	b.prefer(pr)
}

// isMixed reports whether messages go by rails of several tiers. Not all of them can read remotely,
// so no message is read then.
func (pr *Peer) isMixed() bool {
	up := uint32(pr.up) // in the order of their tiers
	return up != 0 && pr.rails[bits.TrailingZeros32(up)].tier < pr.rails[bits.Len32(up)-1].tier
}
