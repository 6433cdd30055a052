package coll

import (
	"maps"
	"slices"
)

// Each collective of a communicator has a sequence number, which is the same at every rank. The
// numbers grow by one from call to call. The tag of its messages is that number and the form of the
// call, so that calls of different forms do not match. No receive of a collective has a wildcard.
//
// A collective is under way at a rank from the call until it is complete there. Several may be
// under way, and they may end in any order. A rank remembers nothing of a collective that is over:
// its number is lower than the next one, and it is not under way. No receive uses that number
// again. So only later collectives have to be remembered as failed, and their number is bounded.
//
// All starts of a persistent collective have the same tag, with the number of the Init call:
// between two ranks each start has the same number of messages, and they arrive in order. A later
// call may have the same number. A rank starts only after all ranks have called Init. So if a rank
// does not have the persistent collective of a start, the start is over there, not yet to come.

// SequenceNumbers is the number of collectives after which a sequence number is used again. A
// number is behind another one if the distance is less than half of that.
const SequenceNumbers = 1 << 27

// The part of a tag beside the sequence number.
const (
	blockingForm    = iota * SequenceNumbers
	nonblockingForm // of nonblocking calls
	initForm        // of Init calls
	startForm       // of the starts of persistent collectives
	// ownForm is added to the form of a call without user slices, so that its messages cannot reach
	// a user's buffer.
	ownForm
	// tags is the number of tags that messages may have.
	tags = 2 * ownForm
)

// isStart reports whether a tag belongs to starts.
func isStart(tag int) bool { return formOf(tag)&^ownForm == startForm }

// watchTag, added to a tag, is the tag of receives that only detect failures.
const watchTag = tags

// numberOf is the sequence number of a tag, and formOf the rest.
func numberOf(tag int) int { return tag % SequenceNumbers }
func formOf(tag int) int   { return tag - numberOf(tag) }

// maxFailed bounds the ranges of failed collectives that a rank remembers. Beyond it, the rank
// takes all collectives between the first and the last one for failed. So too many failures may
// fail further collectives, but leave no rank waiting.
const maxFailed = 256

// sequence is the place of a rank in the collectives of a communicator.
type sequence struct {
	next    int               // the number of the next call
	count   uint64            // calls so far
	calls   []*Schedule       // that are under way, in the order of their numbers
	kept    map[int]*Schedule // persistent collectives from Init to Free, by number
	failed  []failedRange     // of later calls, in no order
	revoked error             // why all collectives of the communicator fail, or nil
	// failures counts the collectives in calls and kept that have failed.
	failures int
}

// failure says whether a collective was revoked.
type failure struct {
	err  *RevokedError // nil: it was not
	told bool          // this rank has told all others
}

// failedRange is a later collective that a rank has revoked, or several in a row.
type failedRange struct {
	first, last int
	failure
}

// nextNumber is the sequence number after seq.
func nextNumber(seq int) int { return (seq + 1) % SequenceNumbers }

// distance is how far number b is after number a. It is negative if b is before a.
func distance(a, b int) int {
	const unusedBits = 5
	return int(int32(uint32(b-a)<<unusedBits) >> unusedBits)
}

// ahead is how far a sequence number is ahead of the next call. It is negative for calls that were
// made.
func (q *sequence) ahead(seq int) int { return distance(q.next, seq) }

// underWay returns the collective under way with the number of a tag, or, for a tag of starts, the
// persistent one that is not freed; nil if there is none.
func (q *sequence) underWay(tag int) *Schedule {
	seq := numberOf(tag)
	if formOf(tag) == startForm {
		return q.kept[seq]
	}
	if n := len(q.calls); n == 0 || q.ahead(seq) >= 0 {
		return nil
	} else if s := q.calls[n-1]; s.seq == seq {
		return s
	}
	if i, found := q.find(seq); found {
		return q.calls[i]
	}
	return nil
}

// isTooOld reports whether the oldest call under way is so far behind that it would soon seem to be
// ahead of the next one.
func (q *sequence) isTooOld() bool {
	return len(q.calls) > 0 && q.ahead(q.calls[0].seq) <= 2-SequenceNumbers/2
}

// find finds the place of a number in calls.
func (q *sequence) find(seq int) (i int, found bool) {
	return slices.BinarySearchFunc(q.calls, seq, func(s *Schedule, seq int) int { return -distance(s.seq, seq) })
}

