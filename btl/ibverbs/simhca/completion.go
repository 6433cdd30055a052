package simhca

import (
	"time"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// lateCompletion is a completion that FaultLateCompletion delays. All later completions of the send
// queue wait behind it.
type lateCompletion struct {
	cqe
	at time.Duration
}

// complete puts a completion into its queue. A queue pair after QP_FATAL generates no completions
// (InfiniBand error model, 3.1.1).
func (q *queuePair) complete(c *cqe, solicited bool, late time.Duration) {
	if q.fatal || q.dev.gone {
		return
	}
	c.qp = q
	c.wc.QPNum = q.num
	if c.wc.Status != verbs.StatusSuccess {
		q.f.garble(&c.wc)
		solicited = true
	}
	if c.send && (late > 0 || len(q.late) > 0) {
		at := q.f.now() + late
		if n := len(q.late); n > 0 {
			at = max(at, q.late[n-1].at)
		}
		q.late = append(q.late, lateCompletion{*c, at})
		if len(q.late) == 1 {
			q.f.events.schedule(&q.lateTimer, at)
		}
		return
	}
	q.deliver(c, solicited)
}

func (q *queuePair) deliver(c *cqe, solicited bool) {
	cq := q.recvCQ
	if c.send {
		cq = q.sendCQ
	}
	e := cq.reserve()
	if e == nil {
		if c.srq != nil {
			c.srq.inUse-- // no completion will free the entry
		}
		return
	}
	*e = *c
	if f := q.f; f.cfg.Trace != nil {
		f.tracef("%s/%06x completes %d: %v", q.hca.name, q.num, c.wc.ID, c.wc.Status)
	}
	cq.notify(solicited)
}

// deliverLate delivers the delayed completions that are due.
func (q *queuePair) deliverLate() {
	now := q.f.now()
	for len(q.late) > 0 && q.late[0].at <= now && !q.fatal {
		c := q.late[0].cqe
		q.late = q.late[1:]
		q.deliver(&c, c.wc.Status != verbs.StatusSuccess)
	}
	if len(q.late) == 0 {
		q.late = nil
		return
	}
	if !q.fatal {
		q.f.events.schedule(&q.lateTimer, q.late[0].at)
	}
}

// garble randomizes the invalid members of a failed completion (ibv_poll_cq), so that no test
// relies on them.
func (f *Fabric) garble(wc *verbs.WC) {
	a, b := f.rng.Uint64(), f.rng.Uint64()
	*wc = verbs.WC{
		ID: wc.ID, Status: wc.Status, QPNum: wc.QPNum, VendorErr: 0x80 + uint32(wc.Status),
		Opcode: verbs.WCOpcode(a), ByteLen: uint32(a >> 32), Imm: uint32(b), SrcQP: uint32(b>>32) & psnMask,
		Flags: verbs.WCFlags(a>>8) & 3, PKeyIndex: uint16(b >> 8), SLID: uint16(b >> 24), SL: uint8(b >> 4), DLIDPathBits: uint8(b >> 5),
	}
}

// completeSend completes the oldest outstanding request.
func (q *queuePair) completeSend(status verbs.Status) {
	s := &q.sq
	e := s.at(s.una)
	index := s.una
	s.una++
	if e.begun && e.isFetch() {
		q.req.fetches--
		q.req.fetchSpan -= int32(e.packets)
	}
	if status == verbs.StatusSuccess && !q.signalAll && e.wr.Flags&verbs.SendSignaled == 0 {
		return
	}
	c := cqe{send: true, index: index}
	c.wc.ID, c.wc.Status, c.wc.Opcode = e.wr.ID, status, wcOpcode[e.wr.Opcode]
	if e.isFetch() {
		c.wc.ByteLen = uint32(e.length)
	}
	q.complete(&c, false, e.late)
}

// failSend completes the oldest outstanding request with a failure and changes the state of the
// queue pair accordingly (InfiniBand error model, 2).
func (q *queuePair) failSend(status verbs.Status) {
	q.completeSend(status)
	switch status.Info().After {
	case verbs.AfterError:
		q.enterError()
	case verbs.AfterErrorOrSQE:
		if q.service == verbs.ServiceRC {
			q.enterError()
		} else {
			q.enterSQE()
		}
	}
}

// flushSends flushes all outstanding requests (InfiniBand error model, 2.5).
func (q *queuePair) flushSends() {
	for q.sq.una < q.sq.posted && !q.fatal {
		q.completeSend(verbs.StatusWRFlushErr)
	}
	q.req.next, q.req.nextPacket = q.sq.una, 0
}

// flushReceives flushes the receives, first the one that a message is arriving in. Only that one
// comes from a shared receive queue; the others stay there.
func (q *queuePair) flushReceives() {
	if q.resp.hasCur {
		q.completeReceive(verbs.StatusWRFlushErr, false)
	}
	for q.srq == nil && q.rq.taken < q.rq.posted && !q.fatal {
		q.takeReceive()
		q.completeReceive(verbs.StatusWRFlushErr, false)
	}
}

// enterError moves the queue pair to ERR and flushes both queues in order.
func (q *queuePair) enterError() {
	if q.attr.State == verbs.StateErr {
		return
	}
	q.attr.State = verbs.StateErr
	if q.f.cfg.Trace != nil {
		q.f.tracef("%s/%06x enters ERR", q.hca.name, q.num)
	}
	q.stopTimers()
	q.resp.dropResponses()
	if q.hca.cfg.LastWQEDelay > 0 && !q.fatal {
		q.last, q.hasLast = q.recvCQ.takeBack(q)
		q.f.events.schedule(&q.lastTimer, q.f.now()+q.hca.cfg.LastWQEDelay)
		q.flushSends()
		return
	}
	q.flushSends()
	q.endReceives()
}

// endReceives ends what a queue pair in ERR does with its receives: it takes no more of a shared
// queue (InfiniBand error model, 3.3.3).
func (q *queuePair) endReceives() {
	if q.hasLast {
		q.hasLast = false
		q.deliver(&q.last, false)
	}
	q.flushReceives()
	if q.srq != nil && !q.fatal && q.hca.cfg.LastWQEDelay >= 0 {
		q.raise(verbs.EventQPLastWQEReached)
	}
}

// endsReceivesLater reports whether the queue pair is in ERR and endReceives is still to come.
func (q *queuePair) endsReceivesLater() bool { return q.lastTimer.slot != 0 }

// enterSQE moves a queue pair of UC or UD to SQE after a failed send request. It flushes the send
// queue; the queue pair still receives (Queue pair states, 2.6).
func (q *queuePair) enterSQE() {
	if q.attr.State != verbs.StateRTS && q.attr.State != verbs.StateSQD {
		return
	}
	q.attr.State = verbs.StateSQE
	q.req.silent = false
	q.flushSends()
}

// fail raises QP_FATAL and moves the queue pair to ERR without completions (InfiniBand error model,
// 3.1.1).
func (q *queuePair) fail() {
	if q.fatal || q.destroyed {
		return
	}
	q.fatal = true
	q.attr.State = verbs.StateErr
	q.stopTimers()
	q.f.events.cancel(&q.lateTimer)
	q.resp.dropResponses()
	q.raise(verbs.EventQPFatal)
}

// raise raises an event of the queue pair in its context.
func (q *queuePair) raise(t verbs.EventType) { q.dev.raise(verbs.AsyncEvent{Type: t, QP: q}) }

func (c *context) raise(ev verbs.AsyncEvent) {
	if c.dead() {
		return
	}
	if c.f.cfg.Trace != nil {
		c.f.tracef("%s: %v", c.hca.name, ev.Type)
	}
	c.push(ev)
}
