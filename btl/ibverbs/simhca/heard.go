package simhca

import (
	"time"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// This file is what a requester does about what it hears from the responder, and about hearing nothing.

// mindTimer has the timer run while answers are awaited; progress starts it anew.
func (q *queuePair) mindTimer(progress bool) {
	a := &q.f.agenda
	wait := verbs.AckTimeout(q.attr.Timeout)
	if !q.under() || q.req.waiting || wait == 0 {
		a.cancel(&q.ackTimer)
		return
	}
	if progress || q.ackTimer.slot == 0 {
		a.plan(&q.ackTimer, q.f.now()+wait)
	}
}

// ackTimeout: no answer for too long.
func (q *queuePair) ackTimeout() { q.retry(true) }

// retry goes back to the oldest packet that is not answered, or gives up (InfiniBand error model, 2.11).
func (q *queuePair) retry(timeout bool) {
	r := &q.req
	if q.sq.una == q.sq.posted {
		return
	}
	if r.retries == 0 {
		q.req.next, q.req.nextPacket = q.sq.una+1, 0
		q.sendFailed(verbs.StatusRetryExcErr)
		return
	}
	r.retries--
	r.rewound = !timeout
	if q.f.cfg.Trace != nil {
		q.f.tracef("%s/%06x tries again from psn %06x", q.hca.name, q.num, r.unaPSN)
	}
	q.rewind()
	q.mindTimer(true)
	q.transmit()
}

// rewind goes back to the oldest packet that is not answered, if there is one.
func (q *queuePair) rewind() {
	s := &q.sq
	q.req.next, q.req.nextPacket = s.una, 0
	if e := s.at(s.una); s.una < s.posted && e.begun {
		q.req.nextPacket = r24(q.req.unaPSN - e.psn)
	}
}

func r24(n uint32) uint32 { return n & psnMask }

// rnrOver: the wait that an RNR NAK asked for is over.
func (q *queuePair) rnrOver() {
	q.req.waiting = false
	q.rewind()
	q.transmit()
}

// answer takes what a responder sends.
func (q *queuePair) answer(p *packet) {
	r, s := &q.req, &q.sq
	if s.una == s.posted || psnDiff(p.psn, r.psn) >= 0 || r.deaf && q.loses(p) || q.strike(faultsOfAnswers) != nil {
		return
	}
	switch p.kind {
	case pkAck:
		if q.acknowledged(p.psn) {
			q.progress()
		}
	case pkNak:
		q.refused(p)
	case pkReadResponse, pkAtomicResponse:
		q.fetched(p)
	}
	q.checkDrained()
	q.transmit()
}

// loses says whether an injected fault loses an answer.
func (q *queuePair) loses(p *packet) bool {
	for i := q.sq.una; i <= q.req.next && i < q.sq.posted; i++ {
		e := q.sq.at(i)
		if !e.begun {
			return false
		}
		if e.deaf && psnDiff(p.psn, e.psn) >= 0 {
			return true
		}
	}
	return false
}

// progress gives the requester its retries back.
func (q *queuePair) progress() {
	r := &q.req
	r.retries, r.rnrRetries, r.rewound = q.attr.RetryCnt, q.attr.RNRRetry, false
	q.mindTimer(true)
}

// acknowledged completes what an answer to a packet says is done: all up to it. It reports whether that was anything. A read or an
// atomic before it whose answer is not there lost it: that is asked for again.
func (q *queuePair) acknowledged(psn uint32) (progress bool) {
	r, s := &q.req, &q.sq
	for s.una < s.posted && q.attr.State != verbs.StateErr {
		e := s.at(s.una)
		if !e.begun || psnDiff(psn, r.unaPSN) < 0 {
			break
		}
		if e.isFetch() {
			q.gap()
			return progress
		}
		progress = true
		if psnDiff(psn, e.lastPSN()) < 0 {
			r.unaPSN = r24(psn + 1)
			if r.next == s.una {
				r.nextPacket = max(r.nextPacket, r24(r.unaPSN-e.psn))
			}
			break
		}
		q.requestDone(e)
	}
	return progress
}

// requestDone completes the oldest request, which the peer executed.
func (q *queuePair) requestDone(e *sendEntry) {
	r, s := &q.req, &q.sq
	r.unaPSN = r24(e.lastPSN() + 1)
	if r.next == s.una {
		r.next, r.nextPacket = r.next+1, 0
	}
	if e.endsAs != verbs.StatusSuccess {
		q.sendFailed(e.endsAs)
		return
	}
	q.sendEnded(verbs.StatusSuccess)
}

// gap: an answer is missing, for later ones are there. Only the first word of it counts.
func (q *queuePair) gap() {
	if !q.req.rewound && !q.req.waiting {
		q.retry(false)
	}
}

// fetched takes the data of a read or an atomic.
func (q *queuePair) fetched(p *packet) {
	r, s := &q.req, &q.sq
	if psnDiff(p.psn, r.unaPSN) < 0 {
		return // again
	}
	if p.psn != r.unaPSN && q.acknowledged(r24(p.psn-1)) {
		q.progress()
	}
	if q.attr.State == verbs.StateErr || s.una == s.posted {
		return
	}
	e := s.at(s.una)
	if p.psn != r.unaPSN || !e.begun {
		if e.begun && e.isFetch() {
			q.gap()
		}
		return
	}
	if !e.isFetch() || e.isAtomic() != (p.kind == pkAtomicResponse) {
		return
	}
	if !q.land(e, p) {
		return
	}
	r.unaPSN = r24(p.psn + 1)
	done := p.psn == e.lastPSN()
	if done {
		q.requestDone(e)
	}
	q.progress()
}

// land puts fetched data where it belongs.
func (q *queuePair) land(e *sendEntry, p *packet) bool {
	off := uint64(r24(p.psn-e.psn)) * uint64(q.mtu())
	if e.isAtomic() {
		off = 0
	} else if want := min(e.length-off, uint64(q.mtu())); uint64(len(p.data)) != want {
		q.endRequest(verbs.StatusBadRespErr) // the peer has another MTU: no answer of that length fits
		return false
	}
	if !q.hca.scatter(q.d, e.sges(), off, p.data) {
		q.endRequest(verbs.StatusLocProtErr)
		return false
	}
	return true
}

// endRequest fails the oldest request.
func (q *queuePair) endRequest(status verbs.Status) {
	if q.req.next == q.sq.una {
		q.req.next, q.req.nextPacket = q.req.next+1, 0
	}
	q.sendFailed(status)
}

// refused takes a NAK.
func (q *queuePair) refused(p *packet) {
	r, s := &q.req, &q.sq
	if psnDiff(p.psn, r.unaPSN) < 0 {
		return
	}
	if p.psn != r.unaPSN && q.acknowledged(r24(p.psn-1)) {
		q.progress()
	}
	if p.psn != r.unaPSN || s.una == s.posted || q.attr.State == verbs.StateErr || !s.at(s.una).begun {
		return // what is before it was not answered yet
	}
	switch p.code {
	case nakSequence:
		q.gap()
	case nakRNR:
		q.notReady(p.timer)
	default:
		q.endRequest(nakStatus[p.code])
	}
}

// notReady waits for the peer's receiver, or gives up (InfiniBand error model, 2.12). Seven tries are for ever.
func (q *queuePair) notReady(timer uint8) {
	r := &q.req
	if r.waiting {
		return
	}
	if q.attr.RNRRetry != 7 {
		if r.rnrRetries == 0 {
			q.endRequest(verbs.StatusRNRRetryExcErr)
			return
		}
		r.rnrRetries--
	}
	r.waiting = true
	q.mindTimer(false)
	q.f.agenda.plan(&q.rnrTimer, q.f.now()+max(verbs.RNRTimer(timer), time.Nanosecond))
}
