package loop

import (
	"iter"
	"math"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

// A failure has two halves. The first, in Fail or in a progress call, makes an endpoint or the rail
// Failed and reports it. The second, at the end of a progress call, ends the incarnation (link.go),
// hands up the fragments delivered before, calls back outstanding operations, and reports Drained.

// settle does the deferred work of a progress call, and returns the number of events.
func (m *module) settle() int {
	n := m.settleLanded() + m.EndRefused() + m.FailDeferred()
	n += m.DrainEndpoints(m.tearDown, func(e *endpoint) int { return m.advance(e.peer) })
	if m.ModuleError() != nil && m.Draining() == 0 {
		for _, p := range m.peers {
			if p != nil {
				n += m.endPassive(p, math.MaxUint32)
			}
		}
		m.f.tracef("drained %s %d>all", m.Attrs().Name, m.port.name.Rank)
		m.DrainModule()
		n++
	}
	m.Unsettled = len(m.landed) > 0 || m.Waiting()
	return n
}

// Endpoints implements base.AddressOwner.
func (m *module) Endpoints() iter.Seq[*endpoint] {
	return func(yield func(*endpoint) bool) {
		for _, p := range m.peers {
			if p != nil && p.ep != nil && !yield(p.ep) {
				return
			}
		}
	}
}

// tearDown ends the incarnation of a Failed endpoint, and returns the number of events.
func (m *module) tearDown(e *endpoint) int {
	e.inc.markDead(e.end)
	// The peer may have joined this incarnation and sent just before.
	m.collectLanes()
	n := m.endPassive(e.peer, e.Epoch())
	n += e.flush()
	e.wire().close()
	m.f.tracef("drained %s %d>%d epoch %d", m.Attrs().Name, m.port.name.Rank, e.Peer(), e.Epoch())
	return n
}

// collectLanes collects the lanes of peers that have joined an incarnation. If the incarnation is
// already marked dead, the module then knows all its lanes. attend handles other notices.
func (m *module) collectLanes() {
	m.takeNotices()
	for i := range m.inbox {
		if n := &m.inbox[i]; n.lane != nil {
			p := m.peer(n.peer)
			p.next = append(p.next, n.lane)
			n.lane = nil
		}
	}
}

// failRail fails the whole module, and returns the number of events.
func (m *module) failRail(err *btl.Error) int {
	if !m.FailModule(err) {
		return 0
	}
	m.f.tracef("failed %s %d>all: %v", m.Attrs().Name, m.port.name.Rank, err)
	return 1
}

// Fail implements btl.Module.
func (m *module) Fail(cause error) {
	m.failRail(m.ErrorBecause(btl.AllPeers, btl.ClassDevice, cause))
}

// Close implements btl.Module.
func (m *module) Close() error {
	if m.Closed {
		return nil
	}
	m.Closed = true
	p := m.port
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.armed.Store(0)
	p.regions.close()

	m.collectLanes()
	closed := m.NewError(btl.AllPeers, btl.ClassClosed, btl.SideRemote, "", base.ErrPeerClosed)
	for _, q := range m.peers {
		if q != nil {
			m.leave(q, closed)
		}
	}
	for e := range m.Endpoints() {
		if m.CloseEndpoint(e) {
			e.flush()
			m.Drained(e)
		}
	}
	m.inbox, m.watched, m.landed = nil, nil, nil
	m.Forget()
	return nil
}

// leave ends every incarnation with a peer, and notifies the peer.
func (m *module) leave(q *peer, err *btl.Error) {
	lanes := q.next
	if q.in != nil {
		lanes = append(lanes, q.in)
	}
	for _, l := range lanes {
		l.inc.markDead(l.inc.link.end(m.port))
		m.discard(l)
	}
	connected := len(lanes) > 0
	if q.ep != nil && q.ep.State() != btl.Drained {
		q.ep.inc.markDead(q.ep.end)
		connected = true
	}
	if connected && q.port != m.port {
		m.f.tell(q.port, notice{kind: peerFailed, peer: m.port.place, upTo: math.MaxUint32, err: err})
	}
	q.in, q.next = nil, nil
}

// discard closes a lane and drops its fragments.
func (m *module) discard(l *lane) {
	if l.slots == nil {
		for _, a := range l.queue {
			if a.f != nil {
				a.f.lose()
			}
		}
		l.queue = nil
		return
	}
	for !l.seal() {
		s, _, _ := l.fragment()
		l.pass(s, slotClosed)
	}
}
