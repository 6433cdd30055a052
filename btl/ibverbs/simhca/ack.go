package simhca

import (
	"time"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// This file handles the responses that a requester gets, and the timeout when it gets none.

// updateAckTimer runs the timer while the queue pair awaits acknowledgments. Progress restarts it.
func (q *queuePair) updateAckTimer(progress bool) {
	a := &q.f.events
	wait := verbs.AckTimeout(q.attr.Timeout)
	if !q.awaitsAck() || q.req.waiting || wait == 0 {
		a.cancel(&q.ackTimer)
		return
	}
	if progress || q.ackTimer.slot == 0 {
		a.schedule(&q.ackTimer, q.f.now()+wait)
	}
}

// ackTimeout handles a missing acknowledgment.
func (q *queuePair) ackTimeout() { q.retry(true) }

// retry repeats packets from the oldest unacknowledged one, or fails the request when the retries
// are exhausted (InfiniBand error model, 2.11).
func (q *queuePair) retry(timeout bool) {
	r := &q.req
	if q.sq.una == q.sq.posted {
		return
	}
	if r.retries == 0 {
		q.req.next, q.req.nextPacket = q.sq.una+1, 0
		q.failSend(verbs.StatusRetryExcErr)
		return
	}
	r.retries--
	r.rewound = !timeout
	if q.f.cfg.Trace != nil {
		q.f.tracef("%s/%06x retries from psn %06x", q.hca.name, q.num, r.unaPSN)
	}
	q.rewind()
	q.updateAckTimer(true)
	q.transmit()
}

// rewind sets the next packet to the oldest unacknowledged one.
func (q *queuePair) rewind() {
	s := &q.sq
	q.req.next, q.req.nextPacket = s.una, 0
	if e := s.at(s.una); s.una < s.posted && e.begun {
		q.req.nextPacket = maskPSN(q.req.unaPSN - e.psn)
	}
}

// rnrOver resumes sending after the delay that an RNR NAK requested.
func (q *queuePair) rnrOver() {
	q.req.waiting = false
	q.rewind()
	q.transmit()
}

// handleResponse handles a packet from the responder.
func (q *queuePair) handleResponse(p *packet) {
	r, s := &q.req, &q.sq
	if s.una == s.posted || psnDiff(p.psn, r.psn) >= 0 || r.acksLost && q.losesAck(p) || q.fault(responseFaults) != nil {
		return
	}
	switch p.kind {
	case pkAck:
		if q.acknowledge(p.psn) {
			q.resetRetries()
		}
	case pkNak:
		q.handleNAK(p)
	case pkReadResponse, pkAtomicResponse:
		q.handleFetched(p)
	}
	q.checkDrained()
	q.transmit()
}

// losesAck reports whether FaultAckLost drops a response.
func (q *queuePair) losesAck(p *packet) bool {
	for i := q.sq.una; i <= q.req.next && i < q.sq.posted; i++ {
		e := q.sq.at(i)
		if !e.begun {
			return false
		}
		if e.acksLost && psnDiff(p.psn, e.psn) >= 0 {
			return true
		}
	}
	return false
}

// resetRetries restores the retry counts after progress.
func (q *queuePair) resetRetries() {
	r := &q.req
	r.retries, r.rnrRetries, r.rewound = q.attr.RetryCnt, q.attr.RNRRetry, false
	q.updateAckTimer(true)
}

// acknowledge completes the requests up to psn. It reports whether that was progress. A read or
// atomic before psn without its response has lost it, so acknowledge requests the response again.
func (q *queuePair) acknowledge(psn uint32) (progress bool) {
	r, s := &q.req, &q.sq
	for s.una < s.posted && q.attr.State != verbs.StateErr {
		e := s.at(s.una)
		if !e.begun || psnDiff(psn, r.unaPSN) < 0 {
			break
		}
		if e.isFetch() {
			q.repeatUnanswered()
			return progress
		}
		progress = true
		if psnDiff(psn, e.lastPSN()) < 0 {
			r.unaPSN = maskPSN(psn + 1)
			if r.next == s.una {
				r.nextPacket = max(r.nextPacket, maskPSN(r.unaPSN-e.psn))
			}
			break
		}
		q.completeRequest(e)
	}
	return progress
}

// completeRequest completes the oldest request, which the peer has executed.
func (q *queuePair) completeRequest(e *sendEntry) {
	r, s := &q.req, &q.sq
	r.unaPSN = maskPSN(e.lastPSN() + 1)
	if r.next == s.una {
		r.next, r.nextPacket = r.next+1, 0
	}
	if e.endsAs != verbs.StatusSuccess {
		q.failSend(e.endsAs)
		return
	}
	q.completeSend(verbs.StatusSuccess)
}

// repeatUnanswered retries because a response is missing and a later one arrived. Only the first
// notice of a gap counts.
func (q *queuePair) repeatUnanswered() {
	if !q.req.rewound && !q.req.waiting {
		q.retry(false)
	}
}

// handleFetched handles the response to a read or an atomic.
func (q *queuePair) handleFetched(p *packet) {
	r, s := &q.req, &q.sq
	if psnDiff(p.psn, r.unaPSN) < 0 {
		return // repeated response
	}
	if p.psn != r.unaPSN && q.acknowledge(maskPSN(p.psn-1)) {
		q.resetRetries()
	}
	if q.attr.State == verbs.StateErr || s.una == s.posted {
		return
	}
	e := s.at(s.una)
	if p.psn != r.unaPSN || !e.begun {
		if e.begun && e.isFetch() {
			q.repeatUnanswered()
		}
		return
	}
	if !e.isFetch() || e.isAtomic() != (p.kind == pkAtomicResponse) {
		return
	}
	if !q.storeFetched(e, p) {
		return
	}
	r.unaPSN = maskPSN(p.psn + 1)
	done := p.psn == e.lastPSN()
	if done {
		q.completeRequest(e)
	}
	q.resetRetries()
}

// storeFetched stores the data of a response in the request's memory.
func (q *queuePair) storeFetched(e *sendEntry, p *packet) bool {
	off := uint64(maskPSN(p.psn-e.psn)) * uint64(q.mtu())
	if e.isAtomic() {
		off = 0
	} else if want := min(e.length-off, uint64(q.mtu())); uint64(len(p.data)) != want {
		// The peer has another path MTU, so the length does not fit.
		q.failRequest(verbs.StatusBadRespErr)
		return false
	}
	if !q.hca.scatter(q.d, e.sges(), off, p.data) {
		q.failRequest(verbs.StatusLocProtErr)
		return false
	}
	return true
}

// failRequest fails the oldest request.
func (q *queuePair) failRequest(status verbs.Status) {
	if q.req.next == q.sq.una {
		q.req.next, q.req.nextPacket = q.req.next+1, 0
	}
	q.failSend(status)
}

// handleNAK handles a NAK.
func (q *queuePair) handleNAK(p *packet) {
	r, s := &q.req, &q.sq
	if psnDiff(p.psn, r.unaPSN) < 0 {
		return
	}
	if p.psn != r.unaPSN && q.acknowledge(maskPSN(p.psn-1)) {
		q.resetRetries()
	}
	if p.psn != r.unaPSN || s.una == s.posted || q.attr.State == verbs.StateErr || !s.at(s.una).begun {
		return // an earlier packet is unacknowledged
	}
	switch p.code {
	case nakSequence:
		q.repeatUnanswered()
	case nakRNR:
		q.handleRNR(p.timer)
	default:
		q.failRequest(nakStatus[p.code])
	}
}

// handleRNR waits as an RNR NAK requests, or fails the request when the retries are exhausted
// (InfiniBand error model, 2.12). An RNR retry count of 7 means no limit.
func (q *queuePair) handleRNR(timer uint8) {
	r := &q.req
	if r.waiting {
		return
	}
	if q.attr.RNRRetry != 7 {
		if r.rnrRetries == 0 {
			q.failRequest(verbs.StatusRNRRetryExcErr)
			return
		}
		r.rnrRetries--
	}
	r.waiting = true
	q.updateAckTimer(false)
	q.f.events.schedule(&q.rnrTimer, q.f.now()+max(verbs.RNRTimer(timer), time.Nanosecond))
}
