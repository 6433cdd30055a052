package loop

import (
	"errors"
	"math"
	"slices"

	"github.com/mpigo/mpigo/btl"
)

// Failures have two halves. The first, in Fail or in a turn of progress, makes an endpoint
// or the rail Failed and says so. The second, at the end of a turn, buries the incarnation
// (link.go), hands up what had been delivered, calls back what is outstanding, and says
// Drained. What a post finds out waits for a turn as well.

// settle does what could not be done where it came up.
func (m *module) settle() int {
	n := m.settleLanded()
	if len(m.refused) > 0 {
		n += m.settleRefused()
	}
	if len(m.late) > 0 {
		n += m.settleLate()
	}
	for len(m.doomed) > 0 {
		e := m.doomed[0]
		m.doomed = slices.Delete(m.doomed, 0, 1)
		if e.state == btl.Up {
			e.fail(e.doom)
			n++
		}
	}
	for len(m.dying) > 0 {
		e := m.dying[0]
		m.dying = slices.Delete(m.dying, 0, 1)
		n += m.tearDown(e)
		m.f.tracef("drained %s %d>%d epoch %d", m.attrs.Name, m.port.rank, e.peer, e.epoch)
		m.ev.Drained(m, e.peer)
		n += 1 + m.advance(m.peer(e.peer))
	}
	if m.railErr != nil {
		n += m.tearDownRail()
	}
	if len(m.ghosts) > 0 {
		m.haunt()
	}
	m.unsettled = len(m.landed)+len(m.refused)+len(m.late)+len(m.doomed)+len(m.dying)+len(m.ghosts) > 0 || m.railErr != nil
	return n
}

// tearDown brings a Failed endpoint to Drained.
func (m *module) tearDown(e *endpoint) int {
	e.inc.bury(e.end)
	// The peer may have joined this incarnation just before it was buried, and have sent.
	m.putBy()
	n := m.endPassive(m.peer(e.peer), e.epoch)
	n += e.flush()
	e.state = btl.Drained
	return n
}

// putBy puts the lanes that peers have joined by. Whoever has buried an incarnation then
// knows all lanes of it. What is to be done about the others is left to attend.
func (m *module) putBy() {
	m.takeNotices()
	for i := range m.inbox {
		if n := &m.inbox[i]; n.lane != nil {
			p := m.peer(n.peer)
			p.next = append(p.next, n.lane)
			n.lane = nil
		}
	}
}

// failRail begins the end of the whole rail.
func (m *module) failRail(err *btl.Error) int {
	if m.closed || m.railErr != nil {
		return 0
	}
	m.railErr = err
	m.unsettled = true
	for _, p := range m.peers {
		if p != nil && p.ep != nil && p.ep.state == btl.Up {
			p.ep.state = btl.Failed
			p.ep.byRail = true
		}
	}
	m.f.tracef("failed %s %d>all: %v", m.attrs.Name, m.port.rank, err)
	m.ev.Failed(m, btl.AllPeers, err)
	return 1
}

func (m *module) tearDownRail() int {
	n := 0
	for _, p := range m.peers {
		if p == nil {
			continue
		}
		if p.ep != nil && p.ep.byRail && p.ep.state == btl.Failed {
			n += m.tearDown(p.ep)
		}
		n += m.endPassive(p, math.MaxUint32)
	}
	m.railErr = nil
	m.f.tracef("drained %s %d>all", m.attrs.Name, m.port.rank)
	m.ev.Drained(m, btl.AllPeers)
	return n + 1
}

// Fail implements btl.Module.
func (m *module) Fail(cause error) {
	m.failRail(m.because(btl.AllPeers, btl.ClassDevice, cause))
}

// Close implements btl.Module.
func (m *module) Close() error {
	if m.closed {
		return nil
	}
	m.closed = true
	p := m.port
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.armed.Store(0)
	p.regions.close()

	m.putBy()
	gone := m.errorf(btl.AllPeers, btl.ClassClosed, btl.SideRemote, "", errPeerClosed)
	for _, q := range m.peers {
		if q != nil {
			m.leave(q, gone)
		}
	}
	for _, q := range m.peers {
		if q != nil && q.ep != nil && q.ep.state != btl.Drained {
			q.ep.state = btl.Failed
			q.ep.cause = m.errorf(q.rank, btl.ClassClosed, btl.SideLocal, "", btl.ErrClosed)
			q.ep.flush()
			q.ep.state = btl.Drained
		}
	}
	m.inbox, m.hot, m.landed, m.refused, m.late, m.ghosts, m.doomed, m.dying, m.railErr = nil, nil, nil, nil, nil, nil, nil, nil, nil
	m.unsettled = false
	return nil
}

// leave ends every incarnation with a peer, and tells it.
func (m *module) leave(q *peer, err *btl.Error) {
	lanes := q.next
	if q.in != nil {
		lanes = append(lanes, q.in)
	}
	for _, l := range lanes {
		l.inc.bury(l.inc.link.end(m.port))
		m.abandon(l)
	}
	if q.ep != nil && q.ep.state != btl.Drained {
		q.ep.inc.bury(q.ep.end)
		lanes = append(lanes, nil)
	}
	if len(lanes) > 0 && q.rank != m.port.rank {
		m.f.tell(m.port.rail, m.port.rank, q.rank, notice{kind: peerFailed, peer: m.port.rank, upTo: math.MaxUint32, err: err})
	}
	q.in, q.next = nil, nil
}

// abandon closes a lane; what was on it is nobody's any more.
func (m *module) abandon(l *lane) {
	if l.slots == nil {
		l.queue = nil
		return
	}
	for !l.seal() {
		s, _, _ := l.fragment()
		l.pass(s, slotClosed)
	}
}

// errorf makes an error of this rail.
func (m *module) errorf(peer int, class btl.Class, side btl.Side, native string, err error) *btl.Error {
	return &btl.Error{Rail: m.attrs.Name, Peer: peer, Class: class, Side: side, Native: native, Err: err}
}

// about is err as an error of this rail with that peer.
func (m *module) about(peer int, err *btl.Error) *btl.Error {
	return m.errorf(peer, err.Class, err.Side, err.Native, err.Err)
}

// because is the error of a failure that the layer above asked for.
func (m *module) because(peer int, class btl.Class, cause error) *btl.Error {
	var be *btl.Error
	if errors.As(cause, &be) {
		err := m.about(peer, be)
		err.Err = cause
		return err
	}
	return m.errorf(peer, class, btl.SideLocal, "", cause)
}
