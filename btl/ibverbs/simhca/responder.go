package simhca

import "github.com/mpigo/mpigo/btl/ibverbs/verbs"

// responder is the state of the peer's requests to a queue pair.
type responder struct {
	psn uint32 // next expected sequence number
	// For a gap or a missing receive; later packets are dropped until psn arrives.
	nakSent     bool
	established bool // COMM_EST was raised since RTR

	// The arriving message.
	inSend  bool
	inWrite bool
	skip    bool // UC: drop the rest of an aborted message
	va      uint64
	left    uint32 // remaining bytes of a write
	total   uint32 // length of a write, or received bytes of a send
	rkey    uint32

	// The receive that the message uses.
	cur     verbs.RecvWR
	hasCur  bool
	curAt   uint64
	reads   int // outstanding responses to reads and atomics
	queue   []response
	saved   []savedAtomic // results of atomics, for repeated requests
	savedAt int

	continues bool // pkContinue is on the network
}

// savedAtomic is the result of an atomic. A repeated request gets it; the atomic is not executed
// twice.
type savedAtomic struct {
	psn   uint32
	value uint64
	valid bool
}

func (r *responder) reset() {
	saved, queue := r.saved[:0], r.queue[:0]
	*r = responder{saved: saved, queue: queue}
}

func (r *responder) begin(a *verbs.QPAttr) {
	r.psn, r.established, r.nakSent = a.RQPSN, false, false
	r.saved = make([]savedAtomic, max(a.MaxDestRdAtomic, 1))
}

// request handles a packet of a request of RC or UC.
func (q *queuePair) request(p *packet) {
	if q.service == verbs.ServiceUC {
		q.receiveUC(p)
		return
	}
	r := &q.resp
	switch d := psnDiff(p.psn, r.psn); {
	case d < 0:
		q.repeatResponse(p)
		return
	case d > 0:
		if !r.nakSent {
			r.nakSent = true
			q.respond(response{kind: pkNak, psn: r.psn, code: nakSequence})
		}
		return
	}
	r.nakSent = false
	q.establish()
	switch p.kind {
	case pkSend:
		q.receiveSend(p)
	case pkWrite:
		q.receiveWrite(p)
	case pkReadRequest:
		q.receiveRead(p)
	default:
		q.receiveAtomic(p)
	}
}

// establish raises COMM_EST once, for the first packet in RTR (InfiniBand error model, 3.3.1).
func (q *queuePair) establish() {
	if q.attr.State == verbs.StateRTR && !q.resp.established {
		q.resp.established = true
		q.raise(verbs.EventCommEst)
	}
}

// repeatResponse responds to a request that was executed before, whose response was lost.
func (q *queuePair) repeatResponse(p *packet) {
	r := &q.resp
	switch p.kind {
	case pkReadRequest:
		if len(r.queue) < cap(r.saved)+burst {
			q.respond(response{kind: pkReadResponse, psn: p.psn, va: p.va, rkey: p.rkey, left: p.length, more: true})
		}
	case pkAtomicRequest:
		for _, s := range r.saved {
			if s.valid && s.psn == p.psn {
				q.respond(response{kind: pkAtomicResponse, psn: p.psn, value: s.value})
				return
			}
		}
	default:
		// The requests up to p were executed. An acknowledgment of later ones would make the
		// requester believe that the responses to reads were lost.
		q.respond(response{kind: pkAck, psn: p.psn})
	}
}

// accept advances the expected sequence number past a packet of a send or write.
func (q *queuePair) accept(p *packet) {
	q.resp.psn = maskPSN(p.psn + 1)
	if p.ackWanted && q.service == verbs.ServiceRC {
		q.respond(response{kind: pkAck, psn: p.psn})
	}
}

// takeReceive takes the next receive from the queue. It reports false if there is none.
func (q *queuePair) takeReceive() bool {
	r := &q.resp
	if r.hasCur {
		return true // left by an aborted message
	}
	if q.srq != nil {
		r.hasCur = q.srq.take(&r.cur)
		return r.hasCur
	}
	if q.rq.taken == q.rq.posted {
		return false
	}
	r.cur, r.curAt, r.hasCur = *q.rq.at(q.rq.taken), q.rq.taken, true
	q.rq.taken++
	return true
}

// completeReceive completes the taken receive.
func (q *queuePair) completeReceive(status verbs.Status, solicited bool) {
	c := cqe{}
	c.wc.Status = status
	q.completeReceiveWith(&c, solicited)
}

func (q *queuePair) completeReceiveWith(c *cqe, solicited bool) {
	r := &q.resp
	r.hasCur = false
	c.srq, c.index = q.srq, r.curAt
	c.wc.ID = r.cur.ID
	if q.fatal && q.srq != nil {
		q.srq.inUse--
	}
	q.complete(c, solicited, 0)
}

