package ibverbs

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/btl/transport"
)

const (
	// An unanswered request is repeated after askFirst. Each further delay is twice as long, up to
	// askMost (nanoseconds).
	askFirst = 5e6
	askMost  = 200e6
	// failureTries is how often a failure is reported. A peer that misses all reports notices the
	// failure when it sends.
	failureTries = 10
	// If the system reports noRouteTries times, and for noRouteNanos, that there is no route to the
	// peer, the connection fails: the peer never got a request that it could answer.
	noRouteNanos = 1e9
	noRouteTries = 3

	minRNRTimer = 12 // 0.64 ms; with credits it is not needed
	rnrRetry    = 6  // of peers whose queue pairs have their own receives
	maxReads    = 4  // at a time, each of a quarter MiB: more than any path holds
)

var (
	errNoAnswer = errors.New("the peer does not answer")
	errNoRoute  = errors.New("there is no route to the peer")
	errNoLookup = errors.New("the device cannot look up the path to the peer")
	// errMoved: the cause passes, so a peer that gets a REJ with it asks again.
	errMoved = fmt.Errorf("%w: the port's address or partition is changing", unix.EAGAIN)
)

// failureNotice is a report of a failure that the peer has not acknowledged.
type failureNotice struct {
	p     *peer
	epoch uint32
	tries int
	at    int64
}

// ask sends the peer the first REQ.
func (e *endpoint) ask() {
	m := e.m
	now := m.cfg.Clock.Now()
	e.asked, e.askWait, e.askAt, e.askUntil = now, askFirst, now+askFirst, now+int64(m.cfg.ConnectTimeout)
	m.asking = append(m.asking, e)
	m.Unsettled = true
	m.tell(e.p, &message{kind: msgREQ, epoch: e.Epoch(), end: e.end()})
}

// extendDeadlines extends the deadlines of connections by the time without a progress call, because
// answers may have arrived meanwhile. At most a quarter of a deadline passes in one such gap.
func (m *module) extendDeadlines(since int64) {
	for _, e := range m.asking {
		gap := m.now - max(since, e.asked)
		e.askUntil += max(gap-int64(m.cfg.ConnectTimeout)/4, 0)
		if e.rejection != nil {
			e.rejectUntil += max(gap-rejectNanos/4, 0)
		}
	}
}

// askAgain repeats messages that were not answered, and fails the endpoints whose deadline has
// passed.
func (m *module) askAgain() int {
	n := 0
	m.asking = slices.DeleteFunc(m.asking, func(e *endpoint) bool {
		if e.State() != btl.Up || e.phase == phaseReady {
			return true
		}
		noRoute := e.p.noRouteTries >= noRouteTries && m.now-e.asked >= noRouteNanos
		rejected := e.rejection != nil && m.now >= e.rejectUntil
		if noRoute || rejected || m.now >= e.askUntil {
			e.failDeferred(m.noAnswerError(e))
			n++
			return true
		}
		if e.phase == phaseAsking && m.now >= e.askAt {
			e.askWait = min(2*e.askWait, askMost)
			e.askAt = m.now + e.askWait
			msg := message{kind: msgREQ, epoch: e.Epoch(), end: e.end()}
			m.tell(e.p, &msg)
			if m.mayHaveMoved(e) {
				m.tellBySiblings(e.p, &msg)
			}
		}
		return false
	})
	m.unackedFailures = slices.DeleteFunc(m.unackedFailures, func(o *failureNotice) bool {
		if m.now >= o.at {
			o.tries++
			o.at = m.now + askFirst<<o.tries
			m.tell(o.p, &message{kind: msgDOWN, epoch: o.epoch})
		}
		return o.tries >= failureTries
	})
	return n
}

// mayHaveMoved reports whether a request may be unanswered because one end is at another address
// than the one that it published, and the other end does not know it. e is Up, so the device is
// open: it is closed only once all endpoints are Drained.
func (m *module) mayHaveMoved(e *endpoint) bool {
	here := m.h.address()
	return here != m.publishedAddress && e.p.reached != here || e.askWait == askMost
}

