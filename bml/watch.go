package bml

import (
	"errors"
	"math/bits"
	"time"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

// How a rail that is slow, or loses packets, loses its share before it fails. While several rails
// to a peer are up, and operations are under way, a tick looks at them every tickPeriod:
//
//   - The times of operations are compared between the rails. A rail that is slower than the best
//     one, by what their links promise, gets a smaller share of long messages. One that is
//     slowFactor times slower in badTicks ticks is slow.
//   - A rail is late if its oldest operation waits while another rail delivers what was posted
//     after that. If no other rail has anything to deliver, it gets a TRIAL. So a peer that is
//     stopped or busy makes no rail late. A late rail is slow. What is queued for it goes by
//     another rail.
//   - A rail that stays late fails. This moves what it has under way. It comes back as any rail
//     does, and is still slow.
//   - A slow rail takes no traffic while another rail is up that is not slow. TRIALs, short and
//     long in turn, compare it with the others at each tick, until it was fast in so many in a row.
//
// Without traffic there are no ticks: nothing is sent to a peer that the program sends nothing to.

const (
	tickPeriod = 50 * time.Millisecond
	// lateTicks and failTicks are how many ticks find an operation under way before its rail is
	// late, and before it fails. Each tick that other rails take adds otherTicks.
	lateTicks, failTicks, otherTicks = 2, 6, 3
	// slowFactor makes a rail slow, and only a rail within fastFactor of the best is fast.
	// shareFactor is how much slower than the best a rail may be without losing a part of its
	// share: measured times vary by as much.
	slowFactor, fastFactor, shareFactor = 4, 2, 1.5
	// A short operation that takes less than leastSlowNanos longer than on the best rail makes no
	// rail slow.
	leastSlowNanos = 100_000
	// badTicks is in how many ticks in a row a rail has to be slowFactor slower.
	badTicks = 3
	// A rail that has become slow has to be fast in leastGoodTicks in a row. Each time it becomes
	// slow again, that doubles, up to mostGoodTicks; calmTicks without being slow halve it.
	leastGoodTicks, mostGoodTicks, calmTicks = 8, 32, 200
	// shortTrials is how many short TRIALs follow each other, because the least time counts: one
	// alone may have to wait for the peer.
	shortTrials = 4
	// compareTicks is how often rails that carry nothing are compared with the others.
	compareTicks = 20
)

// watch is the watch over the rails to a peer.
type watch struct {
	isOn  bool            // several rails are up
	timer *progress.Timer // of the next tick; nil if nothing was posted
	tick  func()
	at    int64  // of the last tick, by the engine's clock
	posts uint32 // Peer.posts then
	count int    // of ticks
	// isComparing: every rail is to be timed before the next tick.
	isComparing bool
}

// grade is what the comparison with other rails has shown of a rail.
type grade struct {
	slowness  float64 // of long operations; at least 1, which is that of the best rail
	bad, good int     // ticks in a row in which it was slow, or fast
	need      int     // ticks in a row in which it has to be fast
	calm      int     // ticks since it was slow
	late      uint64  // how often it was late
}

// watchRails starts or ends the watch when other rails are up than before.
func (pr *Peer) watchRails() { pr.watch.isOn = bits.OnesCount16(uint16(pr.up)) > 1 }

func (b *BML) startWatch(pr *Peer) {
	w := &pr.watch
	if w.tick == nil {
		w.tick = func() { b.watchTick(pr) }
	}
	w.at, w.posts = b.eng.Now(), pr.posts-1
	for i := range pr.rails {
		m := &pr.rails[i].meter
		m.oldest = oldest{upTo: m.posted, posts: pr.posts}
		m.short.tick()
		m.long.tick()
	}
	w.timer = b.eng.After(int64(tickPeriod), w.tick)
}

// watchTick is a tick.
func (b *BML) watchTick(pr *Peer) {
	w := &pr.watch
	w.timer = nil
	if !w.isOn || !pr.IsAlive() || b.closed != nil {
		return
	}
	now := b.eng.Now()
	after := time.Duration(now - w.at)
	wasAway := after > 3*tickPeriod // this rank made no progress calls
	isQuiet := w.posts == pr.posts
	w.at, w.posts = now, pr.posts
	for i := range pr.rails {
		m := &pr.rails[i].meter
		isQuiet = isQuiet && int(m.underWay()) == m.trials
		if m.oldest.look(m, pr.posts); wasAway {
			m.oldest = oldest{upTo: m.posted, posts: pr.posts}
			m.short.least, m.long.least, m.trial.least = 0, 0, 0
		}
	}
	if isQuiet {
		return
	}
	w.timer = b.eng.After(int64(tickPeriod), w.tick)
	w.count++
	w.isComparing = w.count%compareTicks == 0
	late := b.findLate(pr)
	pr.compare()
	pr.followPeer(b.cfg.Rank < pr.rank)
	b.prefer(pr)
	b.leaveLate(pr, late)
	b.tryRails(pr)
	delivered := int64(0)
	for i := range pr.rails {
		m := &pr.rails[i].meter
		m.short.tick()
		m.long.tick()
		m.trial.tick()
		delivered += m.deliveredBytes
	}
	pr.spread.tick(delivered, after)
}

// findLate finds the rails that are late, which makes them slow.
func (b *BML) findLate(pr *Peer) (late RailSet) {
	for i := range pr.rails {
		rl := &pr.rails[i]
		if !pr.up.Has(i) || rl.meter.oldest.ticks == 0 {
			continue
		}
		switch others := pr.overtaking(i); {
		case others < 0: // is it the rail, or the peer?
			pr.watch.isComparing = true
		case rl.meter.oldest.ticks >= lateTicks+otherTicks*others:
			late |= 1 << i
			if rl.grade.late++; rl.grade.good > 0 || !pr.slow.Has(i) {
				pr.becomesSlow(rl)
			}
		}
	}
	return late
}

// overtaking looks for rails that have delivered something that was posted after the oldest
// operations of rail i. It returns the least number of ticks that one of them takes, −1 if there is
// none.
func (pr *Peer) overtaking(i int) int {
	least := -1
	for j := range pr.rails {
		m := &pr.rails[j].meter
		if j == i || !pr.up.Has(j) || int32(m.delivered-pr.rails[i].meter.oldest.posts) <= 0 {
			continue
		}
		if ticks := max(m.oldest.ticks, m.oldest.last); least < 0 || ticks < least {
			least = ticks
		}
	}
	return least
}

// becomesSlow makes a rail slow, or has a slow one prove itself anew.
func (pr *Peer) becomesSlow(rl *Rail) {
	pr.slow |= 1 << rl.index
	rl.grade.good = 0
	rl.grade.need = min(max(2*rl.grade.need, leastGoodTicks), mostGoodTicks)
}

// leaveLate moves operations away from rails that are late: what is queued, and at last what is
// under way.
func (b *BML) leaveLate(pr *Peer, late RailSet) {
	for i := range pr.rails {
		rl := &pr.rails[i]
		m := &rl.meter
		switch {
		case !late.Has(i) || !pr.up.Has(i):
		case int(m.underWay()) > m.trials && m.oldest.ticks >= failTicks+otherTicks*max(pr.overtaking(i), 0):
			b.failRail(rl, &btl.Error{
				Rail: rl.name(), Peer: pr.rank, Class: btl.ClassTimeout, Side: btl.SideBoth, Native: "slow", Err: errSlow,
			})
		case rl != pr.first:
			for q := rl.takeQueue(); !q.Empty(); {
				if op := pop(&q); op.bound {
					push(&rl.queue, op)
				} else {
					b.Send(pr, op)
				}
			}
		}
	}
}

var errSlow = errors.New("operations wait on this rail while another one delivers")

// compare compares what the rails have shown since the last tick.
func (pr *Peer) compare() {
	for i := range pr.rails {
		rl := &pr.rails[i]
		if !pr.up.Has(i) {
			continue
		}
		isSlow := pr.slow.Has(i)
		slowness := pr.slowness(i, (*Rail).trialTime)
		if !isSlow {
			long := pr.slowness(i, (*Rail).longTime)
			if long > 0 {
				rl.grade.slowness += (max(long, 1) - rl.grade.slowness) / 4
			}
			slowness = max(long, pr.slowness(i, (*Rail).shortTime))
		}
		rl.weigh()
		rl.grade.tick(slowness, isSlow)
		switch {
		case !isSlow && rl.grade.bad >= badTicks:
			pr.becomesSlow(rl)
		case isSlow && rl.grade.good >= rl.grade.need:
			pr.slow &^= 1 << i
			rl.grade.bad, rl.grade.slowness = 0, 1
		}
		if rl.grade.bad > 0 {
			pr.watch.isComparing = true
		}
	}
}

// tick takes how much slower than the best other rail a rail was, 0 if that is not known.
func (g *grade) tick(slowness float64, isSlow bool) {
	if g.calm++; isSlow {
		g.calm = 0
	} else if g.calm == calmTicks {
		g.calm, g.need = 0, g.need/2
	}
	switch {
	case slowness == 0:
	case isSlow && slowness < fastFactor:
		g.good++
	case isSlow:
		g.good = 0
	case slowness >= slowFactor:
		g.bad++
	default:
		g.bad = 0
	}
}

// slowness is how much more time rail i takes than the best other one; 0 if one of them is not
// known.
func (pr *Peer) slowness(i int, time func(rl *Rail) float64) float64 {
	mine, best := time(&pr.rails[i]), 0.0
	for j := range pr.rails {
		if j == i || !pr.up.Has(j) {
			continue
		}
		if t := time(&pr.rails[j]); t > 0 && (best == 0 || t < best) {
			best = t
		}
	}
	if mine == 0 || best == 0 {
		return 0
	}
	return mine / best
}

// shortTime is how long a short operation took on a rail since the last tick, and trialTime how
// long a TRIAL took, with an allowance; 0 if not known.
func (rl *Rail) shortTime() float64 { return allowance(rl.meter.short.least) }
func (rl *Rail) trialTime() float64 { return allowance(rl.meter.trial.least) }

func allowance(nanos int64) float64 {
	if nanos == 0 {
		return 0
	}
	return float64(nanos) + leastSlowNanos/(slowFactor-1)
}

// longTime is how long a byte took, by what the link promises; 0 if not known.
func (rl *Rail) longTime() float64 {
	return float64(rl.meter.long.least) * float64(max(rl.module.Attrs().BandwidthMBps, 1))
}

// tryRails posts the TRIALs that are due.
func (b *BML) tryRails(pr *Peer) {
	isLong := pr.watch.count%2 == 1
	for i := range pr.rails {
		rl := &pr.rails[i]
		switch m := &rl.meter; {
		case !pr.up.Has(i):
		case pr.slow&pr.up != 0 && isLong:
			b.postTrial(rl, rl.sendBytes-railBytes, 1)
		case pr.slow&pr.up != 0, pr.watch.isComparing && m.short.least == 0 && m.underWay() == 0:
			b.postTrial(rl, 0, shortTrials)
		}
	}
}

// postTrial posts a TRIAL with so many bytes of padding, if none is under way. Another one follows
// when it is delivered, until they are so many.
func (b *BML) postTrial(rl *Rail, padding, times int) {
	m := &rl.meter
	if times == 0 || m.trials > 0 || !rl.queue.Empty() {
		return
	}
	m.trials++
	rl.peer.watch.posts++ // it is no traffic
	tick, begin, isAlone := rl.peer.watch.count, b.eng.Now(), m.underWay() == 0
	b.postAbout(rl, TagTrial, railHeader{padding: uint32(padding)}, func(err error) {
		if m.trials--; err != nil {
			return
		}
		nanos := b.eng.Now() - begin
		m.trial.add(nanos)
		if padding == 0 && isAlone {
			m.short.add(nanos)
		}
		if tick == rl.peer.watch.count {
			b.postTrial(rl, padding, times-1)
		}
	})
}
