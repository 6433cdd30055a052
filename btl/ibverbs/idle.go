package ibverbs

import "github.com/mpigo/mpigo/progress"

var _ progress.Idler = (*module)(nil)

// Arm implements progress.Idler: every queue is asked for an event at its next completion. The
// device's provider rings the bell for that, and always for asynchronous events.
func (m *module) Arm() bool {
	if m.Closed || m.h == nil || m.cfg.Wakeup == nil {
		return false
	}
	armed := m.h.udCQ.ReqNotify(false) == nil
	for _, g := range m.h.groups {
		if !g.broken {
			armed = g.cq.ReqNotify(false) == nil && armed
		}
	}
	// The poll that follows has to look at everything. What is due by the clock can wait for the
	// end of the longest sleep, except the end of a port's grace and of a drain: the layer above
	// may wait for that to use another rail. What is due by progress calls cannot wait.
	m.Unsettled = true
	return armed && m.downAt == 0 && !m.Waiting()
}

// Disarm implements progress.Idler. Events that were asked for and have not come yet may ring the
// bell once, later.
func (m *module) Disarm() {
	m.takeWakes()
	m.Unsettled = true
}

// takeWakes takes the events of queues that were armed.
func (m *module) takeWakes() {
	m.news.And(^uint32(newsWakes))
	for m.h != nil {
		cq, ok, err := m.h.wakes.NextEvent()
		if err != nil || !ok {
			return
		}
		cq.AckEvents(1)
		if cq == m.h.udCQ {
			m.h.udArmed = false
		}
	}
}

// armUD asks for an event at the next datagram, also while no goroutine sleeps: a peer that asks
// for a connection must not wait until this rank's program next calls. It reports whether it armed:
// then the queue has to be polled once more.
func (m *module) armUD() bool {
	if m.cfg.AsyncProgress == nil || m.h.udArmed || m.h.udCQ.ReqNotify(false) != nil {
		return false
	}
	m.h.udArmed = true
	return true
}