// underWayOrKept lists the collectives that may have something posted.
func (q *sequence) underWayOrKept() []*Schedule {
	return slices.AppendSeq(slices.Clone(q.calls), maps.Values(q.kept))
}

// begin adds a call, which gets the next number.
func (q *sequence) begin(s *Schedule) {
	s.seq = q.next
	q.count++
	s.count = q.count
	s.tag = s.seq + s.how.form()
	q.calls = append(q.calls, s)
	var f *failedRange
	if len(q.failed) > 0 {
		f = q.laterFailure(s.seq)
	}
	if f != nil {
		s.failure = f.failure
		s.failure.told = f.told && f.first == f.last
		q.failures++
	}
	q.next = nextNumber(q.next)
	if len(q.failed) > 0 {
		q.failed = slices.DeleteFunc(q.failed, func(f failedRange) bool { return q.ahead(f.last) < 0 })
	}
}

// end removes a call, which is over.
func (q *sequence) end(s *Schedule) {
	if n := len(q.calls) - 1; q.calls[n] == s {
		q.calls[n] = nil
		q.calls = q.calls[:n]
	} else if i, found := q.find(s.seq); found && i > 0 {
		q.calls = slices.Delete(q.calls, i, i+1)
	} else if found {
		q.calls[0] = nil
		q.calls = q.calls[1:]
	}
	if s.failure.err != nil {
		q.failures--
	}
}

// laterFailure returns the failure of a later call, or nil.
func (q *sequence) laterFailure(seq int) *failedRange {
	a := q.ahead(seq)
	for i := range q.failed {
		if f := &q.failed[i]; q.ahead(f.first) <= a && a <= q.ahead(f.last) {
			return f
		}
	}
	return nil
}

// concerned returns the collective that a failure under a tag fails, or nil. That is the Init call
// if it is still under way here when a start fails elsewhere, else the one from underWay.
func (q *sequence) concerned(tag int) *Schedule {
	if s := q.underWay(tag); s != nil {
		return s
	}
	if s := q.underWay(numberOf(tag)); s != nil && (s.how == Persistent || !isStart(tag)) {
		return s
	}
	return nil
}

// isOver reports whether the rank sends and receives nothing more under a tag.
func (q *sequence) isOver(tag int) bool {
	return (isStart(tag) || q.ahead(numberOf(tag)) < 0) && q.concerned(tag) == nil
}

// isOpen reports whether messages with a tag may still be received.
func (q *sequence) isOpen(tag int) bool {
	return q.revoked == nil && !q.isOver(tag) && (!q.hasFailures() || q.errorOf(tag) == nil)
}

// fail marks a collective, which is not over, as failed. isNew is false if it was.
func (q *sequence) fail(tag int, err *RevokedError) (f *failure, isNew bool) {
	seq := numberOf(tag)
	if s := q.concerned(tag); s != nil {
		if isNew = s.failure.err == nil; isNew {
			s.failure.err = err
			q.failures++
		}
		return &s.failure, isNew
	}
	if f := q.laterFailure(seq); f != nil {
		return &f.failure, false
	}
	return q.failLater(seq, seq, err), true
}

// failLater marks calls from first to last, which are yet to come, as failed.
func (q *sequence) failLater(first, last int, err *RevokedError) *failure {
	whole := failedRange{first: first, last: last, failure: failure{err: err}}
	if len(q.failed) >= maxFailed {
		for i := range q.failed {
			if f := &q.failed[i]; q.ahead(f.first) < q.ahead(whole.first) {
				whole.first = f.first
			}
			if f := &q.failed[i]; q.ahead(f.last) > q.ahead(whole.last) {
				whole.last = f.last
			}
		}
		q.failed = q.failed[:0]
	}
	q.failed = append(q.failed, whole)
	return &q.failed[len(q.failed)-1].failure
}

// hasFailures reports whether some collective may have failed, now or later.
func (q *sequence) hasFailures() bool {
	return q.failures > 0 || len(q.failed) > 0 || q.revoked != nil
}

// errorOf is why a collective fails: a *pml.RevokedError, a *RevokedError, or nil.
func (q *sequence) errorOf(tag int) error {
	if q.revoked != nil {
		return q.revoked
	}
	if s := q.concerned(tag); s != nil {
		if s.failure.err != nil {
			return s.failure.err
		}
		return nil
	}
	if f := q.laterFailure(numberOf(tag)); f != nil {
		return f.err
	}
	return nil
}