// noAnswerError is the error of an endpoint, which is Up, whose request for a connection failed. If
// no peer answers, the two ports are usually not on one network.
func (m *module) noAnswerError(e *endpoint) *btl.Error {
	if e.rejection != nil {
		return e.rejection
	}
	p := e.p
	class, side, err := btl.ClassPath, btl.SideRemote, fmt.Errorf("%w: nothing from %v to %v for %v", errNoAnswer, p.address, m.h.address(), m.cfg.ConnectTimeout)
	if p.noRouteTries > 0 {
		if class, side = pathFault(p.noRoute); side == btl.SideLocal {
			return m.NewError(p.rank, class, side, "", fmt.Errorf("%w, from %v to %v: %w", errNoLookup, m.h.address(), p.address, p.noRoute))
		}
		err = fmt.Errorf("%w, from %v to %v: %w", errNoRoute, m.h.address(), p.address, p.noRoute)
	}
	if m.h.pkey < fullMember {
		err = fmt.Errorf("%w (this port is a limited member of partition %v, which reaches only full members)", err, m.h.pkey)
	}
	return m.NewError(p.rank, class, side, "", fmt.Errorf("%w (if these ports, or the addresses that ibverbs.gid chooses, are not on one network, choose others)", err))
}

// tellFailure reports to the peer that this end of the incarnation has failed.
func (m *module) tellFailure(e *endpoint) {
	m.tell(e.p, &message{kind: msgDOWN, epoch: e.Epoch()})
	m.unackedFailures = append(m.unackedFailures, &failureNotice{p: e.p, epoch: e.Epoch(), at: m.cfg.Clock.Now() + askFirst})
}

// end describes this end to the peer.
func (e *endpoint) end() qpEnd {
	m := e.m
	answers, _ := m.h.reads()
	retry := uint8(rnrRetry)
	if e.shared != nil {
		retry = rnrForever
	}
	return qpEnd{
		qpn: e.qpn, psn: e.psn, mtu: e.mtu, rdAtomic: uint8(answers),
		recvDepth: uint16(e.window), frag: uint32(m.cfg.FragBytes), rnrRetry: retry,
	}
}

// tell sends a datagram to a peer once. The datagram may get lost, even in this function.
func (m *module) tell(p *peer, msg *message) {
	if m.h == nil {
		return
	}
	m.sign(p, msg)
	m.carry(p, msg)
}

// sign sets the sender and the recipient of a message.
func (m *module) sign(p *peer, msg *message) {
	msg.from, msg.to = uint32(m.cfg.Rank), uint32(p.rank)
	msg.fromNonce, msg.toNonce, msg.address = m.me, p.nonce, m.h.address()
}

// carry sends a message to a peer. It may be a sibling's message.
func (m *module) carry(p *peer, msg *message) {
	h := m.h
	if h == nil || h.lost || !m.portUp || p.address.isZero() {
		return
	}
	if p.ah != nil && p.ahTo == p.address || m.resolve(&lookup{p: p, to: p.address, epoch: msg.epoch, out: msg}) {
		m.post(p, msg)
	}
}

