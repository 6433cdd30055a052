package bml

import (
	"math/bits"

	"github.com/mpigo/mpigo/btl"
)

// Rails of a later tier are spare. Those with Route.Beside carry long messages beside the rails of
// the lowest tier, if they promise enough: they are opened with the first long message to the peer,
// and take the pieces for which they have room, as any rail does.

// leastBesideShare is which part of the rate of the lowest tier the rails of another one have to
// promise. With less they gain less than a fifth, and take processor time, and messages are written
// that would be read. UCX leaves lanes out by the same ratio (UCX_MULTI_LANE_MAX_RATIO).
const leastBesideShare = 1.0 / 4

// leaveOutSlowTiers lets no rail be beside those of the lowest tier whose tier promises too little.
// The rails are in the order of their tiers.
func leaveOutSlowTiers(rails []Rail) {
	promised := map[int]int64{}
	for i := range rails {
		if rl := &rails[i]; !rl.alternate && (rl.mayBeBeside || rl.tier == rails[0].tier) {
			promised[rl.tier] += max(rl.module.Attrs().BandwidthMBps, 1)
		}
	}
	least := leastBesideShare * float64(promised[rails[0].tier])
	for i := range rails {
		rl := &rails[i]
		rl.mayBeBeside = rl.mayBeBeside && float64(promised[rl.tier]) >= least
	}
}

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

// isMixed reports whether messages go by rails of several tiers.
func (pr *Peer) isMixed() bool {
	up := uint32(pr.up) // in the order of their tiers
	return up != 0 && pr.rails[bits.TrailingZeros32(up)].tier < pr.rails[bits.Len32(up)-1].tier
}

// MayRead reports whether a message of so many bytes is one for the receiver to read. Expose finds
// out whether it can.
func (pr *Peer) MayRead(bytes int) bool {
	return pr.IsRemote(int64(bytes)) && pr.exposed(bytes, btl.AccessRemoteRead) != 0
}

// exposed are the rails that a message is made reachable on, for remote reads or for remote writes.
// A message that goes by rails of several tiers is not read: some of them cannot read, and the
// receiver's reads leave nothing for the sender's fragments. A message of one piece is read.
func (pr *Peer) exposed(bytes int, access btl.Access) RailSet {
	switch {
	case access == btl.AccessRemoteWrite:
		return pr.Putters()
	case bytes > remotePieceBytes && pr.isMixed():
		return 0
	}
	return pr.Getters()
}
