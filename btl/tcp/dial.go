package tcp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

const (
	// After a failed attempt, the next one follows after pauseFirst. Each further pause is twice as
	// long, up to pauseMost (nanoseconds).
	pauseFirst = 1e6
	pauseMost  = 100e6
	// maxRefusals refusals in a row mean that there is no route, or that the peer no longer
	// listens: it listens before it publishes its address. The endpoint then fails, so that the
	// layer above need not wait for the deadline before it uses another rail.
	maxRefusals = 5
	// yieldAfter (nanoseconds): when both ends connect at once, the lower rank's attempt counts,
	// unless it is older than yieldAfter: perhaps only the other end can connect.
	yieldAfter = 250e6
)

// stage of an attempt.
type stage uint8

const (
	stageChallenge stage = iota // waits for the acceptor's nonce
	stageAnswer                 // has sent the hello, waits for the answer
)

// attempt is a connection that this end has begun and that the peer has not answered yet.
type attempt struct {
	e         *endpoint
	fd        int
	stage     stage
	until     int64
	challenge nonce
	sentHello [helloBytes]byte
	buf       [max(nonceBytes, answerBytes)]byte
	n         int // bytes of buf that were read
}

// pause is the time between attempts, and the results of earlier attempts. Times are in
// nanoseconds, by Config.Clock.
type pause struct {
	since    int64 // when the first attempt began
	deadline int64
	at       int64 // when the next attempt may begin
	wait     int64 // the length of the last pause
	failures int   // attempts that failed
	path     int   // the next one, in turn: attempts that found a broken path or another process
	refusals int   // the last failures in a row that were refusals
	why      *btl.Error
}

// startDialing begins to connect to the peer.
func (e *endpoint) startDialing() {
	m := e.m
	now := m.cfg.Clock.Now()
	e.pause = pause{since: now, at: now, deadline: now + int64(m.cfg.ConnectTimeout)}
	m.dialing = append(m.dialing, e)
	m.Unsettled = true
	e.dialOnce(now)
}

// dialOnce begins an attempt.
func (e *endpoint) dialOnce(now int64) {
	m := e.m
	if m.cfg.Blocked(e.p.rank) {
		e.attemptFailed(now, unix.ENETUNREACH, m.pathError(e.p.rank, unix.ENETUNREACH, e.connecting()))
		return
	}
	p, ok := e.nextPath()
	if !ok {
		e.attemptFailed(now, unix.ENETUNREACH, m.pathError(e.p.rank, unix.ENETUNREACH, e.connecting()))
		return
	}
	fd, local, errno := m.dial(p)
	if errno != 0 {
		if local && errno == unix.EADDRNOTAVAIL {
			m.addressGone(p.local.Addr(), errno)
		}
		e.attemptFailed(now, errno, m.pathError(e.p.rank, errno, e.connecting()))
		return
	}
	a := &attempt{e: e, fd: fd, until: now + e.attemptTime()}
	if err := m.watchHandshake(fd, a); err != nil {
		_ = unix.Close(fd)
		e.attemptFailed(now, 0, m.pathError(e.p.rank, asErrno(err), e.connecting()))
		return
	}
	e.attempt = a
}

// paths returns the paths that may lead to the peer, the best first. A module on loopback has only
// peers of this machine.
func (e *endpoint) paths() []path {
	ours := e.m.published(isThere)
	if len(ours) == 0 {
		ours = e.m.published(isAny) // one may have come back
	}
	return pathsBetween(ours, e.p.addresses, !e.p.onOtherMachine || e.m.isOnLoopback())
}

// nextPath returns the path of the next attempt.
func (e *endpoint) nextPath() (p path, ok bool) {
	list := e.paths()
	if len(list) == 0 {
		return path{}, false
	}
	return list[e.pause.path%len(list)], true
}

// attemptTime returns how long an attempt may take (nanoseconds), so that each path gets its turn
// before the deadline.
func (e *endpoint) attemptTime() int64 {
	cfg := &e.m.cfg
	return int64(min(cfg.HandshakeTimeout, cfg.ConnectTimeout/time.Duration(max(len(e.paths()), 1))))
}