// handle handles a message of a module of this job. It may be a replay.
func (m *module) handle(msg *message) {
	if m.h == nil || msg.to != uint32(m.cfg.Rank) || msg.toNonce != m.me || msg.from >= uint32(m.cfg.Size) || msg.from == msg.to {
		return
	}
	p := m.peer(int(msg.from), msg.fromNonce, msg.address)
	if p == nil {
		return
	}
	e := p.ep
	alive := e != nil && e.State() == btl.Up
	switch msg.kind {
	case msgREQ:
		if msg.epoch > p.epoch || alive && e.phase == phaseAsking && msg.epoch >= e.Epoch() {
			p.address = msg.address // a message of another epoch may be a replay
		}
		m.receiveREQ(p, msg)
	case msgREP:
		if alive && e.phase == phaseAsking && msg.epoch == e.Epoch() && msg.toQPN == e.qpn && m.knows(p, msg) {
			p.address = msg.address
			e.answered(msg)
		}
	case msgREJ:
		if alive && e.phase == phaseAsking && msg.epoch == e.Epoch() && msg.toQPN == e.qpn {
			e.rejected(&msg.why)
		}
	case msgNAK:
		if alive && e.phase == phaseAsking && msg.epoch >= e.Epoch() && msg.epoch+1 != 0 {
			e.SetEpoch(msg.epoch + 1)
			p.epoch = msg.epoch + 1
			m.tell(p, &message{kind: msgREQ, epoch: e.Epoch(), end: e.end()})
		}
	case msgDOWN, msgBYE:
		if alive && e.phase != phaseAsking && msg.epoch == e.Epoch() {
			// The peer's end of this incarnation has failed since the two were connected, so the
			// message is no replay. The cause may be that its port has another address.
			p.address = msg.address
		}
		// After a failure in a later epoch, the peer's end of this incarnation does not exist any
		// more. An end that still asks gets a NAK instead.
		if alive && (msg.epoch == e.Epoch() || msg.epoch > e.Epoch() && e.phase != phaseAsking) {
			err := m.NewError(p.rank, btl.ClassPath, btl.SideRemote, "", base.ErrPeerFailed)
			switch {
			case msg.kind == msgBYE:
				err.Class, err.Err = btl.ClassClosed, base.ErrPeerClosed
				e.fail(err)
			case e.awaited > 0:
				// A request of this end may be the cause. Then this message has overtaken its
				// refusal.
				e.deferSymptom(err)
			default:
				e.fail(err)
			}
		}
		p.epoch = max(p.epoch, msg.epoch)
		m.tell(p, &message{kind: msgDOWNACK, epoch: msg.epoch})
	case msgDOWNACK:
		m.unackedFailures = slices.DeleteFunc(m.unackedFailures, func(o *failureNotice) bool { return o.p == p && o.epoch <= msg.epoch })
	}
}

// receiveREQ answers a request for a connection, unless the rail has failed or its port is down.
// Then the peer asks again.
func (m *module) receiveREQ(p *peer, msg *message) {
	e := p.ep
	if e == nil || e.State() == btl.Drained {
		switch {
		case msg.epoch <= p.epoch:
			m.refuse(p, msg)
		case m.ModuleError() != nil || m.reopen || !m.portUp:
		case int(msg.end.frag) != m.cfg.FragBytes:
			m.reject(p, msg, rejectionFor(transport.DifferInFragments(fragKey, m.cfg.Rank, int64(m.cfg.FragBytes), p.rank, int64(msg.end.frag))))
		case !m.knows(p, msg): // it is handled once the path is resolved
		default:
			e, err := m.newEndpoint(p, msg.epoch)
			if err != nil {
				m.reject(p, msg, rejectionFor(err))
				return
			}
			e.accept(msg)
		}
		return
	}
	switch {
	case e.State() != btl.Up:
	case e.phase == phaseAsking:
		// Both ends have asked. The later epoch wins. For equal epochs, the lower rank's request
		// wins.
		if msg.epoch > e.Epoch() || msg.epoch == e.Epoch() && p.rank < m.cfg.Rank {
			if !m.knows(p, msg) {
				return
			}
			e.SetEpoch(msg.epoch)
			p.epoch = msg.epoch
			e.accept(msg)
		} else if msg.address != p.address {
			m.refuse(p, msg) // if the peer has moved to this address, it receives no REQ
		}
	case msg.epoch > e.Epoch():
		e.fail(m.NewError(p.rank, btl.ClassPath, btl.SideRemote, "", base.ErrPeerFailed))
	case msg.epoch == e.Epoch() && msg.end.qpn == e.remote.qpn:
		// The first REP was lost.
		m.tell(p, &message{kind: msgREP, epoch: e.Epoch(), end: e.end(), toQPN: e.remote.qpn})
	}
}

// refuse answers a REQ with NAK: its epoch is over. It answers to the address in the REQ, because
// the peer may have moved there, but does not store that address, because the REQ may be a replay.
func (m *module) refuse(p *peer, msg *message) {
	known := p.address
	p.address = msg.address
	m.tell(p, &message{kind: msgNAK, epoch: p.epoch})
	p.address = known
}

