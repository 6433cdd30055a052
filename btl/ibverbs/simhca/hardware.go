package simhca

import "github.com/mpigo/mpigo/btl/ibverbs/verbs"

// Raise has an event happen, with what it does: the link goes down or up, the LID or the subnet manager becomes another, the device
// breaks. Of a kind that is a queue pair's, a completion queue's or a shared receive queue's it happens to every one there is.
func (h *HCA) Raise(t verbs.EventType, port int) {
	h.f.enter()
	defer h.f.leave()
	switch t.Info().Affiliation {
	case verbs.AffiliationPort:
		h.raisePort(t, port)
	case verbs.AffiliationDevice:
		h.breakDown()
	default:
		for _, q := range h.qps {
			if q != nil {
				q.suffer(t)
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
			return // with the event
		}
	case verbs.EventLIDChange:
		if p.link() == verbs.LinkInfiniBand {
			h.f.lastLID++
			p.setLID(h.f.lastLID)
		}
	case verbs.EventSMChange:
		p.smlid++
	}
	h.tellAll(t, num)
}

// RaiseQP has an event happen to a queue pair, with what it does: QP_FATAL breaks it, QP_REQ_ERR and QP_ACCESS_ERR bring it to
// Error, CQ_ERR and SRQ_ERR break its queues; the others are told and change nothing. It reports whether there is one of that number.
func (h *HCA) RaiseQP(qpn uint32, t verbs.EventType) bool {
	h.f.enter()
	defer h.f.leave()
	q := h.lookupQP(qpn)
	if q == nil {
		return false
	}
	q.suffer(t)
	return true
}

func (q *queuePair) suffer(t verbs.EventType) {
	switch t {
	case verbs.EventQPFatal:
		q.breakDown()
	case verbs.EventQPReqErr, verbs.EventQPAccessErr:
		q.raise(t)
		q.enterError()
	case verbs.EventCQErr:
		q.sendCQ.breakDown()
		q.recvCQ.breakDown()
	case verbs.EventSRQErr:
		if q.srq != nil {
			q.srq.breakDown()
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

// BreakCQ breaks the completion queue of a queue pair's send requests: CQ_ERR, and QP_FATAL of each queue pair on it. It reports
// whether there is a queue pair of that number.
func (h *HCA) BreakCQ(qpn uint32) bool {
	return h.to(qpn, func(q *queuePair) bool { q.sendCQ.breakDown(); return true })
}

// BreakRecvCQ is BreakCQ for the receives.
func (h *HCA) BreakRecvCQ(qpn uint32) bool {
	return h.to(qpn, func(q *queuePair) bool { q.recvCQ.breakDown(); return true })
}

// BreakSRQ breaks the shared receive queue of a queue pair: SRQ_ERR, and QP_FATAL of each queue pair on it. It reports whether there is a
// queue pair of that number with one.
func (h *HCA) BreakSRQ(qpn uint32) bool {
	return h.to(qpn, func(q *queuePair) bool {
		if q.srq == nil {
			return false
		}
		q.srq.breakDown()
		return true
	})
}

func (h *HCA) to(qpn uint32, do func(q *queuePair) bool) bool {
	h.f.enter()
	defer h.f.leave()
	q := h.lookupQP(qpn)
	return q != nil && do(q)
}

// breakDown is DEVICE_FATAL: nothing comes of the device any more, and nothing but giving things back works (InfiniBand error
// model, 3.1.4).
func (h *HCA) breakDown() {
	if h.dead {
		return
	}
	h.dead = true
	h.tellAll(verbs.EventDeviceFatal, 0)
	for _, c := range h.contexts {
		c.gone = true
	}
	for _, q := range h.qps {
		if q != nil {
			q.stopTimers()
			h.f.agenda.cancel(&q.lateTimer)
			q.resp.stopAnswering()
		}
	}
}

// Revive is the device after it was reset: it can be opened anew. Contexts from before stay broken.
func (h *HCA) Revive() {
	h.f.enter()
	defer h.f.leave()
	h.dead = false
}
