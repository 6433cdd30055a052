package network

import "math"

// TCP is one direction of a TCP connection: slow start, additive increase, fast retransmission with
// selective acknowledgements, retransmission time-outs. A byte that was written and not delivered
// is in the kernel's buffer, on the wire, or lost. Use NewTCP.
type TCP struct {
	clock     Clock
	out, back *Link

	frames          []frame
	written         int64 // bytes
	next            int64 // the first byte that was never sent
	window          float64
	threshold       float64
	flight          int       // bytes
	sent            []segment // from number first on
	first           int64
	lost            []segment // to be sent again
	received        int64
	early           map[int64]int64 // by first byte: segments that arrived beyond received
	recoverTo       int64           // losses before it were counted already
	isTimedOut      bool            // the last loss was found by a time-out
	trip, deviation float64         // smoothed round trip, and its mean deviation
	backoff         int
	deadline        int64
	isArmed         bool
	sentAt          int64
	ackArriveAt     int64 // of the last acknowledgement: they stay in order
}

type frame struct {
	end    int64
	arrive func()
}

type segment struct {
	from, to, at int64
	isOver       bool
}

const (
	// segmentBytes is the payload of an Ethernet frame.
	segmentBytes = 1448
	// firstWindow is the initial window of RFC 6928, in segments.
	firstWindow = 10
	// leastTimeout and mostTimeout bound the retransmission time-out (Linux).
	leastTimeout, mostTimeout = 200 * Millisecond, 120 * Second
	mostBackoff               = 8
	// ackLossDivisor: the loss of an acknowledgement matters less often than the loss of a segment,
	// because later acknowledgements repeat it.
	ackLossDivisor = 4
)

// NewTCP makes a connection over the link out. Its acknowledgements use the link back.
func NewTCP(clock Clock, out, back *Link) *TCP {
	now := clock.Now()
	trip := float64(out.Delay(now) + back.Delay(now)) // of the handshake
	return &TCP{
		clock: clock, out: out, back: back, window: firstWindow * segmentBytes, threshold: 1 << 30,
		early: map[int64]int64{}, trip: trip, deviation: trip / 2,
	}
}

// Write implements Conn.
func (t *TCP) Write(bytes int, arrive func()) {
	t.written += int64(bytes)
	t.frames = append(t.frames, frame{t.written, arrive})
	t.pump()
}

func (t *TCP) timeout() int64 {
	return min(max(leastTimeout, int64(t.trip+4*t.deviation))<<t.backoff, mostTimeout)
}

// pump sends what the window allows.
func (t *TCP) pump() {
	now := t.clock.Now()
	if t.flight == 0 && now-t.sentAt > t.timeout() { // slow start after idle
		t.window = min(t.window, firstWindow*segmentBytes)
	}
	for t.flight == 0 || float64(t.flight+segmentBytes) <= t.window {
		var s segment
		switch {
		case len(t.lost) > 0:
			s = t.lost[0]
			t.lost = t.lost[1:]
			if s.to <= t.received { // only its acknowledgement was lost
				continue
			}
		case t.next < t.written:
			s = segment{from: t.next, to: min(t.next+segmentBytes, t.written)}
			t.next = s.to
		default:
			return
		}
		t.transmit(s)
	}
}

func (t *TCP) transmit(s segment) {
	now := t.clock.Now()
	if t.flight == 0 {
		t.deadline = now + t.timeout()
	}
	s.at, s.isOver = now, false
	number := t.first + int64(len(t.sent))
	t.sent = append(t.sent, s)
	t.flight += int(s.to - s.from)
	t.sentAt = now
	if !t.isArmed {
		t.isArmed = true
		t.clock.After(t.timeout(), t.alarm)
	}
	t.out.Send(int(s.to-s.from), func() { t.arrive(number, s.from, s.to) })
}

// arrive is called at the receiver.
func (t *TCP) arrive(number, from, to int64) {
	if from > t.received {
		t.early[from] = to
	}
	if from <= t.received && to > t.received {
		t.received = to
		for {
			to, ok := t.early[t.received]
			if !ok {
				break
			}
			delete(t.early, t.received)
			t.received = to
		}
	}
	now := t.clock.Now()
	p := t.back.Loss(now) / ackLossDivisor
	if isLost := t.back.Silent(now) || p > 0 && t.back.rng.Float64() < p; !isLost {
		t.ackArriveAt = max(t.ackArriveAt, now+t.back.wait())
		t.clock.After(t.ackArriveAt-now, func() { t.acknowledged(number) })
	}
	for len(t.frames) > 0 && t.frames[0].end <= t.received {
		f := t.frames[0]
		t.frames = t.frames[1:]
		f.arrive()
	}
}

// acknowledged is called at the sender for each segment that has arrived.
func (t *TCP) acknowledged(number int64) {
	i := number - t.first
	if i < 0 {
		return
	}
	if s := &t.sent[i]; !s.isOver {
		s.isOver = true
		t.take(s)
	}
	for k := int64(0); k <= i-3; k++ { // three later ones have arrived
		s := &t.sent[k]
		if s.isOver {
			continue
		}
		s.isOver = true
		t.flight -= int(s.to - s.from)
		t.lost = append(t.lost, *s)
		if s.from >= t.recoverTo {
			t.threshold = max(t.window/2, 2*segmentBytes)
			t.window, t.recoverTo, t.isTimedOut = t.threshold, t.next, false
		}
	}
	n := 0
	for n < len(t.sent) && t.sent[n].isOver {
		n++
	}
	t.sent = t.sent[n:]
	t.first += int64(n)
	t.pump()
}

// take counts a segment that has arrived.
func (t *TCP) take(s *segment) {
	n := int(s.to - s.from)
	wasLimited := float64(t.flight) > t.window/2
	t.flight -= n
	trip := float64(t.clock.Now() - s.at)
	t.deviation += (math.Abs(trip-t.trip) - t.deviation) / 4
	t.trip += (trip - t.trip) / 8
	t.backoff = 0
	t.deadline = t.clock.Now() + t.timeout()
	switch {
	case !wasLimited, s.from < t.recoverTo && !t.isTimedOut:
	case t.window < t.threshold:
		t.window += float64(n)
	default:
		t.window += segmentBytes * float64(n) / t.window
	}
}

// alarm is called when the retransmission time-out may be over.
func (t *TCP) alarm() {
	t.isArmed = false
	now := t.clock.Now()
	if t.flight == 0 {
		return
	}
	if now < t.deadline {
		t.isArmed = true
		t.clock.After(t.deadline-now, t.alarm)
		return
	}
	t.threshold = max(float64(t.flight)/2, 2*segmentBytes)
	var again []segment
	for _, s := range t.sent {
		if !s.isOver {
			again = append(again, s)
		}
	}
	t.first += int64(len(t.sent))
	t.sent = t.sent[:0]
	t.lost = append(again, t.lost...)
	t.flight, t.window, t.recoverTo, t.isTimedOut = 0, segmentBytes, t.next, true
	t.backoff = min(t.backoff+1, mostBackoff)
	t.pump()
}

// drop discards the bytes that were not sent yet, because the program that wrote them has ended.
func (t *TCP) drop() { t.written, t.lost, t.frames = t.next, nil, nil }

// Close ends the connection. It drops frames that were not completely sent, and returns their
// number. All other frames arrive, after retransmission if necessary.
func (t *TCP) Close() (dropped int) {
	t.written = t.next
	kept := len(t.frames)
	for kept > 0 && t.frames[kept-1].end > t.next {
		kept--
	}
	dropped = len(t.frames) - kept
	t.frames = t.frames[:kept]
	return dropped
}