// accept makes the passive end ready to receive, and sends REP.
func (e *endpoint) accept(msg *message) {
	m := e.m
	if !e.toRTR(msg) {
		// This end fails now. DOWN reports that too, so the peer need not ask again.
		why := rejectionFor(e.Deferred().Err)
		why.retry = false
		m.reject(e.p, msg, why)
		return
	}
	if e.askUntil == 0 {
		e.asked = m.cfg.Clock.Now()
		e.askUntil = e.asked + int64(m.cfg.ConnectTimeout)
		m.asking = append(m.asking, e)
	}
	e.enter(phaseAccepted)
	e.rejection, e.rejectUntil = nil, 0 // the peer has made its end now
	m.Unsettled = true
	m.tell(e.p, &message{kind: msgREP, epoch: e.Epoch(), end: e.end(), toQPN: msg.end.qpn})
}

// answered makes the active end ready, and sends the first message on the connection.
func (e *endpoint) answered(msg *message) {
	if msg.end.mtu > e.mtu {
		e.protocolError("an MTU of %d bytes, where %d were offered", msg.end.mtu.Bytes(), e.mtu.Bytes())
		return
	}
	if !e.toRTR(msg) || !e.toRTS() {
		return
	}
	e.enter(phaseReady)
	e.p.reached = e.m.h.address()
	if !e.sendControl(wireHello) {
		e.deviceFails(errors.New("no first message can be sent"))
		return
	}
	e.catchUp()
}

// established makes the passive end ready to send, at COMM_EST or the first receive (queue pair
// states, 4).
func (e *endpoint) established() {
	if e.State() != btl.Up || e.phase != phaseAccepted || !e.toRTS() {
		return
	}
	e.enter(phaseReady)
	e.p.reached = e.m.h.address()
	e.catchUp()
	e.list()
}

// toRTR makes the queue pair ready to receive from the queue pair that the message names.
func (e *endpoint) toRTR(msg *message) bool {
	m := e.m
	e.remote, e.device = msg.end, msg.address.qkey
	remote := &e.remote
	e.mtu = min(e.mtu, remote.mtu)
	answers, _ := m.h.reads()
	attr := verbs.QPAttr{
		State: verbs.StateRTR, PathMTU: e.mtu, DestQPN: remote.qpn, RQPSN: remote.psn,
		MaxDestRdAtomic: uint8(answers), MinRNRTimer: minRNRTimer, AH: m.h.path(&m.cfg, &e.p.address),
	}
	e.credits, e.controlCredits = int(remote.recvDepth), controlDepth
	return e.modify(&attr, verbs.AttrState|verbs.AttrAV|verbs.AttrPathMTU|verbs.AttrDestQPN|
		verbs.AttrRQPSN|verbs.AttrMaxDestRdAtomic|verbs.AttrMinRNRTimer)
}

// toRTS makes the queue pair ready to send.
func (e *endpoint) toRTS() bool {
	m := e.m
	_, asks := m.h.reads()
	attr := verbs.QPAttr{
		State: verbs.StateRTS, SQPSN: e.psn, Timeout: m.cfg.AckTimeout, RetryCnt: m.cfg.RetryCount, RNRRetry: e.remote.rnrRetry,
		MaxRdAtomic: uint8(min(asks, int(e.remote.rdAtomic))),
	}
	return e.modify(&attr, verbs.AttrState|verbs.AttrSQPSN|verbs.AttrTimeout|verbs.AttrRetryCnt|
		verbs.AttrRNRRetry|verbs.AttrMaxQPRdAtomic)
}

// modify changes the state of a queue pair that is being connected. After an error, the endpoint
// fails. If attr has a path, the system may look up the peer's address.
func (e *endpoint) modify(attr *verbs.QPAttr, mask verbs.AttrMask) bool {
	err := e.qp.Modify(attr, mask)
	if err != nil {
		class, side := pathFault(err)
		e.failDeferred(e.m.NewError(e.p.rank, class, side, "", fmt.Errorf("connection: %w", err)))
	}
	return err == nil
}
