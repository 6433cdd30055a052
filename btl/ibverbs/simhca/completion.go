package simhca

import (
	"time"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// heldCompletion is one that waits, by FaultLate, with all later ones of its queue pair's send queue behind it.
type heldCompletion struct {
	cqe
	at time.Duration
}

// complete puts the completion of a queue pair's request into its queue. A queue pair that broke has none any more (InfiniBand
// error model, 3.1.1).
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
	if c.send && (late > 0 || len(q.held) > 0) {
		at := q.f.now() + late
		if n := len(q.held); n > 0 {
			at = max(at, q.held[n-1].at)
		}
		q.held = append(q.held, heldCompletion{*c, at})
		if len(q.held) == 1 {
			q.f.agenda.plan(&q.lateTimer, at)
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
	e := cq.place()
	if e == nil {
		if c.srq != nil {
			c.srq.inUse-- // its place, which no completion gives back any more
		}
		return
	}
	*e = *c
	if f := q.f; f.cfg.Trace != nil {
		f.tracef("%s/%06x completes %d: %v", q.hca.name, q.num, c.wc.ID, c.wc.Status)
	}
	cq.announce(solicited)
}

// releaseHeld puts those into the queue whose time has come.
func (q *queuePair) releaseHeld() {
	now := q.f.now()
	for len(q.held) > 0 && q.held[0].at <= now && !q.fatal {
		c := q.held[0].cqe
		q.held = q.held[1:]
		q.deliver(&c, c.wc.Status != verbs.StatusSuccess)
	}
	if len(q.held) == 0 {
		q.held = nil
		return
	}
	if !q.fatal {
		q.f.agenda.plan(&q.lateTimer, q.held[0].at)
	}
}

// garble fills what is not valid in a completion that failed (ibv_poll_cq), so that nobody gets to rely on it.
func (f *Fabric) garble(wc *verbs.WC) {
	a, b := f.rng.Uint64(), f.rng.Uint64()
	*wc = verbs.WC{
		ID: wc.ID, Status: wc.Status, QPNum: wc.QPNum, VendorErr: 0x80 + uint32(wc.Status),
		Opcode: verbs.WCOpcode(a), ByteLen: uint32(a >> 32), Imm: uint32(b), SrcQP: uint32(b>>32) & psnMask,
		Flags: verbs.WCFlags(a>>8) & 3, PKeyIndex: uint16(b >> 8), SLID: uint16(b >> 24), SL: uint8(b >> 4), DLIDPathBits: uint8(b >> 5),
	}
}

// sendEnded completes the oldest request that is not complete.
func (q *queuePair) sendEnded(status verbs.Status) {
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

// sendFailed ends the oldest request with a failure, and does to the queue pair what that does (InfiniBand error model, 2).
func (q *queuePair) sendFailed(status verbs.Status) {
	q.sendEnded(status)
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

// flushSends ends all requests that are queued (InfiniBand error model, 2.5).
func (q *queuePair) flushSends() {
	for q.sq.una < q.sq.posted && !q.fatal {
		q.sendEnded(verbs.StatusWRFlushErr)
	}
	q.req.next, q.req.nextPacket = q.sq.una, 0
}

// flushReceives does so with the receives, first the one that a message was arriving in. Those of a shared queue stay there, but
// for that one.
func (q *queuePair) flushReceives() {
	if q.resp.hasCur {
		q.endReceive(verbs.StatusWRFlushErr, false)
	}
	for q.srq == nil && q.rq.taken < q.rq.posted && !q.fatal {
		q.takeReceive()
		q.endReceive(verbs.StatusWRFlushErr, false)
	}
}

// enterError is the way into Error: both queues are flushed, in order.
func (q *queuePair) enterError() {
	if q.attr.State == verbs.StateErr {
		return
	}
	q.attr.State = verbs.StateErr
	if q.f.cfg.Trace != nil {
		q.f.tracef("%s/%06x enters ERR", q.hca.name, q.num)
	}
	q.stopTimers()
	q.resp.stopAnswering()
	q.flushSends()
	q.flushReceives()
	if q.srq != nil && !q.fatal {
		// Nothing of the shared queue comes to this queue pair any more (InfiniBand error model, 3.3.3).
		q.raise(verbs.EventQPLastWQEReached)
	}
}

// enterSQE is a failed send request of UC and UD: the send queue is flushed, and receiving goes on (queue pair states, 2.6).
func (q *queuePair) enterSQE() {
	if q.attr.State != verbs.StateRTS && q.attr.State != verbs.StateSQD {
		return
	}
	q.attr.State = verbs.StateSQE
	q.req.silent = false
	q.flushSends()
}

// breakDown is QP_FATAL: Error without the promise of a completion (InfiniBand error model, 3.1.1).
func (q *queuePair) breakDown() {
	if q.fatal || q.destroyed {
		return
	}
	q.fatal = true
	q.attr.State = verbs.StateErr
	q.stopTimers()
	q.f.agenda.cancel(&q.lateTimer)
	q.resp.stopAnswering()
	q.raise(verbs.EventQPFatal)
}

// raise tells the context that made the queue pair, and no other.
func (q *queuePair) raise(t verbs.EventType) { q.dev.raise(verbs.AsyncEvent{Type: t, QP: q}) }

func (c *context) raise(ev verbs.AsyncEvent) {
	if c.dead() {
		return
	}
	if c.f.cfg.Trace != nil {
		c.f.tracef("%s: %v", c.hca.name, ev.Type)
	}
	c.tell(ev)
}
