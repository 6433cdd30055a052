package bml

import (
	"errors"
	"math"
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
//     slowFactor times slower in badTicks ticks, and for a TRIAL too, is slow.
//   - A rail is late if its oldest operation waits while another rail delivers what was posted
//     after that. If no other rail has anything to deliver, it gets a TRIAL. So a peer that is
//     stopped or busy makes no rail late. A late rail is slow. What is queued for it goes by
//     another rail.
//   - An operation that has waited for room on a rail for queueTicks goes by another rail that has
//     room. That is evidence against this side if its own operations keep the rail full, and
//     against the peer if none is under way, or none has ended for as long.
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
	// leastSlowness bounds how much credit a rail has for having been faster than the others.
	leastSlowness = 0.25
	// A short operation that takes less than leastSlowNanos longer than on the best rail makes no
	// rail slow.
	leastSlowNanos = 100_000
	// badTicks is in how many ticks in a row a rail has to be slowFactor slower. Ticks that compare
	// nothing do not count, unless unknownTicks follow each other.
	badTicks, unknownTicks = 3, 20
	// A rail that has become slow has to be fast in leastGoodTicks in a row. Each time it becomes
	// slow again, that doubles, up to mostGoodTicks; calmTicks without being slow halve it.
	leastGoodTicks, mostGoodTicks, calmTicks = 8, 32, 200
	// shortTrials is how many short TRIALs follow each other, because the least time counts: one
	// alone may have to wait for the peer.
	shortTrials = 4
	// compareTicks is how often rails that carry nothing are compared with the others.
	compareTicks = 20
	// queueTicks is the age limit of operations that wait for room on a rail.
	queueTicks = 4
)

// watch is the watch over the rails to a peer.
type watch struct {
	isOn  bool            // several rails are up
	timer *progress.Timer // of the next tick; nil if nothing was posted
	tick  func()
	at    int64 // of the last tick, by the engine's clock
	count int   // of ticks
	// isBusy: something but TRIALs was posted since the last tick, or had no room. What waits for
	// room is tried at each turn.
	isBusy bool
	// isComparing: every rail is to be timed before the next tick.
	isComparing bool
}

// grade is what the comparison with other rails has shown of a rail.
type grade struct {
	slowness  float64 // of long operations, by the best other rail; at least leastSlowness
	bad, good int     // ticks in a row in which it was slow, or fast
	need      int     // ticks in a row in which it has to be fast
	calm      int     // ticks since it was slow
	unknown   int     // ticks since it was compared
	late      uint64  // how often it was late
	// isLate: the last tick has found it late. others is how many ticks the rail took then that
	// delivers soonest.
	isLate bool
	others int
}

// watchRails starts or ends the watch when other rails are up than before.
func (pr *Peer) watchRails() { pr.watch.isOn = bits.OnesCount32(uint32(pr.up)) > 1 }

func (b *BML) startWatch(pr *Peer) {
	w := &pr.watch
	if w.tick == nil {
		w.tick = func() { b.watchTick(pr) }
	}
	w.at = b.eng.Now()
	for i := range pr.rails {
		m := &pr.rails[i].meter
		m.oldest = oldest{upTo: m.posted, posts: pr.posts}
		m.tick()
	}
	pr.spread.before = pr.deliveredBytes()
	w.timer = b.eng.After(int64(tickPeriod), w.tick)
}

// watchTick is a tick.
func (b *BML) watchTick(pr *Peer) {
	w := &pr.watch
	w.timer = nil
	if !w.isOn || !pr.IsAlive() {
		return
	}
	now := b.eng.Now()
	after := time.Duration(now - w.at)
	wasAway := after > 3*tickPeriod // this rank made no progress calls
	isQuiet := !w.isBusy
	w.at, w.isBusy = now, false
	for i := range pr.rails {
		m := &pr.rails[i].meter
		isQuiet = isQuiet && m.underWay() == m.trials
		if m.oldest.look(m, pr.posts); wasAway {
			m.oldest = oldest{upTo: m.posted, posts: pr.posts}
			m.short.n, m.long.n, m.trialTimes.n, m.loadedTimes.n, m.longTrials.n = 0, 0, 0, 0, 0
		}
	}
	if isQuiet {
		return
	}
	w.timer = b.eng.After(int64(tickPeriod), w.tick)
	w.count++
	w.isComparing = w.count%compareTicks == 0
	pr.findLate()
	b.compare(pr)
	pr.followPeer(b.cfg.Rank < pr.rank)
	b.prefer(pr)
	b.leaveLate(pr)
	b.leaveQueues(pr)
	b.tryRails(pr)
	for i := range pr.rails {
		m := &pr.rails[i].meter
		m.tick()
	}
	pr.spread.tick(pr.deliveredBytes(), after)
}

