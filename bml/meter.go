package bml

import "slices"

// meter is what the operations on a rail show of it. Only the rails to one peer are compared: a
// peer that is busy is slow on all of them.
type meter struct {
	// posted counts the operations that endpoints have accepted, ended those that have ended since.
	// Both wrap.
	posted, ended  uint32
	bytes          int64 // of the operations under way
	deliveredBytes int64 // so far
	trials         int32 // TRIALs and TRIALACKs among them
	// delivered is the number, by Peer.posts, of the last operation that was delivered.
	delivered uint64
	oldest    oldest

	// timed is the operation whose delivery is being timed, nil if there is none. It was posted at
	// timedAt, as the last of timedBytes under way.
	timed      *Op
	timedAt    int64
	timedBytes int64
	short      timing // of short operations, in nanoseconds
	long       timing // of long ones, in picoseconds for each byte under way
	// How much longer TRIALs took than promised, in nanoseconds: without and with what they waited
	// for the load of the rail.
	trialTimes, loadedTimes timing
	// Of long TRIALs, in picoseconds for each byte of them and ahead of them.
	longTrials timing
	// trial is the last TRIAL. fragments counts its fragments that have not ended.
	trial     trial
	fragments int
}

// timing is how long operations of one kind took. The least time tells most, because the peer may
// be busy. But the least of many is less than the least of few: two rails are compared by equally
// many.
type timing struct {
	samples [samplesPerTick]int64 // since the last tick
	n       int                   // how many there are
	usual   int64                 // a moving average of the median of each tick; 0: not known
	left    int                   // how many more operations may be timed before the next tick
}

const (
	// An operation with at most shortBytes under way is short. One with at least longBytes tells
	// how long a byte takes.
	shortBytes, longBytes = 16 << 10, 48 << 10
	// samplesPerTick bounds what the clock costs.
	samplesPerTick = 8
	// mostTicks bounds oldest.last.
	mostTicks = 20
)

func (t *timing) add(sample int64) {
	if t.n < len(t.samples) {
		t.samples[t.n] = max(sample, 1)
		t.n++
	}
}

// least is the least of the first n samples, 0 if there is none.
func (t *timing) least(n int) int64 {
	if n == 0 {
		return 0
	}
	return slices.Min(t.samples[:n])
}

// tick ends a tick.
func (t *timing) tick() {
	t.left = samplesPerTick
	if t.n == 0 {
		return
	}
	slices.Sort(t.samples[:t.n])
	if median := t.samples[t.n/2]; t.usual == 0 {
		t.usual = median
	} else {
		t.usual += (median - t.usual) / 8
	}
	t.n = 0
}

// rate is what a usual time for a byte, in picoseconds, comes to in 10⁶ bytes a second; 0 if not
// known.
func (t *timing) rate() int64 {
	if t.usual == 0 {
		return 0
	}
	return 1e6 / t.usual
}

// tick ends a tick for all kinds of operations.
func (m *meter) tick() {
	m.short.tick()
	m.long.tick()
	m.trialTimes.tick()
	m.loadedTimes.tick()
	m.longTrials.tick()
}

// oldest watches the operations of a rail that were under way at some tick, until all have ended.
type oldest struct {
	upTo  uint32 // meter.posted then
	posts uint64 // Peer.posts then
	// ticks is how many ticks have found one of them under way. last is what that was in the end
	// for those watched before, less one for each tick that found none.
	ticks, last int
}

// look is called at each tick.
func (o *oldest) look(m *meter, posts uint64) {
	if m.underWay() > 0 && int32(m.ended-o.upTo) < 0 {
		o.ticks++
		return
	}
	*o = oldest{upTo: m.posted, posts: posts, last: min(max(o.ticks, o.last-1), mostTicks)}
}

// underWay is the number of operations that the endpoint has.
func (m *meter) underWay() int32 { return int32(m.posted - m.ended) }

// begin counts an operation that is about to be given to the endpoint.
func (b *BML) begin(rl *Rail, op *Op) {
	pr, m := rl.peer, &rl.meter
	pr.posts++
	op.post, op.bytes = pr.posts, int32(op.Len())
	if op.Tag == TagTrial {
		if t := &m.trial; t.posted == 0 {
			t.begin, t.ahead, t.isAlone = b.eng.Now(), m.bytes, m.underWay() == 0
		}
		m.trial.posted++
	}
	m.posted++
	m.bytes += int64(op.bytes)
	if isTrial(op.Tag) {
		m.trials++
		return
	}
	pr.watch.isBusy = true
	if m.timed == nil && m.isTimed() {
		m.timed, m.timedAt, m.timedBytes = op, b.eng.Now(), m.bytes
	}
	if pr.watch.isOn && pr.watch.timer == nil {
		b.startWatch(pr)
	}
}

// isTimed reports whether an operation is to be timed that was posted just now, and counts it.
func (m *meter) isTimed() bool {
	t := &m.short
	switch {
	case m.bytes >= longBytes:
		t = &m.long
	case m.bytes > shortBytes:
		return false
	}
	if t.left == 0 {
		return false
	}
	t.left--
	return true
}

// undo takes back begin: the endpoint did not take the operation.
func (m *meter) undo(op *Op) {
	m.posted--
	m.bytes -= int64(op.bytes)
	if isTrial(op.Tag) {
		m.trials--
	}
	if op.Tag == TagTrial {
		m.trial.posted--
	}
	if m.timed == op {
		m.timed = nil
	}
}

// finish counts an operation that the endpoint is done with.
func (b *BML) finish(op *Op, isDelivered bool) {
	m := &op.peer.rails[op.rail].meter
	m.ended++
	m.bytes -= int64(op.bytes)
	if isTrial(op.Tag) {
		m.trials--
	}
	if isDelivered {
		m.deliveredBytes += int64(op.bytes)
		m.delivered = max(m.delivered, op.post)
	}
	if m.timed == op {
		m.timed = nil
		if isDelivered {
			m.sample(b.eng.Now() - m.timedAt)
		}
	}
}

// sample notes how long the timed operation took.
func (m *meter) sample(nanos int64) {
	if m.timedBytes < longBytes {
		m.short.add(nanos)
	} else {
		m.long.add(nanos * 1000 / m.timedBytes)
	}
}
