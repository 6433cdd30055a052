package coll

import (
	"maps"
	"slices"

	"github.com/mpigo/mpigo/pml"
)

// A rank that refuses collectives one after the other may be far ahead of another rank, which makes
// no progress. So at most maxOnTheWay REVOKEs to one rank are on the way. Later given-up
// collectives are kept as spans, which are sent when one of these REVOKEs is delivered. Nearly
// always, such a collective only extends the last span.
//
// A rank whose message is discarded has to know the reason before the answer. So the team sends a
// rank's spans at once before any answer to it. The number of answers is bounded by that rank's own
// messages.

// maxOnTheWay bounds the REVOKEs of a team to one rank that are not delivered, and maxSpans the
// spans that wait.
const maxOnTheWay, maxSpans = 16, 16

// span is consecutive collectives that this rank has given up for one reason.
type span struct {
	tag     int // of the first
	further int // how many follow it
	rank    int // see revokeBody
	reason  Reason
}

// telling has the REVOKEs and spans for one rank of the job.
type telling struct {
	onTheWay int // REVOKEs
	spans    []span
}

// contains reports whether a span has a sequence number.
func (s *span) contains(seq int) bool {
	d := distance(numberOf(s.tag), seq)
	return 0 <= d && d <= s.further
}

// last is the last number of a span.
func (s *span) last() int { return (numberOf(s.tag) + s.further) % SequenceNumbers }

// extend adds a number to a span if it is the next one, and given up for the same reason. It
// reports whether it did.
func (s *span) extend(seq, rank int, reason Reason) (same bool) {
	if s.rank != rank || s.reason != reason || seq != nextNumber(s.last()) {
		return false
	}
	s.further++
	return true
}

// cover makes a span reach a number, although not all collectives in between were given up. These
// fail, too, like later ones beyond maxFailed.
func (s *span) cover(seq, self int) {
	if d := distance(numberOf(s.tag), seq); d < 0 {
		s.tag, s.further = seq+formOf(s.tag), s.further-d
	} else {
		s.further = max(s.further, d)
	}
	s.rank, s.reason = self, Failed
}

// tell tells a rank of the job that this rank has given a collective up: at once, or when fewer
// REVOKEs are on the way to that rank. A persistent collective sends each rank one REVOKE for its
// starts, so these need no bound.
func (t *Team) tell(world, tag int, err *RevokedError) {
	if isStart(tag) {
		sendRevoke(t.p, world, t.ctx.ID(), tag, err)
		return
	}
	q := t.tellings[world]
	if q == nil {
		if t.tellings == nil {
			t.tellings = make(map[int]*telling)
		}
		q = new(telling)
		t.tellings[world] = q
	}
	switch n := len(q.spans); {
	case n == 0 && q.onTheWay < maxOnTheWay:
		t.sendSpan(world, q, span{tag: tag, rank: err.Rank, reason: err.Reason})
		return
	case n > 0 && q.spans[n-1].extend(numberOf(tag), err.Rank, err.Reason):
	case n == maxSpans:
		last := &q.spans[n-1]
		last.cover(numberOf(tag), t.rank)
		t.p.RevokeMade(t.ctx.ID(), last.contains, world) // as the rank does when it is told
	default:
		q.spans = append(q.spans, span{tag: tag, rank: err.Rank, reason: err.Reason})
		if n == 0 {
			t.hub.tells(1)
		}
	}
}

// sendSpan sends a REVOKE.
func (t *Team) sendSpan(world int, q *telling, s span) {
	q.onTheWay++
	b := revokeBody{rank: s.rank, reason: s.reason, further: s.further}
	t.p.SendControlThen(world, t.ctx.ID(), pml.ControlRevoke, s.tag, b.encode(), func() { t.told(world, q) })
}

// told is called when a REVOKE is delivered, or its receiver is lost.
func (t *Team) told(world int, q *telling) {
	q.onTheWay--
	switch {
	case len(q.spans) > 0:
		next := q.spans[0]
		q.spans = slices.Delete(q.spans, 0, 1)
		if len(q.spans) == 0 {
			t.hub.tells(-1)
		}
		t.sendSpan(world, q, next)
	case q.onTheWay == 0 && t.tellings[world] == q:
		delete(t.tellings, world)
	}
}

// tellNow sends a rank of the job its spans at once, regardless of REVOKEs on the way.
func (t *Team) tellNow(world int) {
	q := t.tellings[world]
	if q == nil || len(q.spans) == 0 {
		return
	}
	spans := q.spans
	q.spans = nil
	t.hub.tells(-1)
	for _, s := range spans {
		t.sendSpan(world, q, s)
	}
}

// tellAll is tellNow for all ranks, in their order.
func (t *Team) tellAll() {
	for _, world := range slices.Sorted(maps.Keys(t.tellings)) {
		t.tellNow(world)
	}
}

// isTelling reports whether some rank is still to be told of a collective so old that the next
// number would seem to be before it.
func (t *Team) isTelling() bool {
	for _, q := range t.tellings {
		if len(q.spans) > 0 && t.ahead(numberOf(q.spans[0].tag)) <= 2-SequenceNumbers/2 {
			return true
		}
	}
	return false
}

// failSpan fails the collectives of a span, under way or yet to come, because a rank has given them
// up.
func (t *Team) failSpan(s span, err *RevokedError) {
	fail := func(tag int) {
		if f, isNew := t.fail(tag, err); isNew {
			t.discard(tag, f.err)
		}
	}
	for _, c := range slices.Clone(t.calls) {
		if s.contains(c.seq) {
			fail(c.tag)
		}
	}
	for _, seq := range slices.Sorted(maps.Keys(t.kept)) {
		isOld := t.count-t.kept[seq].count >= SequenceNumbers/2 // a later call has its number
		if s.contains(seq) && !isOld {
			fail(seq + startForm) // the Init call is over here
		}
	}
	if t.ahead(s.last()) < 0 {
		return
	}
	first := numberOf(s.tag)
	if t.ahead(first) < 0 {
		first = t.next
	}
	for f := t.laterFailure(first); f != nil; f = t.laterFailure(first) { // refused by another rank
		first = nextNumber(f.last)
	}
	if distance(first, s.last()) >= 0 {
		t.failLater(first, s.last(), err)
	}
	t.p.DiscardUnexpectedOf(t.ctx, func(tag int) bool {
		return !isStart(tag) && t.ahead(numberOf(tag)) >= 0 && s.contains(numberOf(tag))
	}, t.tellNow)
}
