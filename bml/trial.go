package bml

import "github.com/mpigo/mpigo/btl"

// A TRIAL shows how long a rail takes for something short, or for something long: from the first of
// its fragments until the peer's TRIALACK arrives. Rails that have TRIALs at the same time can be
// compared, whatever else they carry. The times of delivery cannot be compared: an idle rail
// acknowledges later.

// trialBytes is how many bytes a long TRIAL has, if need be in several fragments, but no more than
// trialFragments. A TRIAL without an answer is given up after trialTicks.
const trialBytes, trialFragments, trialTicks = 64 << 10, 16, 100

// trial is the last TRIAL on a rail.
type trial struct {
	number  uint32 // 0: none waits for its answer
	bytes   int
	left    int   // how many TRIALs follow, if it is answered in the same tick
	begin   int64 // by the engine's clock
	tick    int   // watch.count then
	isAlone bool  // nothing else was under way
}

func isTrial(tag btl.Tag) bool { return tag == TagTrial || tag == TagTrialAck }

// tryRail sends a TRIAL of so many bytes, if none waits for its answer, and again until they were
// so many.
func (b *BML) tryRail(rl *Rail, bytes, times int) {
	pr, m := rl.peer, &rl.meter
	isLost := m.fragments == 0 && pr.watch.count-m.trial.tick > trialTicks
	if times == 0 || m.fragments > 0 || m.trial.number != 0 && !isLost || !rl.queue.Empty() {
		return
	}
	if m.trial.number != 0 {
		b.countLate(rl)
	}
	pr.lastTrial++
	m.trial = trial{
		number: max(pr.lastTrial, 1), bytes: bytes, left: times - 1,
		begin: b.eng.Now(), tick: pr.watch.count, isAlone: m.underWay() == 0,
	}
	longest := rl.sendBytes - railBytes
	fragments := min(max((bytes+longest-1)/longest, 1), trialFragments)
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
	if rl != nil && rl.module == by && (rl.state == railUp || rl.state == railProbing) && h.counters.delivered != 0 {
		b.postAbout(rl, TagTrialAck, railHeader{counters: h.counters}, func(error) {})
	}
}

// trialAckArrived takes the answer.
func (b *BML) trialAckArrived(pr *Peer, by btl.Module, rl *Rail, h railHeader) {
	if rl == nil || rl.module != by || rl.meter.trial.number == 0 || rl.meter.trial.number != h.counters.delivered {
		return
	}
	m := &rl.meter
	r := m.trial
	m.trial.number = 0
	nanos := b.eng.Now() - r.begin
	m.trialTimes.add(nanos)
	if r.bytes == 0 && r.isAlone {
		m.short.add(nanos)
	}
	if r.tick == pr.watch.count {
		b.tryRail(rl, r.bytes, r.left)
	}
}
