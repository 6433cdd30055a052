package tcp

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

const (
	// An attempt that came to nothing is followed by another after pauseFirst, and then each time after twice as long, up to pauseMost.
	pauseFirst = 1e6
	pauseMost  = 100e6
	// mostRefusals in a row mean that nobody listens there any more, for it has listened before there was a card, or that there is no
	// way there: whoever has another one is not to wait for the deadline.
	mostRefusals = 5
	// yieldAfter: when both ends ask at once the lower rank's attempt counts, unless it is that old, for there may be a way only from
	// the other end.
	yieldAfter = 250e6
)

// stage of an attempt.
type stage uint8

const (
	stageChallenge stage = iota // the acceptor's nonce is to come
	stageAnswer                 // the hello was sent, its answer is to come
)

// attempt is a connection that we have begun and that has not been answered yet.
type attempt struct {
	e         *endpoint
	fd        int
	stage     stage
	until     int64
	challenge nonce
	said      [helloBytes]byte
	buf       [max(nonceBytes, answerBytes)]byte
	n         int // of buf
}

// pause is what there is between attempts.
type pause struct {
	since    int64 // when the first attempt began
	deadline int64
	at       int64 // when the next may begin
	wait     int64 // that came before it
	failures int   // attempts that came to nothing
	refusals int   // the last so many were refused
	why      *btl.Error
}

// ask begins to look for a connection.
func (e *endpoint) ask() {
	m := e.m
	now := m.cfg.Clock.Now()
	e.pause = pause{since: now, at: now, deadline: now + int64(m.cfg.ConnectTimeout)}
	m.dialing = append(m.dialing, e)
	m.Unsettled = true
	e.tryOnce(now)
}

// tryOnce begins an attempt.
func (e *endpoint) tryOnce(now int64) {
	m := e.m
	if m.cfg.Blocked(e.p.rank) {
		e.missed(now, unix.ENETUNREACH, m.pathError(e.p.rank, unix.ENETUNREACH, e.to()))
		return
	}
	fd, local, errno := m.dial(e.p.address)
	if errno != 0 {
		if local && errno == unix.EADDRNOTAVAIL {
			m.deferred = m.NewError(btl.AllPeers, btl.ClassDevice, btl.SideLocal, nativeOf(errno),
				fmt.Errorf("this machine no longer has the address %v: %w", m.cfg.Local, errno))
			m.Unsettled = true
		}
		e.missed(now, errno, m.pathError(e.p.rank, errno, e.to()))
		return
	}
	a := &attempt{e: e, fd: fd, until: now + int64(m.cfg.HandshakeTimeout)}
	if err := m.watchDoor(fd, a); err != nil {
		_ = unix.Close(fd)
		e.missed(now, 0, m.pathError(e.p.rank, asErrno(err), e.to()))
		return
	}
	e.attempt = a
}

// to is what an error of connecting is about.
func (e *endpoint) to() string {
	return fmt.Sprintf("connect from %v to %v", e.m.cfg.Local, e.p.address)
}

// missed notes that an attempt has come to nothing.
func (e *endpoint) missed(now int64, errno unix.Errno, why *btl.Error) {
	p := &e.pause
	p.failures++
	p.why = why
	p.wait = min(max(2*p.wait, pauseFirst), pauseMost)
	p.at = now + p.wait
	switch errno {
	case unix.ECONNREFUSED, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENETDOWN:
		if p.refusals++; p.refusals >= mostRefusals {
			e.failDeferred(e.walled(why))
		}
	default:
		p.refusals = 0
	}
	e.m.Unsettled = true
}

// abandon ends the attempt that is under way, if any.
func (e *endpoint) abandon() {
	if a := e.attempt; a != nil {
		e.attempt = nil
		delete(e.m.door, a.fd)
		_ = unix.Close(a.fd)
	}
}

// failed ends the attempt, which may be followed by another.
func (a *attempt) failed(errno unix.Errno, why *btl.Error) {
	a.e.abandon()
	a.e.missed(a.e.m.now, errno, why)
}

// step goes on with the attempt as far as it gets.
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
			a.failed(errno, m.pathError(e.p.rank, errno, e.to()))
			return 0
		case got == 0:
			a.failed(0, m.NewError(e.p.rank, btl.ClassPath, btl.SideRemote, "EOF", fmt.Errorf("%s: %w", e.to(), errNoAnswer)))
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

