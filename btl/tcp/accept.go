package tcp

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

const (
	// maxAccepts bounds how many connections one progress call accepts.
	maxAccepts = 8
	// graceNanos is how long an unauthenticated connection is kept while others wait to be
	// accepted. A peer needs less time. The others wait in the system's queue, so each gets its
	// turn, however many wait.
	graceNanos = 10e6
)

// unauthenticatedPeer is an accepted connection to which this rank has sent a challenge. It gets
// nothing else until it proves that it knows the secret. It costs this struct and a socket, for at
// most HandshakeTimeout.
type unauthenticatedPeer struct {
	m         *module
	fd        int
	since     int64
	challenge nonce
	// buf has room for one byte more than any peer may send, so that excess bytes are noticed.
	buf [helloBytes + 1]byte
	n   int
	// authenticated: the hello is valid, and waits until it can be answered.
	authenticated bool
	hello         hello // valid if authenticated
}

// acceptConnections accepts a bounded number of connections at a listener.
func (m *module) acceptConnections(listener int) {
	if m.codec == nil || m.listening(listener) == nil {
		return
	}
	for range maxAccepts {
		if !m.hasRoom() {
			break
		}
		r, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(listener), 0, 0, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
		switch errno {
		case 0:
			m.sendChallenge(int(r))
		case unix.EAGAIN:
			return
		case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
			m.acceptMore = true // no event reports that there is room
			return
		case unix.EBADF, unix.EINVAL, unix.ENOTSOCK, unix.EOPNOTSUPP, unix.EFAULT:
			m.deferred = m.NewError(btl.AllPeers, btl.ClassDevice, btl.SideLocal, nativeOf(errno), fmt.Errorf("accept: %w", errno))
			m.Unsettled = true
			return
		default: // the connection has ended before it was accepted (accept(2))
		}
	}
	m.acceptMore = true // there may be more
}

// hasRoom reports whether another connection can be accepted. If there are too many, it drops the
// oldest unauthenticated one. A dropped peer connects again.
func (m *module) hasRoom() bool {
	if len(m.unauthenticated)-m.authenticatedWaiting < m.cfg.MaxUnauthenticated {
		return true
	}
	i := slices.IndexFunc(m.unauthenticated, func(s *unauthenticatedPeer) bool { return !s.authenticated })
	if m.now-m.unauthenticated[i].since < graceNanos {
		return false
	}
	m.drop(m.unauthenticated[i])
	return true
}

// sendChallenge sends a new connection its challenge.
func (m *module) sendChallenge(fd int) {
	s := &unauthenticatedPeer{m: m, fd: fd, since: m.now, challenge: m.newNonce()}
	if m.tune(fd) != nil {
		_ = unix.Close(fd)
		return
	}
	if sent, _ := send(fd, s.challenge[:]); sent != nonceBytes || m.watchHandshake(fd, s) != nil {
		_ = unix.Close(fd)
		return
	}
	m.unauthenticated = append(m.unauthenticated, s)
	m.challenged++
}

// drop closes an unauthenticated connection without an answer.
func (m *module) drop(s *unauthenticatedPeer) {
	m.release(s)
	_ = unix.Close(s.fd)
}

// release forgets an unauthenticated connection, and leaves its socket open.
func (m *module) release(s *unauthenticatedPeer) {
	delete(m.handshakes, s.fd)
	if i := slices.Index(m.unauthenticated, s); i >= 0 {
		m.unauthenticated = slices.Delete(m.unauthenticated, i, i+1)
		if s.authenticated {
			m.authenticatedWaiting--
		}
	}
}

// step reads the hello.
func (s *unauthenticatedPeer) step() int {
	m := s.m
	for {
		got, errno := recv(s.fd, s.buf[s.n:])
		if errno == unix.EAGAIN || errno == unix.EINTR {
			break
		}
		if errno != 0 || got == 0 {
			m.drop(s)
			return 0
		}
		if s.n += got; s.n > helloBytes {
			m.drop(s)
			return 0
		}
	}
	if s.authenticated || s.n < helloBytes {
		return 0
	}
	var ok bool
	s.hello, ok = m.codec.parseHello(s.buf[:helloBytes], &s.challenge)
	h := &s.hello
	if !ok || h.to != uint32(m.cfg.Rank) || h.size != uint32(m.cfg.Size) || h.toNonce != m.nonce || int(h.frag) != m.cfg.FragBytes {
		m.drop(s)
		return 0
	}
	p := m.peer(int(h.from), h.fromNonce)
	if p == nil || m.cfg.Blocked(p.rank) {
		m.drop(s)
		return 0
	}
	for _, other := range m.unauthenticated { // only the latest connection of a peer counts
		if other != s && other.authenticated && other.isFrom(p) {
			m.drop(other)
			break
		}
	}
	s.authenticated = true
	m.authenticatedWaiting++
	return m.answerHello(s, p)
}

