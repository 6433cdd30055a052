package bml

import (
	"math"
	"time"
)

// A rail lags while it delivers much less than each of its modules delivered by some rail recently,
// and another rail to the same peer does not. If all rails are slow, the peer computes, or its port
// is overloaded, and no other pair of ports would do better. An alternate may do better than a rail
// that lags (needs).

// peakMemory is how long the highest rate of a module counts: a link may stay slower.
const peakMemory = time.Minute

// peak is the highest recent rate, in bytes a nanosecond.
type peak struct {
	rate float64
	at   int64
}

func (p *peak) add(rate float64, now int64) {
	p.rate = max(p.rate*math.Exp(-float64(now-p.at)/float64(peakMemory)), rate)
	p.at = now
}

// findLagging finds the rails that lag, at a tick.
func (b *BML) findLagging(pr *Peer, now int64) {
	var measured, well RailSet
	for i := range pr.rails {
		rl, rate := &pr.rails[i], pr.judge.Measured(i, now)
		if !pr.up.Has(i) || rate == 0 {
			continue
		}
		measured |= 1 << i
		rl.own.peak.add(rate, now)
		rl.far.peak.add(rate, now)
		if 2*rate >= rl.could() {
			well |= 1 << i
		}
	}
	before := pr.lagging
	pr.lagging = 0
	for i := range pr.rails {
		could := 0.0
		if well&^(1<<i) != 0 {
			could = pr.rails[i].could()
		}
		if measured.Has(i) && pr.judge.Lags(i, could, now) {
			pr.lagging |= 1 << i
		}
	}
	if pr.lagging != before {
		b.prefer(pr)
		b.useAlternates(pr)
	}
}

// could is what both modules of a rail have delivered.
func (rl *Rail) could() float64 { return min(rl.own.peak.rate, rl.far.peak.rate) }

// noneLags forgets which rails lag, when there is no traffic any more.
func (b *BML) noneLags(pr *Peer, now int64) {
	for i := range pr.rails {
		pr.judge.Lags(i, 0, now)
	}
	if pr.lagging != 0 {
		pr.lagging = 0
		b.prefer(pr)
		b.useAlternates(pr)
	}
}
