package rating

import "math"

// meter measures one rail.
type meter struct {
	promised float64 // rate, used until the first sample
	// posted and delivered count the bytes since the incarnation began; their difference is under
	// way.
	posted, delivered int64
	// bytes were delivered during busy, the time with something under way. Both fade.
	bytes, busy float64
	// full is the part of busy in which the rail's room was full. Only then is the rate all that
	// the rail can deliver.
	full    float64
	last    int64   // time of the last delivery, or when the rail became busy
	sampled int64   // time of the last sample
	isFirst bool    // no sample since the rail became busy
	base    float64 // round trip of an empty rail; negative: not known
	// promisedTrip is the round trip that counts until base is known.
	promisedTrip float64
	room         float64 // bytes, as far as it has grown
	slack        slack
	// stall is the longest recent time without a delivery while something was under way, beyond the
	// base round trip. It fades from stalledAt on.
	stall     float64
	stalledAt int64
	// lagsSince is when the rail began to lag; 0: it does not.
	lagsSince int64
	// away is when this process last made progress again after a pause. Operations posted before
	// are no samples.
	away int64
}

// Mark is what the caller keeps for a piece from Posted to Delivered.
type Mark struct {
	at    int64 // when it was posted
	end   int64 // meter.posted, with the piece
	under int64 // bytes under way, with the piece
}

func newMeter(promised float64, now int64) meter {
	return meter{promised: min(max(promised, leastRate), mostRate), base: -1, room: leastRoom, last: now, sampled: now, away: math.MinInt64}
}

func (m *meter) under() int64 { return m.posted - m.delivered }

func (m *meter) isMeasured() bool { return m.bytes > 0 }

// trip is the round trip of an empty rail, as far as it is known.
func (m *meter) trip() float64 {
	if m.base < 0 {
		return m.promisedTrip
	}
	return m.base
}

// isStale reports whether the rail is unused, and its last sample is old.
func (m *meter) isStale(now int64) bool {
	return m.under() == 0 && float64(now-m.sampled) > memoryNanos
}

func (m *meter) post(n, now int64) Mark {
	if m.under() == 0 {
		if m.isStale(now) {
			m.room, m.lagsSince = leastRoom, 0
		}
		m.last, m.isFirst = now, true
	}
	m.posted += n
	return Mark{at: now, end: m.posted, under: m.under()}
}

func (m *meter) deliver(n int64, was Mark, b *batch, now int64) {
	m.delivered += n
	if was.at < m.away {
		m.last = now
		return
	}
	m.takeRoundTrip(was, now)
	m.stall, m.stalledAt = min(m.stallNow(n, now), mostStallNanos), now
	if was.under < LeastPiece { // a short message alone shows only the round trip
		m.last = now
		return
	}
	m.slack.deliver(m, b, now)
	wasFull := m.isFull(n, now)
	span := float64(now - m.last)
	if m.isFirst { // span includes the round trip
		span = max(span-m.trip(), span/2)
		m.isFirst = false
	}
	fading := math.Exp(-float64(now-m.sampled) / memoryNanos)
	m.bytes = fading*m.bytes + float64(n)
	m.busy = fading*m.busy + span
	m.full *= fading
	if wasFull {
		m.full += span
	}
	m.last, m.sampled = now, now
	m.room = min(max(m.room, leastRoom)+float64(n), m.aim(now))
}

// takeRoundTrip takes the round trip of a piece. A piece on an almost empty rail sets the base
// round trip, which may have become longer. Other pieces can only lower it.
func (m *meter) takeRoundTrip(was Mark, now int64) {
	trip := float64(now - was.at)
	isAlone := m.base < 0 || was.under <= leastRoom
	if !isAlone && trip >= m.base {
		return
	}
	// The time to send its bytes does not count. If that is all of the time, the whole trip counts:
	// otherwise the base would stay 0.
	if own := float64(was.under) / m.rate(now); m.isMeasured() && trip > own {
		trip -= own
	}
	if isAlone {
		m.base = trip
	} else {
		m.base = min(m.base, trip)
	}
}

// stallNow is how long a piece may be held up, by the recent stalls of the rail. ended bytes were
// delivered just now.
func (m *meter) stallNow(ended, now int64) float64 {
	faded := m.stall * math.Exp(-float64(now-m.stalledAt)/stallMemoryNanos)
	if m.under()+ended == 0 {
		return faded
	}
	return max(faded, float64(now-m.last)-m.trip())
}

// rate in bytes a nanosecond. Time without a delivery counts at once.
func (m *meter) rate(now int64) float64 {
	if !m.isMeasured() {
		return m.promised
	}
	busy := m.busy
	if m.under() > 0 {
		busy += float64(now - m.last)
	}
	return min(max(m.bytes/max(busy, m.bytes/mostRate), leastRate), mostRate)
}

// isFull reports whether the rail's room is full, with the ended bytes.
func (m *meter) isFull(ended, now int64) bool { return float64(m.under()+ended) >= m.roomNow(now) }

// isTried reports whether the rail's room was full for most of busy.
func (m *meter) isTried(now int64) bool {
	busy, full := m.busy, m.full
	if m.under() > 0 {
		busy += float64(now - m.last)
		if m.isFull(0, now) {
			full += float64(now - m.last)
		}
	}
	return m.isMeasured() && full > busy/2
}

// aim is the room that the rate asks for, in bytes.
func (m *meter) aim(now int64) float64 {
	if !m.isMeasured() {
		return leastRoom
	}
	return min(max(m.rate(now)*(targetNanos+m.slack.nanos+baseFactor*m.trip()), leastRoom), mostRoom)
}

// roomNow is how many bytes may be under way.
func (m *meter) roomNow(now int64) float64 { return min(m.aim(now), m.room) }

func (m *meter) hasRoom(now int64) bool {
	return m.under() == 0 || !m.isFull(0, now)
}

// piece is the length of the next piece, in bytes. all is the sum of the rates of the rails that it
// may go by. Pieces get shorter at the end, so that the rails finish together.
func (m *meter) piece(d Demand, longest int64, all float64, now int64) int64 {
	n := float64(LeastPiece)
	if m.isMeasured() {
		rate := m.rate(now)
		n = max(min(m.roomNow(now)/roomParts, max(d.bytes()*rate/all/2, min(rate*leastPieceNanos, mostLeastPiece))), LeastPiece)
	}
	return min(int64(n), longest, d.Left)
}

// expect is how long n more bytes take until they arrive.
func (m *meter) expect(n, now int64) float64 {
	at := m.trip()/2 + float64(m.under()+n)/m.rate(now)
	return m.overdue(at, now)
}

// overdue corrects an expected time: an overdue delivery should take as long again.
func (m *meter) overdue(at float64, now int64) float64 {
	if m.under() == 0 {
		return at
	}
	return max(at, float64(now-m.last)-m.trip())
}

// due is how long a piece under way still takes until it arrives.
func (m *meter) due(piece Mark, now int64) float64 {
	ahead := float64(max(piece.end-m.delivered, 0))
	at := ahead/m.rate(now) - float64(now-m.last)
	return max(m.overdue(at, now), 0) + m.trip()/2
}
