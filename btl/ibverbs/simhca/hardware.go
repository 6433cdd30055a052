package simhca

import "github.com/mpigo/mpigo/btl/ibverbs/verbs"

// Raise raises an event with its effect: the link goes down or up, the LID or the subnet manager
// changes, or the device fails. An event of queue pairs, completion queues or shared receive queues
// is raised for all of them, with the effects of RaiseQP.
func (h *HCA) Raise(t verbs.EventType, port int) {
	h.f.enter()
	defer h.f.leave()
	switch t.Info().Affiliation {
	case verbs.AffiliationPort:
		h.raisePort(t, port)
	case verbs.AffiliationDevice:
		h.fail()
	default:
		for _, q := range h.qps {
			if q != nil {
				q.apply(t)
			}
		}
	}
}

func (h *HCA) raisePort(t verbs.EventType, num int) {
	p := h.port(num)
	if p == nil {
		return
	}
	switch t {
	case verbs.EventPortActive, verbs.EventPortErr:
		if up := t == verbs.EventPortActive; p.up != up {
			h.setLink(num, up)
			return // setLink raises the event
		}
	case verbs.EventLIDChange:
		if p.link() == verbs.LinkInfiniBand {
			h.f.lastLID++
			p.setLID(h.f.lastLID)
		}
	case verbs.EventSMChange:
		p.smlid++
	}
	h.raiseUnaffiliated(t, num)
}

// RaiseQP raises an event of a queue pair with its effect: QP_FATAL fails the queue pair,
// QP_REQ_ERR and QP_ACCESS_ERR move it to ERR, CQ_ERR and SRQ_ERR fail its queues. Other events
// have no effect. RaiseQP reports whether the queue pair exists.
func (h *HCA) RaiseQP(qpn uint32, t verbs.EventType) bool {
	return h.withQP(qpn, func(q *queuePair) bool { q.apply(t); return true })
}

// apply raises an event of the queue pair or its queues, with its effect.
func (q *queuePair) apply(t verbs.EventType) {
	switch t {
	case verbs.EventQPFatal:
		q.fail()
	case verbs.EventQPReqErr, verbs.EventQPAccessErr:
		q.raise(t)
		q.enterError()
	case verbs.EventCQErr:
		q.sendCQ.fail()
		q.recvCQ.fail()
	case verbs.EventSRQErr:
		if q.srq != nil {
			q.srq.fail()
		}
	case verbs.EventSRQLimitReached:
		if q.srq != nil {
			q.srq.limit = 0
			q.dev.raise(verbs.AsyncEvent{Type: t, SRQ: q.srq})
		}
	default:
		if t.Info().Affiliation == verbs.AffiliationQP {
			q.raise(t)
		}
	}
}

// BreakCQ fails the completion queue of a queue pair's send requests: it raises CQ_ERR, and
// QP_FATAL for each queue pair on the queue. BreakCQ reports whether the queue pair exists.
func (h *HCA) BreakCQ(qpn uint32) bool {
	return h.withQP(qpn, func(q *queuePair) bool { q.sendCQ.fail(); return true })
}

// BreakRecvCQ works like BreakCQ, for the completion queue of the receives.
func (h *HCA) BreakRecvCQ(qpn uint32) bool {
	return h.withQP(qpn, func(q *queuePair) bool { q.recvCQ.fail(); return true })
}

// BreakSRQ fails the shared receive queue of a queue pair: it raises SRQ_ERR, and QP_FATAL for each
// queue pair on the queue. BreakSRQ reports whether the queue pair exists and has such a queue.
func (h *HCA) BreakSRQ(qpn uint32) bool {
	return h.withQP(qpn, func(q *queuePair) bool {
		if q.srq == nil {
			return false
		}
		q.srq.fail()
		return true
	})
}

// withQP calls do with a queue pair, and reports false if the number is free.
func (h *HCA) withQP(qpn uint32, do func(q *queuePair) bool) bool {
	h.f.enter()
	defer h.f.leave()
	q := h.lookupQP(qpn)
	return q != nil && do(q)
}

// fail raises DEVICE_FATAL. The device then does nothing, and only destroying its objects succeeds
// (InfiniBand error model, 3.1.4).
func (h *HCA) fail() {
	if h.dead {
		return
	}
	h.dead = true
	h.raiseUnaffiliated(verbs.EventDeviceFatal, 0)
	for _, c := range h.contexts {
		c.gone = true
	}
	for _, q := range h.qps {
		if q != nil {
			q.stopTimers()
			h.f.events.cancel(&q.lateTimer)
			q.resp.dropResponses()
		}
	}
}

// Revive resets a failed device, which can then be opened again. Its old contexts stay dead.
func (h *HCA) Revive() {
	h.f.enter()
	defer h.f.leave()
	h.dead = false
}