// wrongLength reports whether the length of a packet contradicts its position in the message and
// the path MTU.
func (q *queuePair) wrongLength(p *packet) bool {
	if p.last {
		return len(p.data) > q.mtu() || len(p.data) == 0 && !p.first
	}
	return len(p.data) != q.mtu()
}

// receiveSend handles a packet of a send.
func (q *queuePair) receiveSend(p *packet) {
	r := &q.resp
	if p.first {
		r.inSend, r.inWrite, r.total = true, false, 0
	}
	if !r.inSend {
		q.refuse(p, verbs.OpSend, verbs.OtherMistake)
		return
	}
	if !q.takeReceive() {
		q.handleNoReceive(p)
		return
	}
	if m, bad := q.injectedMistake(p, verbs.OpSend); bad {
		q.refuse(p, verbs.OpSend, m)
		return
	}
	room := sgeLength(r.cur.SGE[:r.cur.NumSGE])
	end := uint64(r.total) + uint64(len(p.data))
	switch {
	case q.wrongLength(p), end > room, end > uint64(q.hca.cfg.MaxMsgBytes):
		q.refuse(p, verbs.OpSend, verbs.TooLong)
		return
	case p.first && !q.hca.checkPieces(q.d, r.cur.SGE[:r.cur.NumSGE], verbs.AccessLocalWrite),
		!q.hca.scatter(q.d, r.cur.SGE[:r.cur.NumSGE], uint64(r.total), p.data):
		q.refuse(p, verbs.OpSend, verbs.BadKey)
		return
	}
	r.total = uint32(end)
	if p.last {
		r.inSend = false
		if !q.completeMessage(p, verbs.WCRecv) {
			return
		}
	}
	q.accept(p)
}

// completeMessage completes the receive of a complete message. It reports false if an injected
// fault failed the queue pair.
func (q *queuePair) completeMessage(p *packet, op verbs.WCOpcode) bool {
	if f := q.fault(receiverFaults); f != nil {
		return q.failReceive(p, f.Status)
	}
	c := cqe{}
	c.wc.Opcode, c.wc.ByteLen = op, q.resp.total
	c.wc.PKeyIndex = q.attr.PKeyIndex
	if p.hasImm {
		c.wc.Imm, c.wc.Flags = p.imm, verbs.WCWithImm
	}
	if q.service == verbs.ServiceUD {
		c.wc.ByteLen += verbs.GRHBytes
		c.wc.SrcQP, c.wc.SLID, c.wc.SL = p.srcQPN, p.slid, p.sl
		c.wc.DLIDPathBits = uint8(p.dlid & (q.port().lids() - 1))
		if p.global {
			c.wc.Flags |= verbs.WCGRH
		}
	}
	q.completeReceiveWith(&c, p.sol)
	return true
}

// handleNoReceive handles a message without a posted receive: RC asks the requester to wait, the
// other services drop the message.
func (q *queuePair) handleNoReceive(p *packet) {
	if q.service == verbs.ServiceRC {
		q.resp.nakSent = true
		q.respond(response{kind: pkNak, psn: p.psn, code: nakRNR})
	} else {
		q.abortMessage()
	}
}

// receiveWrite handles a packet of a write.
func (q *queuePair) receiveWrite(p *packet) {
	r := &q.resp
	op := verbs.OpWrite
	if p.last && p.hasImm {
		op = verbs.OpWriteImm // only the last packet shows this (InfiniBand error model, 5.2)
	}
	if p.first {
		r.inSend, r.inWrite = false, true
		r.va, r.rkey, r.left, r.total = p.va, p.rkey, p.length, p.length
	}
	if !r.inWrite {
		q.refuse(p, op, verbs.OtherMistake)
		return
	}
	if m, bad := q.injectedMistake(p, op); bad {
		q.refuse(p, op, m)
		return
	}
	var to []byte
	if r.left > 0 {
		to = q.hca.regions.find(q.d, r.rkey, remoteKey, r.va, r.left, verbs.AccessRemoteWrite)
	}
	switch {
	case q.attr.Access&verbs.AccessRemoteWrite == 0:
		q.refuse(p, op, verbs.TooLong) // an operation without permission is an invalid request
		return
	case q.wrongLength(p), uint32(len(p.data)) > r.left, p.last && uint32(len(p.data)) != r.left, r.total > q.hca.cfg.MaxMsgBytes:
		q.refuse(p, op, verbs.TooLong)
		return
	case r.left > 0 && to == nil:
		q.refuse(p, op, verbs.BadKey)
		return
	case op == verbs.OpWriteImm && !q.takeReceive():
		q.handleNoReceive(p)
		return
	}
	store(to, p.data)
	r.va += uint64(len(p.data))
	r.left -= uint32(len(p.data))
	if p.last {
		r.inWrite = false
		if p.hasImm && !q.completeMessage(p, verbs.WCRecvRDMAWithImm) {
			return
		}
	}
	q.accept(p)
}

