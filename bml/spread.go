package bml

import "time"

// Short messages go by the first rail. With more than that rail can carry, other rails may take a
// part. Whether this gains anything depends on what the limit is: two links carry twice as much as
// one, but two connections that share a processor carry less, because the receiver has to put
// messages in order. So it is tried: for one tick now and then, and for longer if more was
// delivered in that tick.

// spread is whether short messages to a peer go by several rails.
type spread struct {
	isOn bool
	// wanted counts the messages since the last tick that found the first rail busy. before is how
	// many bytes the rails had delivered at that tick.
	wanted int
	before int64
	// rate is how many bytes a second were delivered in busy ticks of late, in the present way.
	// left is how many busy ticks there are until the other way is tried, and wait how many there
	// were.
	rate       float64
	left, wait int
	isTrial    bool // this tick is a trial
}

const (
	// busyNanos is how long the first rail takes for what it has under way, by what its link
	// promises, when it is busy. A tick is busy with busySends such messages.
	busyNanos, busySends = 50_000, 8
	// firstSpread is after how many busy ticks the other way is tried first. Each trial in vain
	// doubles the wait, up to mostSpread.
	firstSpread, mostSpread = 4, 256
	// A way is better if it delivers spreadGain times as much.
	spreadGain = 1.15
)

// railForShort is the rail by which a numbered fragment goes.
func (pr *Peer) railForShort() *Rail {
	first := pr.first
	if !pr.watch.isOn || nanos(first.meter.bytes, first.weight) < busyNanos {
		return first
	}
	if pr.spread.wanted++; pr.spread.isOn {
		return pr.leastLoaded()
	}
	return first
}

// leastLoaded is the rail that would be done first with what it has under way. Others than the
// first count if they are of its tier, are trusted, and promise no more than twice its latency.
func (pr *Peer) leastLoaded() *Rail {
	best := pr.first
	for i, set := 0, pr.fast(pr.up); i < len(pr.rails); i++ {
		rl := &pr.rails[i]
		if set.Has(i) && rl.tier == pr.first.tier && rl.queue.Empty() && rl.trust() >= trusted && rl.latencyNanos <= 2*pr.first.latencyNanos &&
			(!best.queue.Empty() || rl.meter.bytes*best.weight < best.meter.bytes*rl.weight) {
			best = rl
		}
	}
	return best
}

// tick is called at each tick, so long after the last one, with the number of bytes that the rails
// have delivered so far.
func (s *spread) tick(delivered int64, after time.Duration) {
	rate := float64(delivered-s.before) / after.Seconds()
	isBusy := s.wanted >= busySends
	s.before, s.wanted = delivered, 0
	switch {
	case !isBusy && s.isTrial: // it says nothing
		s.isOn, s.isTrial = !s.isOn, false
	case !isBusy:
	case s.isTrial && rate > s.rate*spreadGain:
		s.isTrial, s.rate, s.wait, s.left = false, rate, firstSpread, 8*firstSpread
	case s.isTrial:
		s.isOn, s.isTrial = !s.isOn, false
		s.wait = min(2*s.wait, mostSpread)
		s.left = s.wait
	default:
		if s.wait == 0 {
			s.wait, s.left, s.rate = firstSpread, firstSpread, rate
		}
		s.left--
		if s.rate += (rate - s.rate) / 4; rate < s.rate/2 { // something has changed
			s.rate, s.wait, s.left = rate, firstSpread, 0
		}
		if s.left <= 0 {
			s.isOn, s.isTrial = !s.isOn, true
		}
	}
}
