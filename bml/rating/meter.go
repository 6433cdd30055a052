package rating

import "math"

// meter is what is known of one rail.
type meter struct {
	promised float64 // rate, used until the first sample
	// posted and delivered count the bytes since the incarnation began; their difference is under
	// way.
	posted, delivered int64
	// bytes and busy are what was delivered, and in what time something was under way. Both fade.
	bytes, busy float64
	last        int64   // when something was delivered last, or the rail became busy
	sampled     int64   // when something was delivered last
	isFirst     bool    // nothing was delivered since the rail became busy
	base        float64 // round trip of an empty rail; negative: not known
	room        float64 // as far as it has grown
	// away is when this process came back after it had stood still. What was posted before tells
	// nothing about the rail.
	away int64
}

// Mark is what the caller keeps of a piece from Posted to Delivered.
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

// isStale reports whether the rail is unused, and its last sample is old.
func (m *meter) isStale(now int64) bool {
	return m.under() == 0 && float64(now-m.sampled) > memoryNanos
}

func (m *meter) post(n, now int64) Mark {
	if m.under() == 0 {
		if m.isStale(now) {
			m.room = leastRoom
		}
		m.last, m.isFirst = now, true
	}
	m.posted += n
	return Mark{at: now, end: m.posted, under: m.under()}
}

func (m *meter) deliver(n int64, was Mark, now int64) {
	m.delivered += n
	if was.at < m.away {
		m.last = now
		return
	}
	m.takeRoundTrip(was, now)
	span := float64(now - m.last)
	if m.isFirst { // it has the round trip in it
		span = max(span-max(m.base, 0), span/2)
		m.isFirst = false
	}
	fading := math.Exp(-float64(now-m.sampled) / memoryNanos)
	m.bytes = fading*m.bytes + float64(n)
	m.busy = fading*m.busy + span
	m.last, m.sampled = now, now
	m.room = min(max(m.room, leastRoom)+float64(n), m.aim(now))
}

// takeRoundTrip takes the round trip of a piece. One that met almost nothing shows the base round
// trip, which may be longer than before. Others show only a shorter one.
func (m *meter) takeRoundTrip(was Mark, now int64) {
	trip := float64(now - was.at)
	isAlone := m.base < 0 || was.under <= leastRoom
	if !isAlone && trip >= m.base {
		return
	}
	// The time of its own bytes does not count. If nothing is left without it, all of it does: else
	// rate and base would explain each other, and the base would stay 0.
	if own := float64(was.under) / m.rate(now); m.isMeasured() && trip > own {
		trip -= own
	}
	if isAlone {
		m.base = trip
	} else {
		m.base = min(m.base, trip)
	}
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

// aim is the room that the rate asks for, in bytes.
func (m *meter) aim(now int64) float64 {
	if !m.isMeasured() {
		return leastRoom
	}
	return min(max(m.rate(now)*(targetNanos+baseFactor*max(m.base, 0)), leastRoom), mostRoom)
}

// roomNow is how many bytes may be under way.
func (m *meter) roomNow(now int64) float64 { return min(m.aim(now), m.room) }

func (m *meter) hasRoom(now int64) bool {
	return m.under() == 0 || float64(m.under()) < m.roomNow(now)
}

// piece is how long the next piece is, in bytes. left is what the message has left, all the sum of
// the rates of the rails that it may go by.
func (m *meter) piece(left, longest int64, all float64, now int64) int64 {
	n := float64(LeastPiece)
	if m.isMeasured() {
		n = max(min(m.roomNow(now)/roomParts, float64(left)*m.rate(now)/all/2), LeastPiece)
	}
	return min(int64(n), longest, left)
}

// expect is how long n more bytes take until they are there.
func (m *meter) expect(n, now int64) float64 {
	at := max(m.base, 0)/2 + float64(m.under()+n)/m.rate(now)
	return m.overdue(at, now)
}

// overdue corrects when something is expected: what is overdue will take as long again.
func (m *meter) overdue(at float64, now int64) float64 {
	if m.under() == 0 {
		return at
	}
	return max(at, float64(now-m.last)-max(m.base, 0))
}

// due is how long a piece that is under way still takes until it is there.
func (m *meter) due(piece Mark, now int64) float64 {
	ahead := float64(max(piece.end-m.delivered, 0))
	at := ahead/m.rate(now) - float64(now-m.last)
	return max(m.overdue(at, now), 0) + max(m.base, 0)/2
}
