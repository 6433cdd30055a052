package ibverbs

import "github.com/mpigo/mpigo/progress"

var _ progress.Idler = (*module)(nil)

// Arm implements progress.Idler: every queue is asked for an event at its next completion. The bell is rung for that by the
// device's provider, and for asynchronous events always.
func (m *module) Arm() bool {
	if m.Closed || m.h == nil || m.cfg.Bell == nil {
		return false
	}
	armed := m.h.udCQ.ReqNotify(false) == nil
	for _, g := range m.h.groups {
		if !g.broken {
			armed = g.cq.ReqNotify(false) == nil && armed
		}
	}
	// The poll that follows has to look everywhere. What is due by the clock can wait for the end of the longest sleep, but for the end of
	// a port's grace and of a drain, for which whoever wants another rail waits; what is due by turns cannot.
	m.Unsettled = true
	return armed && m.downAt == 0 && !m.Waiting()
}

// Disarm implements progress.Idler. Events that were asked for and have not come yet may ring the bell once, later.
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

// armUD has the bell rung, and somebody kicked, for the next datagram, also while nobody sleeps: a peer that asks for a connection
// is not to wait until this rank's program next calls. It reports whether it armed, so that the queue has to be polled once more.
func (m *module) armUD() bool {
	if m.cfg.Wakeup == nil || m.h.udArmed || m.h.udCQ.ReqNotify(false) != nil {
		return false
	}
	m.h.udArmed = true
	return true
}
