package coll

// Each collective of a communicator has a sequence number, which is the same at every rank and the
// tag of all its messages. The numbers grow by one from collective to collective. No receive of a
// collective has a wildcard.
//
// A collective is finished at a rank once that rank has gone on to the next one. Nothing of it is
// remembered: its lower number says all, since nobody will receive anything under it again. So only
// later collectives have to be remembered as failed, and their number is bounded.

// SequenceNumbers is after how many collectives a sequence number is used again. A number is behind
// another one if it is less than half of that behind.
const SequenceNumbers = 1 << 30

// maxFailed bounds the ranges of failed collectives that a rank remembers. A rank that is farther
// behind takes all collectives between the first and the last of them for failed. So too many
// failures may fail further collectives, but leave no rank waiting.
const maxFailed = 256

// sequence is the place of a rank in the collectives of a communicator.
type sequence struct {
	now     int           // the collective that this rank is in, or comes to next
	failed  []failedRange // in no order; none is behind now
	revoked error         // why all collectives of the communicator fail, or nil
}

// failedRange is a collective that a rank has revoked, or several in a row.
type failedRange struct {
	first, last int
	err         *RevokedError
	told        bool // this rank has told all others
}

// nextNumber is the sequence number after seq.
func nextNumber(seq int) int { return (seq + 1) % SequenceNumbers }

// ahead is how far a sequence number is ahead of now. It is negative for a finished collective.
func (q *sequence) ahead(seq int) int {
	const unusedBits = 2
	return int(int32(uint32(seq-q.now)<<unusedBits) >> unusedBits)
}

// find returns the failed range with a sequence number, or nil.
func (q *sequence) find(seq int) *failedRange {
	a := q.ahead(seq)
	for i := range q.failed {
		if f := &q.failed[i]; q.ahead(f.first) <= a && a <= q.ahead(f.last) {
			return f
		}
	}
	return nil
}

// isOpen reports whether messages of a collective may still be received.
func (q *sequence) isOpen(seq int) bool {
	return q.revoked == nil && q.ahead(seq) >= 0 && (len(q.failed) == 0 || q.find(seq) == nil)
}

// fail marks a collective, which is not finished, as failed. isNew is false if it was.
func (q *sequence) fail(seq int, err *RevokedError) (f *failedRange, isNew bool) {
	if f := q.find(seq); f != nil {
		return f, false
	}
	whole := failedRange{first: seq, last: seq, err: err}
	if len(q.failed) == maxFailed {
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
	return &q.failed[len(q.failed)-1], true
}

// hasFailures reports whether some collective may have failed, now or later.
func (q *sequence) hasFailures() bool { return len(q.failed) > 0 || q.revoked != nil }

// errorOf is why a collective fails: a *pml.RevokedError, a *RevokedError, or nil.
func (q *sequence) errorOf(seq int) error {
	if q.revoked != nil {
		return q.revoked
	}
	if f := q.find(seq); f != nil {
		return f.err
	}
	return nil
}
