package rating

import (
	"math"
	"math/bits"
)

// Most is how many rails a Judge can rate.
const Most = 32

// Set is a set of rails, by their numbers.
type Set uint32

// Has reports whether a rail is in the set.
func (s Set) Has(rail int) bool { return s>>rail&1 != 0 }

// Judge rates the rails to one peer. Use New. Rails are numbered from 0.
type Judge struct {
	meters []meter
	budget float64 // bytes that may be sent twice
	batch  batch
}

// New makes a Judge of up to Most rails. promised are their rates, in bytes a nanosecond.
func New(promised []float64, now int64) *Judge {
	j := &Judge{meters: make([]meter, len(promised)), budget: firstBudget}
	for i, rate := range promised {
		j.meters[i] = newMeter(rate, now)
	}
	return j
}

// Promise sets the round trip of a rail, in nanoseconds, until one is measured.
func (j *Judge) Promise(rail int, trip float64) { j.meters[rail].promisedTrip = max(trip, 0) }

// Renew forgets the samples of a rail, and what it has under way: its next incarnation begins.
func (j *Judge) Renew(rail int, now int64) {
	promisedTrip := j.meters[rail].promisedTrip
	j.meters[rail] = newMeter(j.meters[rail].promised, now)
	j.meters[rail].promisedTrip = promisedTrip
}

// Posted says that n bytes were given to a rail. The caller keeps the mark for Delivered.
func (j *Judge) Posted(rail int, n, now int64) Mark { return j.meters[rail].post(n, now) }

// Delivered says that bytes that were posted are at the peer.
func (j *Judge) Delivered(rail int, n int64, mark Mark, now int64) {
	j.batch.deliver(j.meters, now)
	j.meters[rail].deliver(n, mark, &j.batch, now)
	j.budget = min(j.budget+budgetShare*float64(n), mostBudget)
}

// Dropped says that the delivery of n posted bytes is not confirmed. It is no sample.
func (j *Judge) Dropped(rail int, n int64) { j.meters[rail].delivered += n }

// Returned says that this process made no progress from since to now, for so long that operations
// posted before now are no samples. A rail that was silent before is still silent.
func (j *Judge) Returned(since, now int64) {
	for i := range j.meters {
		m := &j.meters[i]
		m.away, m.last, m.lagsSince = now, now-max(since-m.last, 0), 0
	}
}

// Under is how many bytes a rail has under way.
func (j *Judge) Under(rail int) int64 { return j.meters[rail].under() }

// Measured is the rate of a rail in bytes a nanosecond, 0 if it was not measured, or if the Judge
// is nil.
func (j *Judge) Measured(rail int, now int64) float64 {
	if j == nil || !j.meters[rail].isMeasured() {
		return 0
	}
	return j.meters[rail].rate(now)
}

// RoundTrip is the base round trip of a rail in nanoseconds, 0 if it is not known.
func (j *Judge) RoundTrip(rail int) int64 {
	if j == nil {
		return 0
	}
	return int64(max(j.meters[rail].base, 0))
}

// Demand is how much the messages to the peer still have to hand out.
type Demand struct {
	// Left is what the message that wants the next piece has left, at least 1 byte.
	Left int64
	// All is what all messages have left, and Messages how many have something left.
	All      int64
	Messages int
	// Stays: a piece cannot be sent twice, so the message waits for it even if its rail stalls.
	Stays bool
	// Full are the rails whose endpoints have no room.
	Full Set
}

// bytes estimates how much has to be moved until the message has arrived, if messages take turns.
func (d *Demand) bytes() float64 {
	return max(float64(d.Left), min(float64(d.Left)*float64(d.Messages), float64(d.All)))
}

// Next chooses the rail of a set that takes the next piece of a message, and the length of the
// piece, at most longest(rail). The rail is negative if the piece has to wait for the next
// delivery: no rail has room, or one without room would deliver everything sooner.
func (j *Judge) Next(set Set, d Demand, longest func(rail int) int64, now int64) (rail int, bytes int64) {
	all, load := 0.0, d.bytes()
	for i := range j.meters {
		if set.Has(i) {
			all += j.meters[i].rate(now)
			load += float64(j.meters[i].under())
		}
	}
	best, some := -1, -1
	bestAt, someAt := math.Inf(1), math.Inf(1)
	for i := range j.meters {
		if !set.Has(i) {
			continue
		}
		m := &j.meters[i]
		at := m.expect(m.piece(d, longest(i), all, now), now)
		at += m.stallNow(0, now)
		if d.Stays {
			at += m.trip() / 2
		}
		if at < bestAt || best < 0 {
			best, bestAt = i, at
		}
		if (at < someAt || some < 0) && m.hasRoom(now) && !d.Full.Has(i) {
			some, someAt = i, at
		}
	}
	switch {
	case some < 0:
		return -1, 0
	case some != best && someAt > j.meters[best].soonest(load/all, d.Stays, now):
		return -1, 0
	}
	return some, j.meters[some].piece(d, longest(some), all, now)
}

