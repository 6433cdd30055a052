package ibverbs

import (
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// readEvents handles all asynchronous events of the device.
func (m *module) readEvents() int {
	m.signals.And(^uint32(eventSignal)) // first: a later event sets it again
	n := 0
	for m.h != nil && !m.Closed {
		ev, ok, err := m.h.dev.NextEvent()
		if err != nil {
			m.loseDevice(verbs.EventDeviceFatal.Native(), err)
			return n + 1
		}
		if !ok {
			return n
		}
		m.react(&ev)
		// Acknowledged before drain can destroy the object that the event names.
		m.h.dev.AckEvent(ev)
		n++
	}
	return n
}

// react handles an event according to the table of responses.
func (m *module) react(ev *verbs.AsyncEvent) {
	r := respond(ev.Type)
	info := ev.Type.Info()
	if info.Affiliation == verbs.AffiliationPort && ev.Port != m.cfg.Port {
		return
	}
	if m.reopen && r.reaction >= failRail {
		return // the rail has failed already, and its device is about to be closed
	}
	err := m.NewError(btl.AllPeers, r.class, r.side, ev.Type.Native(), fmt.Errorf("%s: %s", m.cfg.Device, info.Text))
	switch r.reaction {
	case refill:
		if s := m.h.shared; s != nil && ev.SRQ == s.srq {
			s.refillDue, m.Unsettled = true, true
		}
	case lastReceive:
		e := m.endpointOf(ev.QP)
		if i := slices.IndexFunc(m.toDestroy, func(e *endpoint) bool { return e.qp == ev.QP }); i >= 0 {
			e = m.toDestroy[i]
		}
		if e != nil && e.shared != nil {
			e.lastReceive, m.Unsettled = true, true
			if e.State() == btl.Up {
				err.Peer = e.p.rank
				e.deferSymptom(err)
			}
		}
	case established, failEndpoint:
		e := m.endpointOf(ev.QP)
		switch {
		case e == nil:
			if r.reaction == failEndpoint && ev.QP != nil && ev.QP == m.h.ud {
				m.loseDevice(err.Native, err.Err)
			}
		case r.reaction == established:
			e.established()
		default:
			err.Peer = e.p.rank
			if info.Severity == verbs.Catastrophe {
				e.giveUp()
			}
			e.fail(err)
		}
	case failRail:
		m.loseQueue(ev, err)
	case failDevice:
		m.loseDevice(err.Native, err.Err)
	case portDown:
		m.portFails()
	case portUp, requery:
		m.requery(err)
	}
}

// endpointOf finds the endpoint that has a queue pair.
func (m *module) endpointOf(qp verbs.QP) *endpoint {
	for _, e := range m.eps {
		if e != nil && e.qp == qp {
			return e
		}
	}
	return nil
}

// portFails handles a port that is down: nothing is posted, and after a grace period the rail
// fails.
func (m *module) portFails() {
	if m.portUp {
		m.setPort(false)
		m.downAt = m.cfg.Clock.Now() // m.now may be stale while a completion is handled
		m.Unsettled = true
	}
}

// lookAtPort checks whether the port is down, before the module judges an error that may be a
// symptom of that. The event may not have arrived yet, and not every device raises it (InfiniBand
// error model, 3.5).
func (m *module) lookAtPort() {
	if m.h == nil || m.h.lost || !m.portUp {
		return
	}
	if port, err := m.h.dev.QueryPort(m.cfg.Port); err == nil && !port.State.Up() {
		m.portFails()
	}
}

// awaitPort occasionally checks whether a port is up again, if the device raises no events for
// ports.
func (m *module) awaitPort() {
	if m.h != nil && !m.portUp && !m.h.attr.PortEvents && m.now >= m.portCheckAt {
		m.portCheckAt = m.now + checkNanos
		m.stale, m.Unsettled = true, true
	}
}

// setPort records whether the port carries traffic.
func (m *module) setPort(up bool) {
	m.portUp = up
	for _, e := range m.eps {
		if e == nil {
			continue
		}
		e.update()
		if up {
			e.list() // it may have credits that could not be sent
		}
	}
}

// requery queries the port's state and address. If the port has lost an address, connections from
// it cannot be used any more.
func (m *module) requery(err *btl.Error) {
	h := m.h
	if h == nil || h.lost {
		return
	}
	gid, lid := h.gid.GID, h.port.LID
	failed := h.queryPort(&m.cfg)
	up := failed == nil && h.port.State.Up()
	if up && !m.portUp {
		m.downAt = 0
		m.setPort(true)
	}
	if failed != nil || h.gid.GID != gid || h.port.LID != lid {
		m.dropHandles()
		err.Class, err.Side = btl.ClassPath, btl.SideLocal
		if failed != nil { // the device may be about to be removed, which waits until it is closed
			err.Err = fmt.Errorf("%w: %w", err.Err, failed)
			m.setPort(false)
			h.lost, m.reopen, m.downAt = true, true, 0
		} else {
			m.publish()
		}
		m.FailModule(err)
		return
	}
	m.requeryPKey(err)
}

// requeryPKey finds the partition key in the port's table. Connections that use another entry
// cannot be used any more. If the key is missing, there are no connections until it is back.
func (m *module) requeryPKey(err *btl.Error) {
	h := m.h
	before, missed := h.pkeyIndex, h.pkeyErr != nil
	index, key, failed := h.findPKey(&m.cfg)
	h.pkeyErr = failed
	if failed == nil {
		h.pkeyIndex, h.pkey = index, key
	}
	if failed == nil && index == before || failed != nil && missed {
		return
	}
	err.Class, err.Side = btl.ClassPath, btl.SideLocal
	if failed != nil {
		err.Err = fmt.Errorf("%w: %w", err.Err, failed)
	} else if m.restartUD(err.Native, err.Err); m.reopen {
		return // that has failed the rail
	}
	m.FailModule(err)
}

// loseQueue handles a broken completion queue or shared receive queue: the rail fails, because all
// its connections may use that queue. New endpoints use a new queue.
func (m *module) loseQueue(ev *verbs.AsyncEvent, err *btl.Error) {
	if ev.CQ != nil && ev.CQ == m.h.udCQ {
		m.loseDevice(err.Native, err.Err)
		return
	}
	if s := m.h.shared; s != nil && ev.SRQ == s.srq {
		s.broken = true
	}
	for _, g := range m.h.groups {
		if ev.CQ != nil && g.cq == ev.CQ {
			g.broken = true
		}
	}
	m.FailModule(err)
}

// loseDevice fails the rail, and makes the module reopen its device.
func (m *module) loseDevice(native string, cause error) {
	if m.h == nil || m.h.lost {
		return
	}
	m.h.lost = true
	m.reopen, m.downAt = true, 0
	m.Unsettled = true
	m.FailModule(m.NewError(btl.AllPeers, btl.ClassDevice, btl.SideLocal, native, cause))
}
