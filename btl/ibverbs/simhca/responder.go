package simhca

import (
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// responder is what a queue pair knows of its peer's requests.
type responder struct {
	psn     uint32 // expected next
	nakSent bool   // about a gap, or that no receive is posted; what is ahead is dropped in silence until it is closed
	told    bool   // COMM_EST since RTR

	// The message that arrives.
	inSend  bool
	inWrite bool
	skip    bool // UC: the rest of a message that is given up
	va      uint64
	left    uint32 // of a write
	total   uint32 // of a write, or so far of a send
	rkey    uint32

	// The receive that it goes to.
	cur     verbs.RecvWR
	hasCur  bool
	curAt   uint64
	reads   int // answers under way
	answers []answer
	saved   []savedAtomic // for those that ask again
	savedAt int

	continues bool // pkContinue is under way
}

// savedAtomic is what an atomic found: asked again, it must not be done again.
type savedAtomic struct {
	psn   uint32
	value uint64
	valid bool
}

func (r *responder) reset() {
	saved, answers := r.saved[:0], r.answers[:0]
	*r = responder{saved: saved, answers: answers}
}

func (r *responder) begin(a *verbs.QPAttr) {
	r.psn, r.told, r.nakSent = a.RQPSN, false, false
	r.saved = make([]savedAtomic, max(a.MaxDestRdAtomic, 1))
}

// request takes a packet of a request, of RC or UC.
func (q *queuePair) request(p *packet) {
	if q.service == verbs.ServiceUC {
		q.unreliable(p)
		return
	}
	r := &q.resp
	switch d := psnDiff(p.psn, r.psn); {
	case d < 0:
		q.again(p)
		return
	case d > 0:
		if !r.nakSent {
			r.nakSent = true
			q.respond(answer{kind: pkNak, psn: r.psn, code: nakSequence})
		}
		return
	}
	r.nakSent = false
	q.established()
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

// established tells of the first packet in RTR, one time (InfiniBand error model, 3.3.1).
func (q *queuePair) established() {
	if q.attr.State == verbs.StateRTR && !q.resp.told {
		q.resp.told = true
		q.raise(verbs.EventCommEst)
	}
}

// again answers what was done before: its answer was lost.
func (q *queuePair) again(p *packet) {
	r := &q.resp
	switch p.kind {
	case pkReadRequest:
		if len(r.answers) < cap(r.saved)+burst {
			q.respond(answer{kind: pkReadResponse, psn: p.psn, va: p.va, rkey: p.rkey, left: p.length, more: true})
		}
	case pkAtomicRequest:
		for _, s := range r.saved {
			if s.valid && s.psn == p.psn {
				q.respond(answer{kind: pkAtomicResponse, psn: p.psn, value: s.value})
				return
			}
		}
	default:
		// All up to it was done. An answer for later ones too would make the requester believe that those of reads were lost.
		q.respond(answer{kind: pkAck, psn: p.psn})
	}
}

// taken moves on behind a packet of a send or write.
func (q *queuePair) taken(p *packet) {
	q.resp.psn = r24(p.psn + 1)
	if p.ackWanted && q.service == verbs.ServiceRC {
		q.respond(answer{kind: pkAck, psn: p.psn})
	}
}

// takeReceive takes the next receive out of the queue.
func (q *queuePair) takeReceive() bool {
	r := &q.resp
	if r.hasCur {
		return true // left by a message that was given up
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

// endReceive completes the receive that was taken.
func (q *queuePair) endReceive(status verbs.Status, solicited bool) {
	c := cqe{}
	c.wc.Status = status
	q.endReceiveWith(&c, solicited)
}

func (q *queuePair) endReceiveWith(c *cqe, solicited bool) {
	r := &q.resp
	r.hasCur = false
	c.srq, c.index = q.srq, r.curAt
	c.wc.ID = r.cur.ID
	if q.fatal && q.srq != nil {
		q.srq.inUse--
	}
	q.complete(c, solicited, 0)
}

// mismatch says whether a packet's length is not what its place in the message and the path's MTU ask for.
func (q *queuePair) mismatch(p *packet) bool {
	if p.last {
		return len(p.data) > q.mtu() || len(p.data) == 0 && !p.first
	}
	return len(p.data) != q.mtu()
}

// receiveSend takes a packet of a send.
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
		q.noReceive(p)
		return
	}
	if m, bad := q.strikeMistake(p, verbs.OpSend); bad {
		q.refuse(p, verbs.OpSend, m)
		return
	}
	room := sgeLength(r.cur.SGE[:r.cur.NumSGE])
	end := uint64(r.total) + uint64(len(p.data))
	switch {
	case q.mismatch(p), end > room, end > uint64(q.hca.cfg.MaxMsgBytes):
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
		if !q.received(p, verbs.WCRecv) {
			return
		}
	}
	q.taken(p)
}

// received completes the receive of a message that is there. It reports false if an injected fault ended the queue pair with it.
func (q *queuePair) received(p *packet, op verbs.WCOpcode) bool {
	if f := q.strike(faultsOfReceiver); f != nil {
		return q.receiveFailed(p, f.Status)
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
		if p.global {
			c.wc.Flags |= verbs.WCGRH
		}
	}
	q.endReceiveWith(&c, p.sol)
	return true
}

// noReceive: a message has come and no receive is posted for it. RC asks the requester to wait, the others lose it.
func (q *queuePair) noReceive(p *packet) {
	if q.service == verbs.ServiceRC {
		q.resp.nakSent = true
		q.respond(answer{kind: pkNak, psn: p.psn, code: nakRNR})
	} else {
		q.abandon()
	}
}

// receiveWrite takes a packet of a write.
func (q *queuePair) receiveWrite(p *packet) {
	r := &q.resp
	op := verbs.OpWrite
	if p.last && p.hasImm {
		op = verbs.OpWriteImm // known only now (InfiniBand error model, 5.2)
	}
	if p.first {
		r.inSend, r.inWrite = false, true
		r.va, r.rkey, r.left, r.total = p.va, p.rkey, p.length, p.length
	}
	if !r.inWrite {
		q.refuse(p, op, verbs.OtherMistake)
		return
	}
	if m, bad := q.strikeMistake(p, op); bad {
		q.refuse(p, op, m)
		return
	}
	var to []byte
	if r.left > 0 {
		to = q.hca.regions.find(q.d, r.rkey, remoteKey, r.va, r.left, verbs.AccessRemoteWrite)
	}
	switch {
	case q.attr.Access&verbs.AccessRemoteWrite == 0:
		q.refuse(p, op, verbs.TooLong) // the queue pair does not take it: an invalid request
		return
	case q.mismatch(p), uint32(len(p.data)) > r.left, p.last && uint32(len(p.data)) != r.left, r.total > q.hca.cfg.MaxMsgBytes:
		q.refuse(p, op, verbs.TooLong)
		return
	case r.left > 0 && to == nil:
		q.refuse(p, op, verbs.BadKey)
		return
	case op == verbs.OpWriteImm && !q.takeReceive():
		q.noReceive(p)
		return
	}
	store(to, p.data)
	r.va += uint64(len(p.data))
	r.left -= uint32(len(p.data))
	if p.last {
		r.inWrite = false
		if p.hasImm && !q.received(p, verbs.WCRecvRDMAWithImm) {
			return
		}
	}
	q.taken(p)
}

// receiveRead takes a request to read.
func (q *queuePair) receiveRead(p *packet) {
	r := &q.resp
	if m, bad := q.strikeMistake(p, verbs.OpRead); bad {
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
		r.psn = r24(p.psn + uint32(packets))
		q.respond(answer{kind: pkReadResponse, psn: p.psn, va: p.va, rkey: p.rkey, left: p.length, more: true, counted: true})
	}
}

// receiveAtomic takes a request for an atomic.
func (q *queuePair) receiveAtomic(p *packet) {
	r := &q.resp
	if m, bad := q.strikeMistake(p, verbs.OpAtomic); bad {
		q.refuse(p, verbs.OpAtomic, m)
		return
	}
	mem := q.hca.regions.find(q.d, p.rkey, remoteKey, p.va, 8, verbs.AccessRemoteAtomic)
	switch {
	case q.hca.cfg.NoAtomics, q.attr.Access&verbs.AccessRemoteAtomic == 0, p.length != 8:
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
		r.psn = r24(p.psn + 1)
		q.respond(answer{kind: pkAtomicResponse, psn: p.psn, value: was, counted: true})
	}
}

// nakOf is the NAK that gives a requester its status.
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

// refuse ends a request that is wrong, in the way that the table of sights says (InfiniBand error model, 4.4). With UC the peer hears
// nothing, and what has no completion is given up without a word.
func (q *queuePair) refuse(p *packet, op verbs.Operation, mistake verbs.Mistake) {
	sight, ok := verbs.FindRefusal(op, mistake)
	if !ok {
		sight, _ = verbs.FindRefusal(op, verbs.OtherMistake)
	}
	rc := q.service == verbs.ServiceRC
	// A write with immediate data takes its receive along only if it was known to be one from its first packet.
	completes := sight.Completion != verbs.StatusSuccess && (op == verbs.OpSend || p.first || q.resp.hasCur) && q.takeReceive()
	if !rc && !completes {
		q.abandon()
		return
	}
	if rc {
		q.answerAll()
		q.respond(answer{kind: pkNak, psn: p.psn, code: nakOf(sight.Requester)})
	}
	switch {
	case completes:
		q.endReceive(sight.Completion, false)
	case sight.HasEvent:
		q.raise(sight.Event)
	}
	q.enterError()
}

// receiveFailed ends a receive, and what came for it, as injected. It reports whether the queue pair goes on.
func (q *queuePair) receiveFailed(p *packet, status verbs.Status) bool {
	if status.Info().After == verbs.AfterNone {
		q.endReceive(status, false)
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
		q.answerAll()
		q.respond(answer{kind: pkNak, psn: p.psn, code: code})
	}
	q.endReceive(status, false)
	q.enterError()
	return false
}
