package tcp

import (
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
)

// goodbyeNanos bounds how long Close waits until peers' machines have the good-byes, and all that was sent before.
const goodbyeNanos = 100e6

// Close implements btl.Module.
func (m *module) Close() error {
	if m.Closed {
		return nil
	}
	m.sayGoodbye()
	m.Closed = true
	for len(m.strangers) > 0 {
		s := m.strangers[0]
		if s.known {
			m.turnAway(s, verdictClosed, 0)
		} else {
			m.drop(s)
		}
	}
	for e := range m.Endpoints() {
		if m.CloseEndpoint(e) {
			e.tearDown()
			m.Drained(e)
		}
	}
	m.hot, m.ready, m.dirty, m.blocked, m.owing, m.leftover, m.outs = nil, nil, nil, nil, nil, nil, nil
	m.dialing, m.unwritable, m.deferred, m.look = nil, nil, nil, false
	m.Forget()
	return m.closeAll()
}

// sayGoodbye sends what is left, and then good-bye, on every connection, and waits until the peers' machines have it. Only then is it
// safe to close a socket to which its peer may still be sending: the system answers that with a reset, with which it throws away what it has
// not delivered yet (RFC 9293, 3.6.1).
func (m *module) sayGoodbye() {
	var open []*endpoint
	for _, p := range m.peers {
		if p != nil && p.ep != nil && p.ep.State() == btl.Up && p.ep.phase == phaseReady && p.ep.Deferred() == nil {
			p.ep.bye = true
			p.ep.blocked = false
			open = append(open, p.ep)
		}
	}
	for deadline := m.cfg.Clock.Now() + goodbyeNanos; len(open) > 0; m.cfg.Pass() {
		waiting := open[:0]
		for _, e := range open {
			if !e.leave() {
				waiting = append(waiting, e)
			}
		}
		open = waiting
		if m.cfg.Clock.Now() >= deadline {
			return
		}
	}
}

// leave goes on with a good-bye, and reports whether there is nothing more to wait for.
func (e *endpoint) leave() bool {
	e.blocked = false
	e.flush()
	for { // what the peer sends is not taken any more, but what lies unread would have the system reset the connection
		got, errno := recv(e.fd, e.buf)
		if errno == unix.EAGAIN || errno == unix.EINTR {
			break
		}
		if got <= 0 {
			return true // the peer has left
		}
	}
	if e.writeErr != 0 {
		return true
	}
	if e.hasToSend() {
		return false
	}
	_ = unix.Shutdown(e.fd, unix.SHUT_WR)
	return left(e.fd, e.p.address.Addr() == e.m.cfg.Local) == 0
}
