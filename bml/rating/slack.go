package rating

import "math"

// A process that loses its processor for longer than the room lasts leaves its rails empty. Its
// return shows that: no rail delivers for that long, and then everything under way is acknowledged
// at once. Slack is the time by which the room has to last longer. A rail that stalls alone,
// because it loses packets, gets none.

// batch is the deliveries of one progress call, by any rail to the peer.
type batch struct {
	number uint64
	last   int64 // time of the last delivery
	gap    int64 // time without a delivery before the batch
	// isShared: several rails had something under way, so none of them stalled alone.
	isShared bool
}

// deliver notes a delivery by one of the rails.
func (b *batch) deliver(meters []meter, now int64) {
	if gap := now - b.last; gap > batchNanos {
		b.gap = gap
		b.number++
		busy := 0
		for i := range meters {
			if meters[i].under() > 0 {
				busy++
			}
		}
		b.isShared = busy > 1
	}
	b.last = now
}

// slack of one rail.
type slack struct {
	nanos float64
	at    int64  // when it was computed
	batch uint64 // the last one with deliveries by the rail
	end   int64  // meter.posted when that part began; 0 once all of it was delivered
}

// deliver notes a delivery by the rail in a batch.
func (s *slack) deliver(m *meter, b *batch, now int64) {
	if s.batch != b.number {
		s.batch, s.end = b.number, m.posted
	}
	s.nanos *= math.Exp(-float64(now-s.at) / slackMemoryNanos)
	s.at = now
	if s.end == 0 || m.delivered < s.end {
		return
	}
	s.end = 0
	if b.isShared && float64(b.gap) >= lastingGap*(targetNanos+s.nanos) {
		s.nanos = min(2*s.nanos+targetNanos, mostSlackNanos)
	}
}