// addressGone records that the system does not let the module connect from an address. If there is
// no other address, the rail fails.
func (m *module) addressGone(a netip.Addr, errno unix.Errno) {
	left := false
	for n := range m.locals {
		l := &m.locals[n]
		l.gone = l.gone || l.Address.WithZone("") == a
		left = left || !l.gone
	}
	m.Unsettled = true
	if left {
		m.failGone()
		return
	}
	m.deferred = m.NewError(btl.AllPeers, btl.ClassDevice, btl.SideLocal, nativeOf(errno),
		fmt.Errorf("this machine no longer has the address %s: %w", namesOf(m.locals), errno))
	if m.cfg.Find != nil && m.link.fd < 0 { // the kernel does not report it
		m.link.down = errNoAddress
	}
}

// connecting describes the connection for errors.
func (e *endpoint) connecting() string {
	if p, ok := e.nextPath(); ok {
		return fmt.Sprintf("connect from %v to %v", p.local.Addr(), p.remote)
	}
	return fmt.Sprintf("connect from %s to %s", namesOf(e.m.locals), addressesOf([]*railAddress{{addresses: e.p.addresses}}))
}

// attemptFailed records that an attempt has failed, and why.
func (e *endpoint) attemptFailed(now int64, errno unix.Errno, why *btl.Error) {
	p := &e.pause
	p.failures++
	p.why = why
	p.wait = min(max(2*p.wait, pauseFirst), pauseMost)
	p.at = now + p.wait
	if errno != 0 {
		p.path++ // other addresses may lead there
	}
	switch errno {
	case unix.ECONNREFUSED, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENETDOWN:
		if p.refusals++; p.refusals >= max(maxRefusals, len(e.paths())) {
			e.failDeferred(e.withHint(why))
		}
	default:
		p.refusals = 0
	}
	e.m.Unsettled = true
}

// stopAttempt ends the attempt that is under way, if any.
func (e *endpoint) stopAttempt() {
	if a := e.attempt; a != nil {
		e.attempt = nil
		delete(e.m.handshakes, a.fd)
		_ = unix.Close(a.fd)
	}
}

// failed ends the attempt. Another one may follow.
func (a *attempt) failed(errno unix.Errno, why *btl.Error) {
	a.e.stopAttempt()
	a.e.attemptFailed(a.e.m.now, errno, why)
}

// step continues the attempt as far as possible without waiting.
func (a *attempt) step() int {
	e := a.e
	m := e.m
	for e.attempt == a {
		want := nonceBytes
		if a.stage == stageAnswer {
			want = answerBytes
		}
		got, errno := recv(a.fd, a.buf[a.n:want])
		switch {
		case errno == unix.EAGAIN || errno == unix.EINTR:
			return 0
		case errno != 0:
			a.failed(errno, m.pathError(e.p.rank, errno, e.connecting()))
			return 0
		case got == 0:
			e.pause.path++ // it may be another process, at an address that several machines have
			a.failed(0, m.NewError(e.p.rank, btl.ClassPath, btl.SideRemote, "EOF", fmt.Errorf("%s: %w", e.connecting(), errNoAnswer)))
			return 0
		}
		if a.n += got; a.n < want {
			continue
		}
		a.n = 0
		if a.stage == stageAnswer {
			return a.answered()
		}
		copy(a.challenge[:], a.buf[:])
		a.hello()
	}
	return 0
}

// hello proves that this rank knows the secret.
func (a *attempt) hello() {
	e := a.e
	m := e.m
	h := hello{
		from: uint32(m.cfg.Rank), to: uint32(e.p.rank), size: uint32(m.cfg.Size), epoch: e.Epoch(), frag: uint32(m.cfg.FragBytes),
		fromNonce: m.nonce, toNonce: e.p.nonce, nonce: m.newNonce(),
	}
	m.codec.appendHello(a.sentHello[:0], &a.challenge, &h)
	if sent, errno := send(a.fd, a.sentHello[:]); sent != len(a.sentHello) {
		if errno == 0 {
			errno = unix.EAGAIN // a new socket that takes less than this is unusable
		}
		a.failed(errno, m.pathError(e.p.rank, errno, e.connecting()))
		return
	}
	a.stage = stageAnswer
}