// receiveRead handles a read request.
func (q *queuePair) receiveRead(p *packet) {
	r := &q.resp
	if m, bad := q.injectedMistake(p, verbs.OpRead); bad {
		q.refuse(p, verbs.OpRead, m)
		return
	}
	switch {
	case q.attr.Access&verbs.AccessRemoteRead == 0:
		q.refuse(p, verbs.OpRead, verbs.TooLong)
	case p.length > q.hca.cfg.MaxMsgBytes:
		q.refuse(p, verbs.OpRead, verbs.TooLong)
	case r.reads >= int(q.attr.MaxDestRdAtomic):
		q.refuse(p, verbs.OpRead, verbs.TooMany)
	case p.length > 0 && q.hca.regions.find(q.d, p.rkey, remoteKey, p.va, p.length, verbs.AccessRemoteRead) == nil:
		q.refuse(p, verbs.OpRead, verbs.BadKey)
	default:
		r.reads++
		packets := max((uint64(p.length)+uint64(q.mtu())-1)/uint64(q.mtu()), 1)
		r.psn = maskPSN(p.psn + uint32(packets))
		q.respond(response{kind: pkReadResponse, psn: p.psn, va: p.va, rkey: p.rkey, left: p.length, more: true, counted: true})
	}
}

// receiveAtomic handles an atomic request.
func (q *queuePair) receiveAtomic(p *packet) {
	r := &q.resp
	if m, bad := q.injectedMistake(p, verbs.OpAtomic); bad {
		q.refuse(p, verbs.OpAtomic, m)
		return
	}
	mem := q.hca.regions.find(q.d, p.rkey, remoteKey, p.va, 8, verbs.AccessRemoteAtomic)
	switch {
	case q.attr.Access&verbs.AccessRemoteAtomic == 0, p.length != 8:
		q.refuse(p, verbs.OpAtomic, verbs.TooLong)
	case r.reads >= int(q.attr.MaxDestRdAtomic):
		q.refuse(p, verbs.OpAtomic, verbs.TooMany)
	case p.va%8 != 0:
		q.refuse(p, verbs.OpAtomic, verbs.Misaligned)
	case mem == nil:
		q.refuse(p, verbs.OpAtomic, verbs.BadKey)
	default:
		was := atomically(mem, p)
		r.saved[r.savedAt] = savedAtomic{psn: p.psn, value: was, valid: true}
		r.savedAt = (r.savedAt + 1) % len(r.saved)
		r.reads++
		r.psn = maskPSN(p.psn + 1)
		q.respond(response{kind: pkAtomicResponse, psn: p.psn, value: was, counted: true})
	}
}

// nakOf returns the NAK code that gives the requester this status.
func nakOf(status verbs.Status) nakCode {
	switch status {
	case verbs.StatusRemInvReqErr:
		return nakInvalidRequest
	case verbs.StatusRemAccessErr:
		return nakAccess
	default:
		return nakOperation
	}
}

// refuse fails a wrong request as the table of refusals says (InfiniBand error model, 4.4). With
// UC, the peer is not notified, and a message without a completion is silently aborted.
func (q *queuePair) refuse(p *packet, op verbs.Operation, mistake verbs.Mistake) {
	row, ok := verbs.FindRefusal(op, mistake)
	if !ok {
		row, _ = verbs.FindRefusal(op, verbs.OtherMistake)
	}
	rc := q.service == verbs.ServiceRC
	// A write with immediate data completes its receive only if its first packet shows that it has
	// immediate data.
	completes := row.Completion != verbs.StatusSuccess && (op == verbs.OpSend || p.first || q.resp.hasCur) && q.takeReceive()
	if !rc && !completes {
		q.abortMessage()
		return
	}
	if rc {
		q.sendAllResponses()
		q.respond(response{kind: pkNak, psn: p.psn, code: nakOf(row.Requester)})
	}
	switch {
	case completes:
		q.completeReceive(row.Completion, false)
	case row.HasEvent:
		q.raise(row.Event)
	}
	q.enterError()
}

// failReceive completes a receive with an injected status. It reports whether the queue pair
// remains usable.
func (q *queuePair) failReceive(p *packet, status verbs.Status) bool {
	if status.Info().After == verbs.AfterNone {
		q.completeReceive(status, false)
		return true
	}
	if q.service == verbs.ServiceRC {
		code := nakOperation
		switch status {
		case verbs.StatusLocLenErr:
			code = nakInvalidRequest
		case verbs.StatusLocAccessErr:
			code = nakAccess
		}
		q.sendAllResponses()
		q.respond(response{kind: pkNak, psn: p.psn, code: code})
	}
	q.completeReceive(status, false)
	q.enterError()
	return false
}