// deliveredBytes is how much all rails have delivered so far.
func (pr *Peer) deliveredBytes() (n int64) {
	for i := range pr.rails {
		n += pr.rails[i].meter.deliveredBytes
	}
	return n
}

// findLate finds the rails that are late, which makes them slow.
func (pr *Peer) findLate() {
	for i := range pr.rails {
		rl := &pr.rails[i]
		g := &rl.grade
		g.isLate = false
		if !pr.up.Has(i) || rl.meter.oldest.ticks == 0 {
			continue
		}
		g.others = pr.overtaking(i)
		if g.others < 0 { // is it the rail, or the peer?
			pr.watch.isComparing = true
			continue
		}
		g.isLate = rl.meter.oldest.ticks >= lateTicks+otherTicks*g.others
		if g.isLate {
			if g.late++; g.good > 0 || !pr.slow.Has(i) {
				pr.becomesSlow(rl)
			}
		}
	}
}

// overtaking looks for rails that have delivered something that was posted after the oldest
// operations of rail i: an endpoint delivers in order. It returns the least number of ticks that
// one of them takes, −1 if there is none.
func (pr *Peer) overtaking(i int) int {
	least := -1
	for j := range pr.rails {
		m := &pr.rails[j].meter
		if j == i || !pr.up.Has(j) || m.delivered <= pr.rails[i].meter.oldest.posts {
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

// becomesFast ends that.
func (pr *Peer) becomesFast(rl *Rail) {
	pr.slow &^= 1 << rl.index
	rl.grade.bad, rl.grade.slowness = 0, 1
}

// leaveLate moves operations away from rails that are late: what is queued, and at last what is
// under way. Nothing says which end is at fault.
func (b *BML) leaveLate(pr *Peer) {
	for i := range pr.rails {
		rl := &pr.rails[i]
		m := &rl.meter
		switch {
		case !rl.grade.isLate || !pr.up.Has(i) || pr.up == 1<<i:
		case m.underWay() > m.trials && m.oldest.ticks >= failTicks+otherTicks*rl.grade.others:
			b.failRail(rl, &btl.Error{
				Rail: rl.name(), Peer: pr.rank, Class: btl.ClassTimeout, Side: btl.SideNone, Native: "slow", Err: errSlow,
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

// leaveQueues moves operations that have waited for room for too long to rails that have room. An
// operation that no rail has room for, in fact, is no evidence.
func (b *BML) leaveQueues(pr *Peer) {
	for i := range pr.rails {
		rl := &pr.rails[i]
		moved := false
		for {
			op, other := pr.nextToLeave(rl)
			if op == nil {
				break
			}
			rl.queue.Remove(&op.Op)
			op.moveTo(other)
			b.post(other, op)
			moved = moved || pr.up.Has(int(other.index)) && other.queue.Empty()
		}
		switch {
		case !moved:
		case rl.meter.underWay() == 0, rl.meter.oldest.ticks >= queueTicks:
			// The room is the peer's to give.
			b.countLate(rl)
		default:
			b.waitedHere(rl)
		}
	}
}

// nextToLeave returns the first operation in a rail's queue that has waited for too long and that
// another rail may have room for, and that rail; nil if there is none. It stays in the queue: to
// post another one may call back, and end whatever is queued.
func (pr *Peer) nextToLeave(rl *Rail) (*Op, *Rail) {
	for queued := range rl.queue.All() {
		op := opOf(queued)
		if pr.watch.count-op.queuedAt < queueTicks {
			break // those behind it are younger
		}
		if other := pr.withRoom(rl, op); other != nil {
			return op, other
		}
		if !op.bound {
			break // those behind it find no room either
		}
	}
	return nil, nil
}

// withRoom is a rail that may have room for an operation which waits for room on another one, nil
// if there is none.
func (pr *Peer) withRoom(rl *Rail, op *Op) (best *Rail) {
	set := pr.fast(pr.up)
	if t := op.transfer; t != nil {
		if t.isInterrupted {
			return nil
		}
		set = t.rails(op.access())
	} else if op.bound {
		return nil
	}
	for i := range pr.rails {
		other := &pr.rails[i]
		if other != rl && set.Has(i) && other.queue.Empty() && (op.access() != Fragments || op.Len() <= other.sendBytes) &&
			(best == nil || other.meter.bytes*best.weight < best.meter.bytes*other.weight) {
			best = other
		}
	}
	return best
}

var errSlow = errors.New("operations wait on this rail while another one delivers")

// compare compares what the rails have shown since the last tick. Several are up.
func (b *BML) compare(pr *Peer) {
	for i := range pr.rails {
		rl := &pr.rails[i]
		if !pr.up.Has(i) {
			continue
		}
		isSlow := pr.slow.Has(i)
		trial := pr.slowness(i, trialTimes, trialTimes)
		slowness := pr.slowness(i, trialTimes, loadedTimes)
		if !isSlow {
			long := pr.slowness(i, longTimes, longTimes)
			rl.grade.takeLong(long)
			slowness = max(long, pr.slowness(i, shortTimes, shortTimes))
		}
		rl.weigh()
		rl.grade.tick(slowness, isSlow)
		switch {
		case !isSlow && rl.grade.isSuspect() && trial >= slowFactor:
			pr.becomesSlow(rl)
		case pr.isBeside(rl) && !b.compareBeside(pr, i): // it stays slow
		case isSlow && rl.grade.good >= rl.grade.need:
			pr.becomesFast(rl)
		}
		if rl.grade.bad > 0 {
			pr.watch.isComparing = true
		}
	}
	if pr.up&^pr.slow == 0 { // none is better than the others
		best := -1
		for i := range pr.rails {
			if pr.up.Has(i) && (best < 0 || pr.times(i, best, trialTimes, trialTimes) < 1) {
				best = i
			}
		}
		pr.becomesFast(&pr.rails[best])
	}
}

// isSuspect: the rail may be slow, or its operations have met the peer at other times than those of
// other rails. TRIALs on all rails tell.
func (g *grade) isSuspect() bool { return g.bad >= badTicks }

// tick takes how much slower than the best other rail a rail was, 0 if that is not known.
func (g *grade) tick(slowness float64, isSlow bool) {
	if g.calm++; isSlow {
		g.calm = 0
	} else if g.calm == calmTicks {
		g.calm, g.need = 0, g.need/2
	}
	if g.unknown++; slowness > 0 {
		g.unknown = 0
	} else if g.unknown == unknownTicks {
		g.bad = 0
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

// takeLong takes how much slower than the best other rail a rail was for long operations, 0 if that
// is not known. One tick may be off by a large factor, either way, so the factors are averaged.
func (g *grade) takeLong(slowness float64) {
	if slowness > 0 {
		g.slowness *= math.Pow(max(slowness, leastSlowness)/g.slowness, 0.25)
	}
}

// slowness is how many times as long rail i took as the best other one, by what counts for each of
// them; 0 if that is not known.
func (pr *Peer) slowness(i int, own, others func(rl *Rail) times) (most float64) {
	for j := range pr.rails {
		if j != i && pr.up.Has(j) {
			most = max(most, pr.times(i, j, own, others))
		}
	}
	return most
}

// times is how many times as long rail i took as rail j, since the last tick; 0 if that is not
// known.
func (pr *Peer) times(i, j int, own, other func(rl *Rail) times) float64 {
	a, b := own(&pr.rails[i]), other(&pr.rails[j])
	n := min(a.n, b.n)
	if n == 0 {
		return 0
	}
	return (float64(a.least(n))*a.unit + a.allowance) / (float64(b.least(n))*b.unit + b.allowance)
}

// times is what rails are compared by.
type times struct {
	*timing
	unit, allowance float64
}

func shortTimes(rl *Rail) times  { return times{&rl.meter.short, 1, shortAllowance} }
func trialTimes(rl *Rail) times  { return times{&rl.meter.trialTimes, 1, shortAllowance} }
func loadedTimes(rl *Rail) times { return times{&rl.meter.loadedTimes, 1, shortAllowance} }

// longTimes are by what the link promises.
func longTimes(rl *Rail) times {
	return times{&rl.meter.long, float64(max(rl.module.Attrs().BandwidthMBps, 1)), 0}
}

const shortAllowance = leastSlowNanos / (slowFactor - 1)

// tryRails posts the TRIALs that are due.
func (b *BML) tryRails(pr *Peer) {
	var inDoubt RailSet
	for i := range pr.rails {
		if (pr.slow.Has(i) || pr.rails[i].grade.isSuspect()) && pr.rails[i].beside.rest == 0 {
			inDoubt |= 1 << i
		}
	}
	isRace := inDoubt&pr.up != 0
	for i := range pr.rails {
		rl := &pr.rails[i]
		switch m := &rl.meter; {
		case !pr.up.Has(i):
		case isRace && pr.watch.count%2 == 1:
			b.tryRail(rl, trialBytes, 1)
		case isRace, pr.watch.isComparing && m.short.n == 0 && m.underWay() == 0:
			b.tryRail(rl, 0, shortTrials)
		}
	}
}