// hello proves that we know the secret.
func (a *attempt) hello() {
	e := a.e
	m := e.m
	h := hello{
		from: uint32(m.cfg.Rank), to: uint32(e.p.rank), size: uint32(m.cfg.Size), epoch: e.Epoch(), frag: uint32(m.cfg.FragBytes),
		fromNonce: m.nonce, toNonce: e.p.nonce, nonce: m.draw(),
	}
	m.codec.appendHello(a.said[:0], &a.challenge, &h)
	if sent, errno := send(a.fd, a.said[:]); sent != len(a.said) {
		if errno == 0 {
			errno = unix.EAGAIN // a socket just made that takes less than this is of no use
		}
		a.failed(errno, m.pathError(e.p.rank, errno, e.to()))
		return
	}
	a.stage = stageAnswer
}

// answered does what the acceptor says.
func (a *attempt) answered() int {
	e := a.e
	m := e.m
	ans, ok := m.codec.parseAnswer(a.buf[:answerBytes], &a.challenge, a.said[:])
	if !ok {
		a.failed(0, m.NewError(e.p.rank, btl.ClassPath, btl.SideRemote, "", fmt.Errorf("%s: %w", e.to(), errStranger)))
		return 0
	}
	switch ans.verdict {
	case verdictAccept:
		if ans.epoch != e.Epoch() {
			a.failed(0, m.NewError(e.p.rank, btl.ClassProtocol, btl.SideRemote, "", base.ErrEpochs))
			return 0
		}
		fd := a.fd
		delete(m.door, fd)
		m.unwatchDoor(fd)
		e.attempt = nil
		if err := e.open(fd); err != nil {
			_ = unix.Close(fd)
			e.failDeferred(m.NewError(e.p.rank, btl.ClassDevice, btl.SideLocal, "", err))
		}
		return 1
	case verdictStale:
		e.p.least = max(e.p.least, ans.epoch)
		e.abandon()
		e.failDeferred(m.NewError(e.p.rank, btl.ClassPath, btl.SideRemote, "", base.ErrPeerFailed))
		return 0
	case verdictClosed:
		e.abandon()
		e.failDeferred(m.NewError(e.p.rank, btl.ClassClosed, btl.SideRemote, "", base.ErrPeerClosed))
		return 0
	}
	a.failed(0, m.NewError(e.p.rank, btl.ClassPath, btl.SideRemote, "", fmt.Errorf("%s: %w", e.to(), errNoAnswer)))
	return 0
}

// excuse gives peers the time in which nobody looked for their answers: however long, it counts for a quarter of the time that they have.
func (m *module) excuse(since int64) {
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

// dialAgain begins attempts whose time has come, and gives up those, and endpoints, whose time is over.
func (m *module) dialAgain() int {
	n := 0
	m.dialing = slices.DeleteFunc(m.dialing, func(e *endpoint) bool {
		if e.State() != btl.Up || e.phase != phaseDialing || e.Deferred() != nil {
			return true
		}
		p := &e.pause
		switch a := e.attempt; {
		case m.now >= p.deadline:
			e.abandon()
			e.failDeferred(m.unanswered(e))
			n++
			return true
		case a != nil && m.now >= a.until:
			a.failed(unix.ETIMEDOUT, m.pathError(e.p.rank, unix.ETIMEDOUT, e.to()))
		case a == nil && m.now >= p.at && m.RailError() == nil && m.deferred == nil:
			e.tryOnce(m.now)
		}
		return e.Deferred() != nil
	})
	return n
}

// unanswered is the error of an endpoint that has found no connection in time.
func (m *module) unanswered(e *endpoint) *btl.Error {
	if why := e.pause.why; why != nil && !errors.Is(why, errNoAnswer) {
		return e.walled(why)
	}
	return e.walled(m.NewError(e.p.rank, btl.ClassPath, btl.SideBoth, nativeOf(unix.ETIMEDOUT),
		fmt.Errorf("%s: %w for %v", e.to(), errNoAnswer, m.cfg.ConnectTimeout)))
}

// walled adds to the error of an endpoint that has found no connection what it looks like if there never was one to the other machine.
func (e *endpoint) walled(why *btl.Error) *btl.Error {
	if e.p.reached || !e.p.elsewhere {
		return why
	}
	switch why.Native {
	case nativeOf(unix.ETIMEDOUT), nativeOf(unix.ECONNREFUSED), nativeOf(unix.EHOSTUNREACH):
		more := *why
		more.Err = fmt.Errorf("%w (no connection was ever made: a firewall? tcp.ports limits the ports that ranks listen at)", why.Err)
		return &more
	}
	return why
}