// answered acts on the acceptor's answer.
func (a *attempt) answered() int {
	e := a.e
	m := e.m
	ans, ok := m.codec.parseAnswer(a.buf[:answerBytes], &a.challenge, a.sentHello[:])
	if !ok {
		e.pause.path++
		a.failed(0, m.NewError(e.p.rank, btl.ClassPath, btl.SideRemote, "", fmt.Errorf("%s: %w", e.connecting(), errWrongPeer)))
		return 0
	}
	switch ans.result {
	case resultAccept:
		if ans.epoch != e.Epoch() {
			a.failed(0, m.NewError(e.p.rank, btl.ClassProtocol, btl.SideRemote, "", base.ErrEpochs))
			return 0
		}
		fd := a.fd
		delete(m.handshakes, fd)
		m.unwatchHandshake(fd)
		e.attempt = nil
		if err := e.open(fd); err != nil {
			_ = unix.Close(fd)
			e.failDeferred(m.NewError(e.p.rank, btl.ClassDevice, btl.SideLocal, "", err))
		}
		return 1
	case resultStale:
		e.p.leastEpoch = max(e.p.leastEpoch, ans.epoch)
		e.stopAttempt()
		e.failDeferred(m.NewError(e.p.rank, btl.ClassPath, btl.SideRemote, "", base.ErrPeerFailed))
		return 0
	case resultClosed:
		e.stopAttempt()
		e.failDeferred(m.NewError(e.p.rank, btl.ClassClosed, btl.SideRemote, "", base.ErrPeerClosed))
		return 0
	}
	a.failed(0, m.NewError(e.p.rank, btl.ClassPath, btl.SideRemote, "", fmt.Errorf("%s: %w", e.connecting(), errNoAnswer)))
	return 0
}

// extendDeadlines extends the deadlines of attempts by the time in which this rank did not check
// for answers. However long such a gap is, at most a quarter of a deadline counts.
func (m *module) extendDeadlines(since int64) {
	for _, e := range m.dialing {
		gap := m.now - max(since, e.pause.since)
		if more := gap - int64(m.cfg.ConnectTimeout)/4; more > 0 {
			e.pause.deadline += more
		}
		if more := gap - int64(m.cfg.HandshakeTimeout)/4; more > 0 && e.attempt != nil {
			e.attempt.until += more
		}
	}
}

// dialAgain begins attempts whose pause is over, and fails attempts and endpoints that have passed
// their deadlines.
func (m *module) dialAgain() int {
	n := 0
	m.dialing = slices.DeleteFunc(m.dialing, func(e *endpoint) bool {
		if e.State() != btl.Up || e.phase != phaseDialing || e.Deferred() != nil {
			return true
		}
		p := &e.pause
		switch a := e.attempt; {
		case m.now >= p.deadline:
			e.stopAttempt()
			e.failDeferred(m.noAnswerError(e))
			n++
			return true
		case a != nil && m.now >= a.until:
			a.failed(unix.ETIMEDOUT, m.pathError(e.p.rank, unix.ETIMEDOUT, e.connecting()))
		case a == nil && m.now >= p.at && m.ModuleError() == nil && m.deferred == nil:
			e.dialOnce(m.now)
		}
		return e.Deferred() != nil
	})
	return n
}

// noAnswerError is the error of an endpoint that has found no connection before its deadline.
func (m *module) noAnswerError(e *endpoint) *btl.Error {
	if why := e.pause.why; why != nil && !errors.Is(why, errNoAnswer) {
		return e.withHint(why)
	}
	return e.withHint(m.NewError(e.p.rank, btl.ClassPath, btl.SideBoth, nativeOf(unix.ETIMEDOUT),
		fmt.Errorf("%s: %w for %v", e.connecting(), errNoAnswer, m.cfg.ConnectTimeout)))
}

// withHint adds a hint to the error of an endpoint that has found no connection, if no
// connection to the other machine was ever made.
func (e *endpoint) withHint(why *btl.Error) *btl.Error {
	if e.p.everConnected || !e.p.onOtherMachine {
		return why
	}
	switch why.Native {
	case nativeOf(unix.ENETUNREACH):
		more := *why
		more.Err = fmt.Errorf("%w (no route leads there: give both machines addresses in one network, or choose others by tcp.include; mpirun-go doctor -v lists them)", why.Err)
		return &more
	case nativeOf(unix.ETIMEDOUT), nativeOf(unix.ECONNREFUSED), nativeOf(unix.EHOSTUNREACH):
		more := *why
		more.Err = fmt.Errorf("%w (no connection was ever made: a firewall? tcp.ports limits the ports that ranks listen at)", why.Err)
		return &more
	}
	return why
}
