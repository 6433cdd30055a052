package tcp

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

const (
	// mostAccepts bounds how many connections one turn lets in.
	mostAccepts = 8
	// graceNanos is how long a stranger can stay even if others wait to be let in. A peer needs less. Those others wait in the system's
	// queue, so that however many there are a peer among them has its turn.
	graceNanos = 10e6
)

// stranger is a connection that somebody has begun. It has been sent a challenge, and nothing else until it proves that it knows the
// secret. It costs this much memory, a socket, and HandshakeTimeout.
type stranger struct {
	m         *module
	fd        int
	since     int64
	challenge nonce
	buf       [helloBytes + 1]byte // one more than anybody may say
	n         int
	known     bool  // the hello is good, and waits until it can be answered
	hello     hello // then
}

// letIn accepts connections, not all at once.
func (m *module) letIn() {
	if m.codec == nil || m.listener < 0 {
		return
	}
	for range mostAccepts {
		if !m.hasRoom() {
			break
		}
		r, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(m.listener), 0, 0, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
		switch errno {
		case 0:
			m.greet(int(r))
		case unix.EAGAIN:
			return
		case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
			m.crowd = true // nobody tells when there is room
			return
		case unix.EBADF, unix.EINVAL, unix.ENOTSOCK, unix.EOPNOTSUPP, unix.EFAULT:
			m.deferred = m.NewError(btl.AllPeers, btl.ClassDevice, btl.SideLocal, nativeOf(errno), fmt.Errorf("accept: %w", errno))
			m.Unsettled = true
			return
		default: // of a connection that has ended before it was accepted (accept(2))
		}
	}
	m.crowd = true // there may be more
}

// hasRoom reports whether another stranger can be let in. If there are too many of them the oldest has to go; was it a peer, it comes again.
func (m *module) hasRoom() bool {
	if len(m.strangers)-m.waiting < m.cfg.Strangers {
		return true
	}
	i := slices.IndexFunc(m.strangers, func(s *stranger) bool { return !s.known })
	if m.now-m.strangers[i].since < graceNanos {
		return false
	}
	m.drop(m.strangers[i])
	return true
}

// greet sends a stranger its challenge.
func (m *module) greet(fd int) {
	s := &stranger{m: m, fd: fd, since: m.now, challenge: m.draw()}
	if m.tune(fd) != nil {
		_ = unix.Close(fd)
		return
	}
	if sent, _ := send(fd, s.challenge[:]); sent != nonceBytes || m.watchDoor(fd, s) != nil {
		_ = unix.Close(fd)
		return
	}
	m.strangers = append(m.strangers, s)
	m.greeted++
}

// drop ends a stranger's connection, without a word.
func (m *module) drop(s *stranger) {
	m.release(s)
	_ = unix.Close(s.fd)
}

// release forgets a stranger, but not its connection.
func (m *module) release(s *stranger) {
	delete(m.door, s.fd)
	if i := slices.Index(m.strangers, s); i >= 0 {
		m.strangers = slices.Delete(m.strangers, i, i+1)
		if s.known {
			m.waiting--
		}
	}
}

// step reads what the stranger has to say.
func (s *stranger) step() int {
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
	if s.known || s.n < helloBytes {
		return 0
	}
	var ok bool
	s.hello, ok = m.codec.parseHello(s.buf[:helloBytes], &s.challenge)
	h := &s.hello
	if !ok || h.to != uint32(m.cfg.Rank) || h.size != uint32(m.cfg.Size) || h.toNonce != m.nonce || int(h.frag) != m.cfg.FragBytes {
		m.drop(s)
		return 0
	}
	p := m.peer(int(h.from))
	if p.met && p.nonce != h.fromNonce || m.cfg.Blocked(p.rank) {
		m.drop(s)
		return 0
	}
	p.met, p.nonce = true, h.fromNonce
	for _, other := range m.strangers { // of one peer only the latest counts
		if other != s && other.known && other.hello.from == h.from {
			m.drop(other)
			break
		}
	}
	s.known = true
	m.waiting++
	return m.consider(s, p)
}

// consider answers a peer's hello, if that can be done now.
func (m *module) consider(s *stranger, p *peer) int {
	h := &s.hello
	e := p.ep
	switch {
	case m.RailError() != nil || m.deferred != nil:
		m.Unsettled = true
		return 0
	case e == nil || e.State() == btl.Drained:
		if h.epoch <= p.epoch {
			return m.turnAway(s, verdictStale, p.epoch)
		}
		if !m.reply(s, answer{verdictAccept, h.epoch}) {
			return 0
		}
		e = m.newEndpoint(p, h.epoch)
	case e.State() == btl.Failed || e.Deferred() != nil:
		m.Unsettled = true // it is Drained soon
		return 0
	case h.epoch > e.Epoch():
		m.Unsettled = true
		e.succeeded()
		return 1
	case e.phase == phaseReady:
		return m.turnAway(s, verdictStale, e.Epoch())
	case h.epoch < e.Epoch():
		return m.turnAway(s, verdictStale, e.Epoch()-1)
	case p.rank > m.cfg.Rank && e.pause.failures == 0 && m.now-e.pause.since < yieldAfter:
		return m.turnAway(s, verdictBusy, 0)
	case p.rank > m.cfg.Rank && e.attempt != nil && e.attempt.stage == stageAnswer:
		// The peer accepts what we have asked, if it gets there, and gives up its own: to accept that now would leave neither.
		m.Unsettled = true
		return 0
	default: // both have asked, and the peer's attempt counts
		if !m.reply(s, answer{verdictAccept, e.Epoch()}) {
			return 0
		}
	}
	if err := e.open(s.fd); err != nil {
		_ = unix.Close(s.fd)
		e.failDeferred(m.NewError(p.rank, btl.ClassDevice, btl.SideLocal, "", err))
	}
	return 1
}

// turnAway answers a peer that it cannot have that epoch: it is over, as are all up to over.
func (m *module) turnAway(s *stranger, v verdict, over uint32) int {
	if m.reply(s, answer{v, over + 1}) {
		_ = unix.Close(s.fd)
	}
	return 0
}

// succeeded fails an endpoint whose peer has begun the next incarnation (C5). What came before the end of this one is still of use.
func (e *endpoint) succeeded() {
	for n := 4 * e.m.cfg.BufferBytes / (headBytes * mostBurst); n > 0 && e.phase == phaseReady; n-- {
		if e.more {
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

// reply answers a peer and forgets it as a stranger. If it cannot be sent the connection is closed.
func (m *module) reply(s *stranger, a answer) bool {
	var buf [answerBytes]byte
	b := m.codec.appendAnswer(buf[:0], &s.challenge, s.buf[:helloBytes], a)
	m.release(s)
	if sent, _ := send(s.fd, b); sent != answerBytes {
		_ = unix.Close(s.fd)
		return false
	}
	m.unwatchDoor(s.fd)
	return true
}

// attendStrangers goes on with those that have waited for us, and ends those that have kept us waiting.
func (m *module) attendStrangers() int {
	n := 0
	for i := 0; i < len(m.strangers); {
		s := m.strangers[i]
		switch {
		case s.known:
			n += m.consider(s, m.peer(int(s.hello.from)))
		case m.now-s.since >= int64(m.cfg.HandshakeTimeout):
			m.drop(s)
		}
		if i < len(m.strangers) && m.strangers[i] == s {
			i++
		}
	}
	return n
}
