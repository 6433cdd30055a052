package simhca

import "github.com/mpigo/mpigo/btl/ibverbs/verbs"

// Raise raises an event of a port or of the device, with its effect: the link goes down or up, the
// LID or the subnet manager changes, or the device fails.
func (h *HCA) Raise(t verbs.EventType, port int) {
	defer h.f.enter().leave()
	switch t.Info().Affiliation {
	case verbs.AffiliationPort:
		h.raisePort(t, port)
	case verbs.AffiliationDevice:
		h.fail()
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
		if p.subnet != nil {
			p.subnet.assign(p)
		}
	case verbs.EventSMChange:
		if p.subnet != nil {
			p.subnet.smLID = p.subnet.smLID%(firstLID-1) + 1
		}
	}
	h.raiseUnaffiliated(t, num)
}

// RaiseQP raises an event of a queue pair with its effect: QP_FATAL fails the queue pair,
// QP_REQ_ERR and QP_ACCESS_ERR move it to ERR, and SRQ_ERR fails its shared receive queue, which it
// must have. Other events of queue pairs have no effect. RaiseQP reports whether the queue pair
// exists.
func (h *HCA) RaiseQP(qpn uint32, t verbs.EventType) bool {
	return h.withQP(qpn, func(q *queuePair) {
		switch t {
		case verbs.EventQPFatal:
			q.fail()
		case verbs.EventSRQErr:
			q.srq.fail()
		case verbs.EventQPReqErr, verbs.EventQPAccessErr:
			q.raise(t)
			q.enterError()
		default:
			q.raise(t)
		}
	})
}

// BreakCQ fails the completion queue of a queue pair's send requests: it raises CQ_ERR, and
// QP_FATAL for each queue pair on the queue. BreakCQ reports whether the queue pair exists.
func (h *HCA) BreakCQ(qpn uint32) bool {
	return h.withQP(qpn, func(q *queuePair) { q.sendCQ.fail() })
}

// BreakRecvCQ works like BreakCQ, for the completion queue of the receives.
func (h *HCA) BreakRecvCQ(qpn uint32) bool {
	return h.withQP(qpn, func(q *queuePair) { q.recvCQ.fail() })
}

// BreakSRQs fails the shared receive queues of all queue pairs of the device, as SRQ_ERR does. It
// reports whether there are any.
func (h *HCA) BreakSRQs() bool {
	defer h.f.enter().leave()
	broken := false
	for _, q := range h.qps {
		if q != nil && q.srq != nil {
			q.srq.fail()
			broken = true
		}
	}
	return broken
}

// Locked returns how many bytes are registered.
func (h *HCA) Locked() int64 {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	return h.locked
}

// withQP calls do with a queue pair, and reports false if the number is free.
func (h *HCA) withQP(qpn uint32, do func(q *queuePair)) bool {
	defer h.f.enter().leave()
	q := h.lookupQP(qpn)
	if q != nil {
		do(q)
	}
	return q != nil
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
	defer h.f.enter().leave()
	h.dead = false
}