// answerHello answers a peer's hello, if it can do so now.
func (m *module) answerHello(s *unauthenticatedPeer, p *peer) int {
	h := &s.hello
	e := p.ep
	switch {
	case m.ModuleError() != nil || m.deferred != nil:
		m.Unsettled = true
		return 0
	case e == nil || e.State() == btl.Drained:
		if h.epoch <= p.epoch {
			return m.reject(s, resultStale, p.epoch)
		}
		if !m.reply(s, answer{resultAccept, h.epoch}) {
			return 0
		}
		e = m.newEndpoint(p, h.epoch)
	case e.State() == btl.Failed || e.Deferred() != nil:
		m.Unsettled = true // the endpoint will be Drained soon
		return 0
	case h.epoch > e.Epoch():
		m.Unsettled = true
		e.failSuperseded()
		return 1
	case e.phase == phaseReady:
		return m.reject(s, resultStale, e.Epoch())
	case h.epoch < e.Epoch():
		return m.reject(s, resultStale, e.Epoch()-1)
	case p.rank > m.cfg.Rank && e.pause.failures == 0 && m.now-e.pause.since < yieldAfter:
		return m.reject(s, resultBusy, 0)
	case p.rank > m.cfg.Rank && e.attempt != nil && e.attempt.stage == stageAnswer:
		// If the peer's acceptance of this rank's attempt arrives, the peer gives up its own
		// attempt. If this rank accepted that attempt now, neither connection would remain.
		m.Unsettled = true
		return 0
	default: // both have connected, and the peer's attempt counts
		if !m.reply(s, answer{resultAccept, e.Epoch()}) {
			return 0
		}
	}
	if err := e.open(s.fd); err != nil {
		_ = unix.Close(s.fd)
		e.failDeferred(m.NewError(p.rank, btl.ClassDevice, btl.SideLocal, "", err))
	}
	return 1
}

// isFrom reports whether an authenticated connection is from a peer.
func (s *unauthenticatedPeer) isFrom(p *peer) bool {
	return int(s.hello.from) == p.rank && s.hello.fromNonce == p.nonce
}

// reject refuses the epoch that a peer asked for: all epochs up to over have ended.
func (m *module) reject(s *unauthenticatedPeer, v result, over uint32) int {
	if m.reply(s, answer{v, over + 1}) {
		_ = unix.Close(s.fd)
	}
	return 0
}

// failSuperseded fails an endpoint whose peer has begun the next incarnation (C5). It first takes
// the frames that the peer sent before the end of this incarnation.
func (e *endpoint) failSuperseded() {
	for n := 4 * e.m.cfg.BufferBytes / (headBytes * maxBurst); n > 0 && e.phase == phaseReady; n-- {
		if e.moreFrames {
			e.parse()
		} else if e.receive() == 0 {
			break
		}
		if e.State() != btl.Up {
			return
		}
	}
	e.fail(e.m.NewError(e.p.rank, btl.ClassPath, btl.SideRemote, "", base.ErrPeerFailed))
}

// reply sends an answer and removes the connection from the unauthenticated ones. If the answer
// cannot be sent, it closes the connection.
func (m *module) reply(s *unauthenticatedPeer, a answer) bool {
	var buf [answerBytes]byte
	b := m.codec.appendAnswer(buf[:0], &s.challenge, s.buf[:helloBytes], a)
	m.release(s)
	if sent, _ := send(s.fd, b); sent != answerBytes {
		_ = unix.Close(s.fd)
		return false
	}
	m.unwatchHandshake(s.fd)
	return true
}

// attendUnauthenticated answers the hellos that wait for this rank, and drops connections that have
// timed out.
func (m *module) attendUnauthenticated() int {
	n := 0
	for i := 0; i < len(m.unauthenticated); {
		s := m.unauthenticated[i]
		switch {
		case s.authenticated:
			n += m.answerHello(s, m.peer(int(s.hello.from), s.hello.fromNonce))
		case m.now-s.since >= int64(m.cfg.HandshakeTimeout):
			m.drop(s)
		}
		if i < len(m.unauthenticated) && m.unauthenticated[i] == s {
			i++
		}
	}
	return n
}
