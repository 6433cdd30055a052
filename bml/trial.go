package bml

import "github.com/mpigo/mpigo/btl"

// A TRIAL shows how much longer a rail takes than its link promises, for something short or for
// something long: from the moment when its first fragment is posted until the peer's TRIALACK
// arrives. Rails that have TRIALs at the same time can be compared, whatever else they carry. What
// a TRIAL has waited for the load of its rail does not make that rail slow. But it counts for a
// slow rail that is compared with it: that one would deliver sooner. The times of delivery cannot
// be compared: an idle rail acknowledges later.

// trialBytes is how many bytes a long TRIAL has, if need be in several fragments, but no more than
// trialFragments. A TRIAL without an answer is given up after trialTicks.
const trialBytes, trialFragments, trialTicks = 64 << 10, 16, 100

// trial is the last TRIAL on a rail.
type trial struct {
	number uint32 // 0: none waits for its answer
	bytes  int    // asked for
	length int    // of its fragments
	left   int    // how many TRIALs follow, if it is answered in the same tick
	tick   int    // watch.count when it was made
	// posted is how many of its fragments an endpoint has taken. The first was posted at begin, by
	// the engine's clock, when ahead bytes were under way before it.
	posted       int
	begin, ahead int64
	isAlone      bool // nothing else was under way
}

func isTrial(tag btl.Tag) bool { return tag == TagTrial || tag == TagTrialAck }

// tryRail sends a TRIAL of so many bytes, if none waits for its answer, and again until they were
// so many. Behind a queue it waits for room: otherwise a rail with more to carry than it can would
// have no TRIAL, and no slow rail could be compared with it.
func (b *BML) tryRail(rl *Rail, bytes, times int) {
	pr, m := rl.peer, &rl.meter
	isLost := pr.watch.count-m.trial.tick > trialTicks
	if times == 0 || m.fragments > 0 || m.trial.number != 0 && !isLost {
		return
	}
	if m.trial.number != 0 {
		b.countLate(rl)
	}
	longest := rl.sendBytes - railBytes
	fragments := min(max((bytes+longest-1)/longest, 1), trialFragments)
	pr.lastTrial++
	m.trial = trial{
		number: max(pr.lastTrial, 1), bytes: bytes, length: fragments * min(bytes, longest), left: times - 1, tick: pr.watch.count,
	}
	h := railHeader{padding: uint32(min(bytes, longest))}
	m.fragments = fragments
	for i := range fragments {
		if i == fragments-1 {
			h.counters.delivered = m.trial.number
		}
		b.postAbout(rl, TagTrial, h, func(error) { m.fragments-- })
	}
}

// trialArrived answers the last fragment of a TRIAL. That carries a number in the place of the
// delivery counters. The sender may use the rail already while this end still waits for the
// delivery of its PROBEACK.
func (b *BML) trialArrived(_ *Peer, by btl.Module, rl *Rail, h railHeader) {
	if rl != nil && rl.module == by && h.counters.delivered != 0 {
		b.postAbout(rl, TagTrialAck, railHeader{counters: h.counters}, func(error) {})
	}
}

// trialAckArrived takes the answer.
func (b *BML) trialAckArrived(pr *Peer, by btl.Module, rl *Rail, h railHeader) {
	if rl == nil || rl.module != by {
		return
	}
	m := &rl.meter
	r := m.trial
	if r.number == 0 || r.number != h.counters.delivered || r.posted == 0 {
		return
	}
	m.trial.number = 0
	nanos := b.eng.Now() - r.begin
	load := pr.loadNanos(rl, r.ahead)
	m.addTrial(nanos-nanosOf(rl, r.length), load)
	if r.length > 0 {
		m.longTrials.add(nanos * 1000 / (r.ahead + int64(r.length)))
	}
	if r.bytes == 0 && r.isAlone {
		m.short.add(nanos)
	}
	if r.tick == pr.watch.count {
		b.tryRail(rl, r.bytes, r.left)
	}
}

// addTrial takes how much longer a TRIAL took than promised, and how much of that it waited for the
// load of the rail.
func (m *meter) addTrial(nanos, load int64) {
	m.loadedTimes.add(nanos)
	m.trialTimes.add(nanos - load)
}

// loadNanos is how long a TRIAL waits for so many bytes ahead of it, if the rail takes no longer
// for a byte than the best other rail does; or than it usually does, if the others carry nothing
// long.
func (pr *Peer) loadNanos(rl *Rail, ahead int64) int64 {
	best := int64(0)
	for i := range pr.rails {
		usual := pr.rails[i].meter.long.usual
		if int(rl.index) != i && pr.up.Has(i) && usual > 0 && (best == 0 || usual < best) {
			best = usual
		}
	}
	if best == 0 {
		best = rl.meter.long.usual
	}
	return ahead * best / 1000
}

// nanosOf is how long so many bytes take at what the rail's link promises.
func nanosOf(rl *Rail, bytes int) int64 {
	return nanos(int64(bytes), max(rl.module.Attrs().BandwidthMBps, 1))
}
