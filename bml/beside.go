package bml

import "math/bits"

// Rails of a later tier are spare. If Config.StripeFactor allows it, those with Route.Beside may
// carry long messages beside the rails of the lowest tier: they are opened with the first long
// message to the peer, and TRIALs measure how long they take for a byte. A rail that takes no more
// than StripeFactor times as long as the best of the lowest tier has a share, which follows what is
// measured, as that of any rail does (watch.go). Until then, and if it takes longer later, it is
// treated as a slow rail.
//
// A message that goes by rails of both kinds goes in fragments: not all of them have remote access.

const (
	// A rail beside that was too slow in besideMisses TRIALs has no TRIAL for firstRest ticks. That
	// doubles each time, up to mostRest.
	besideMisses        = 6
	firstRest, mostRest = 200, 12_000
)

// beside is what is known of a rail that may carry messages beside those of a lower tier.
type beside struct {
	wasFast bool // in the last tick that has shown it
	misses  int
	rest    int // ticks until it has TRIALs again
	pause   int // how long it rested last
}

// isBeside reports whether a rail may now take long messages beside those of a lower tier.
func (pr *Peer) isBeside(rl *Rail) bool {
	return pr.hasLong && rl.mayBeBeside && rl.tier > pr.rails[0].tier
}

// wantLong has the rails opened that may carry long messages beside others. The rails to the peer
// are known.
func (b *BML) wantLong(pr *Peer) {
	if b.cfg.StripeFactor <= 0 || pr.hasLong {
		return
	}
	pr.hasLong = true
	for i := range pr.rails {
		if rl := &pr.rails[i]; pr.isBeside(rl) {
			pr.becomesSlow(rl)
			b.open(rl)
		}
	}
	b.prefer(pr)
}

// isMixed reports whether messages go by rails of several tiers. The first rail may be of any of
// them. Rails are in the order of their tiers.
func (pr *Peer) isMixed() bool {
	set := uint32(pr.fast(pr.up))
	return set != 0 && pr.rails[bits.TrailingZeros32(set)].tier < pr.rails[bits.Len32(set)-1].tier
}

// besideFactor is how many times as long a rail takes for a byte as the best rail that is up of a
// lower tier usually does; 0 if that is not known. own is what it takes.
func (pr *Peer) besideFactor(i int, own int64, of func(m *meter) *timing) (most float64) {
	for j := range pr.rails {
		other := of(&pr.rails[j].meter).usual
		if pr.up.Has(j) && pr.rails[j].tier < pr.rails[i].tier && other > 0 {
			most = max(most, float64(own)/float64(other))
		}
	}
	return most
}

// compareBeside is called at each tick for a rail that may be beside others. It reports whether the
// rail is as fast as it has to be, and makes it slow if it is not any more.
func (b *BML) compareBeside(pr *Peer, i int) (isFast bool) {
	rl := &pr.rails[i]
	limit := float64(b.cfg.StripeFactor)
	if !pr.slow.Has(i) {
		// While it has its share, its times vary more than those of TRIALs.
		if pr.besideFactor(i, rl.meter.long.usual, longOf) > 2*limit {
			pr.becomesSlow(rl)
		}
		return true
	}
	s := &rl.beside
	s.rest = max(s.rest-1, 0)
	factor := pr.besideFactor(i, rl.meter.longTrials.least(rl.meter.longTrials.n), longTrialsOf)
	if s.wasFast = factor > 0 && factor <= limit || factor == 0 && s.wasFast; s.wasFast {
		s.misses, s.pause = 0, 0
		return true
	}
	if factor == 0 { // no long TRIAL was answered since the last tick
		return false
	}
	if s.misses++; s.misses == besideMisses {
		s.misses = 0
		s.pause = min(max(2*s.pause, firstRest), mostRest)
		s.rest = s.pause
	}
	return false
}

func longOf(m *meter) *timing       { return &m.long }
func longTrialsOf(m *meter) *timing { return &m.longTrials }