// soonest is the expected time until the load of all rails has arrived, if this rail delivers last.
// load is that time without round trip and stalls.
func (m *meter) soonest(load float64, stays bool, now int64) float64 {
	at := load + m.trip()/2 + m.stallNow(0, now)
	if stays {
		at += m.trip() / 2
	}
	return at
}

// Due is how long a piece under way still takes until it arrives, in nanoseconds.
func (j *Judge) Due(rail int, piece Mark, now int64) float64 { return j.meters[rail].due(piece, now) }

// Again chooses the rail of a set that should also send a piece that is under way, and due in due
// nanoseconds. The rail is negative if that gains too little, or the budget is spent. It is never
// the rail that has the piece. The caller has to post the piece: the budget is charged.
func (j *Judge) Again(set Set, bytes int64, due float64, now int64) (rail int) {
	rail = -1
	if j.budget < float64(bytes) {
		return rail
	}
	soonest := due / margin
	for i := range j.meters {
		m := &j.meters[i]
		if !set.Has(i) || !m.hasRoom(now) {
			continue
		}
		// A rail that has stalled recently has to gain more than its stall.
		if at := m.expect(bytes, now) + m.trip()/2; at < soonest && at < due-m.stallNow(0, now) {
			rail, soonest = i, at
		}
	}
	if rail >= 0 {
		j.budget -= float64(bytes)
	}
	return rail
}

// Short chooses the rail of a set for short messages. The present rail stays unless another
// measured one delivers much sooner. It need not be in the set. To keep messages in order, the
// caller should ask while nothing is under way by the present rail.
func (j *Judge) Short(set Set, present int, bytes, now int64) (rail int) {
	if set&(set-1) == 0 { // one rail, or none
		if set == 0 {
			return present
		}
		return bits.TrailingZeros32(uint32(set))
	}
	rail, soonest := -1, math.Inf(1)
	if set.Has(present) {
		rail, soonest = present, j.meters[present].expectShort(bytes, now)
	}
	for i := range j.meters {
		m := &j.meters[i]
		if !set.Has(i) || i == present {
			continue
		}
		at := m.expectShort(bytes, now)
		if !m.isMeasured() && rail >= 0 {
			continue
		}
		if at*margin < soonest || rail < 0 {
			rail, soonest = i, at
		}
	}
	return rail
}

// expectShort is expect for a short message, which waits while the rail stalls.
func (m *meter) expectShort(n, now int64) float64 { return m.expect(n, now) + m.stallNow(0, now) }

// Stale returns the unused rails of a set whose last sample is old. Each should carry a trial of
// LeastPiece bytes while a long message is under way: without traffic a slow rail never shows that
// it has recovered.
func (j *Judge) Stale(set Set, now int64) (stale Set) {
	for i := range j.meters {
		if set.Has(i) && j.meters[i].isStale(now) {
			stale |= 1 << i
		}
	}
	return stale
}

// Slow returns the rails of a set that have their room full, and deliver less than a quarter of
// what another one delivers. A rail with little load is not called slow. A nil Judge returns none.
func (j *Judge) Slow(set Set, now int64) (slow Set) {
	if j == nil {
		return 0
	}
	best := 0.0
	for i := range j.meters {
		if set.Has(i) && j.meters[i].isMeasured() {
			best = max(best, j.meters[i].rate(now))
		}
	}
	for i := range j.meters {
		if m := &j.meters[i]; set.Has(i) && m.isTried(now) && m.rate(now)*slowFactor < best {
			slow |= 1 << i
		}
	}
	return slow
}

// Lags reports whether a rail has delivered much less than could, in bytes a nanosecond, for
// lagNanos. The caller asks at each tick. A rail with little under way does not lag.
func (j *Judge) Lags(rail int, could float64, now int64) bool {
	m := &j.meters[rail]
	switch {
	case m.rate(now)*lagFactor >= could:
		m.lagsSince = 0
	case m.lagsSince == 0 && m.under() >= leastRoom:
		m.lagsSince = now
	}
	return m.lagsSince != 0 && float64(now-m.lagsSince) > lagNanos
}
