package tcp

import (
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
)

// goodbyeNanos bounds how long Close waits until the peers' machines have acknowledged the
// good-byes and everything sent before. If this process stands still between two checks, that time
// counts as goodbyeGapNanos.
const (
	goodbyeNanos    = 100e6
	goodbyeGapNanos = goodbyeNanos / 16
)

// Close implements btl.Module.
func (m *module) Close() error {
	if m.Closed {
		return nil
	}
	m.sayGoodbye()
	m.Closed = true
	for len(m.unauthenticated) > 0 {
		s := m.unauthenticated[0]
		if s.authenticated {
			m.reject(s, resultClosed, 0)
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
	m.active, m.ready, m.toFlush, m.blocked, m.pendingAcks, m.unparsed, m.outs = nil, nil, nil, nil, nil, nil, nil
	m.dialing, m.unwritable, m.deferred, m.look = nil, nil, nil, false
	m.Forget()
	return m.closeAll()
}

// sayGoodbye sends the remaining frames and then a good-bye on every connection, and waits until
// the peers' machines have acknowledged them. Only then may it close a socket to which the peer may
// still be sending. The system answers such bytes with a reset, which discards data that was not
// delivered yet (RFC 9293, 3.6.1).
func (m *module) sayGoodbye() {
	var open []*endpoint
	for e := range m.Endpoints() {
		if e.State() == btl.Up && e.phase == phaseReady && e.Deferred() == nil {
			e.bye = true
			e.blocked = false
			open = append(open, e)
		}
	}
	waited := int64(0)
	for last := m.cfg.Clock.Now(); len(open) > 0; m.cfg.Pass() {
		waiting := open[:0]
		for _, e := range open {
			if !e.continueGoodbye() {
				waiting = append(waiting, e)
			}
		}
		open = waiting
		now := m.cfg.Clock.Now()
		waited += min(now-last, goodbyeGapNanos)
		if last = now; waited >= goodbyeNanos {
			return
		}
	}
}

// continueGoodbye continues a good-bye, and reports whether it is complete.
func (e *endpoint) continueGoodbye() bool {
	e.blocked = false
	e.flush()
	// Bytes of the peer are dropped. If they stayed unread, the system would reset the connection.
	for {
		got, errno := recv(e.fd, e.buf)
		if errno == unix.EAGAIN || errno == unix.EINTR {
			break
		}
		if got <= 0 {
			return true // the peer has closed
		}
	}
	if e.writeErr != 0 {
		return true
	}
	if e.hasToSend() {
		return false
	}
	_ = unix.Shutdown(e.fd, unix.SHUT_WR)
	return undelivered(e.fd, e.local.IsValid() && e.local == e.remote) == 0
}
