package bml

import (
	"math/bits"

	"github.com/mpigo/mpigo/btl"
)

// Rails of a later tier are spare. Those with Route.Beside carry long messages beside the rails of
// the lowest tier, if they promise enough: they are opened with the first long message to the peer,
// and take the pieces for which they have room, as any rail does.

// leastBesideShare is the part of the lowest tier's rate that another tier has to promise. Slower
// tiers gain less than a fifth, take processor time, and turn remote reads into writes. UCX leaves
// lanes out by the same ratio (UCX_MULTI_LANE_MAX_RATIO).
const leastBesideShare = 1.0 / 4

// leaveOutSlowTiers clears mayBeBeside of the rails in tiers that promise too little. The rails are
// sorted by tier.
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

// wantLong opens the rails that may carry long messages beside others. The peer is resolved.
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
	up := uint32(pr.up) // sorted by tier
	return up != 0 && pr.rails[bits.TrailingZeros32(up)].tier < pr.rails[bits.Len32(up)-1].tier
}

// MayRead reports whether the receiver should read a message of this length. Expose finds out
// whether it can.
func (pr *Peer) MayRead(bytes int) bool {
	return pr.IsRemote(int64(bytes)) && pr.exposed(bytes, btl.AccessRemoteRead) != 0
}

// exposed returns the rails on which a message is exposed to remote reads or writes. A message that
// goes by rails of several tiers is not read: some of them cannot read, and the receiver's reads
// would leave nothing for the sender's fragments. A message of one piece is read.
func (pr *Peer) exposed(bytes int, access btl.Access) RailSet {
	switch {
	case access == btl.AccessRemoteWrite:
		return pr.Putters()
	case bytes > remotePieceBytes && pr.isMixed():
		return 0
	}
	return pr.Getters()
}
