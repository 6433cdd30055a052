package ibverbs

import "github.com/mpigo/mpigo/progress"

var _ progress.Idler = (*module)(nil)

// Arm implements progress.Idler: it arms every queue for an event at its next completion. The
// device calls wakeup for such events, and always for asynchronous events.
func (m *module) Arm() bool {
	if m.absent != nil {
		return true
	}
	if m.Closed || m.h == nil || m.cfg.Wakeup == nil {
		return false
	}
	armed := m.h.udCQ.ReqNotify(false) == nil
	for _, g := range m.h.groups {
		if !g.broken {
			armed = g.cq.ReqNotify(false) == nil && armed
		}
	}
	// The next progress call must poll everything. Work that is due at a time can wait for the end
	// of the longest sleep. The ends of a port's grace period and of a drain cannot, because the
	// layer above may wait for them to use another rail. Work that is due after a number of
	// progress calls cannot wait either.
	m.Unsettled = true
	return armed && m.downAt == 0 && !m.Waiting()
}

// Disarm implements progress.Idler. Queues that are still armed may call wakeup once, later.
func (m *module) Disarm() {
	m.takeWakes()
	m.Unsettled = true
}

// takeWakes takes the events of queues that were armed.
func (m *module) takeWakes() {
	m.signals.And(^uint32(completionSignal))
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

// armUD arms the queue of datagrams, even while no goroutine sleeps: a peer that asks for a
// connection must not wait for the next call of this rank's program. It reports whether it armed
// the queue; the caller must then poll it once more.
func (m *module) armUD() bool {
	if m.cfg.AsyncProgress == nil || m.h.udArmed || m.h.udCQ.ReqNotify(false) != nil {
		return false
	}
	m.h.udArmed = true
	return true
}
