package tcp

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

// How a rank is woken:
//
// The waker's epoll contains two others. The epoll of handshakes is always active, because a peer
// that connects must not wait until this rank's program calls the library again. The epoll of
// traffic is active only while the rank sleeps (Arm), for one event. A goroutine waits for the
// waker's epoll in Go's network poller. Therefore the network poller has no work with traffic while
// some goroutine polls.
//
// A timer runs while there is work that no event reports: an acknowledgement that waits for a frame
// to carry it, bytes that a full socket has not taken, the timeout of an unauthenticated
// connection, or a probe of a new connection. If there was no progress call since the timer was
// last set, the program is busy with something else, and the timer asks for one.

var _ progress.Idler = (*module)(nil)

// stallNanos is how long such work may wait for a progress call.
const stallNanos = time.Millisecond

// waker wakes a rank. All methods are called under the engine's lock, except run and timerExpired,
// which run on their own goroutines.
type waker struct {
	wakeup        progress.Wakeup // wakes the rank's engine
	asyncProgress func()
	epoll         int
	traffic       int
	file          *os.File // of epoll, for Go's network poller
	raw           syscall.RawConn
	done          chan struct{} // closed when run has ended
	events        [2]unix.EpollEvent

	timer     *time.Timer
	running   atomic.Bool
	needsTurn atomic.Bool   // something is left to do
	news      atomic.Uint32 // for the next progress call
	stamp     atomic.Uint32 // changes with each progress call that leaves something to do
	seen      uint32        // used by timerExpired only
	closing   atomic.Bool
	timerMu   sync.Mutex // held while timerExpired runs
}

// News for a progress call.
const (
	newsHandshake = 1 << iota // a peer has connected, or sent a message of a handshake
	newsStalled               // unfinished work has waited long enough
)

// The two events of the epoll.
const (
	wakeTraffic = 1 + iota
	wakeHandshake
)

func newWaker(cfg *Config, traffic, handshakes int) (_ *waker, err error) {
	a := &waker{wakeup: cfg.Wakeup, asyncProgress: cfg.AsyncProgress, traffic: traffic, done: make(chan struct{})}
	if a.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make a waker (epoll_create): %w", err)
	}
	fail := func(err error) (*waker, error) {
		return nil, errors.Join(fmt.Errorf("make a waker: %w", err), unix.Close(a.epoll))
	}
	// One-shot and without events: not armed.
	ev := unix.EpollEvent{Events: unix.EPOLLONESHOT, Fd: wakeTraffic}
	if err := unix.EpollCtl(a.epoll, unix.EPOLL_CTL_ADD, traffic, &ev); err != nil {
		return fail(err)
	}
	// Edge-triggered: reported once for each event, however late it is handled.
	ev = unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET&0xffffffff, Fd: wakeHandshake}
	if err := unix.EpollCtl(a.epoll, unix.EPOLL_CTL_ADD, handshakes, &ev); err != nil {
		return fail(err)
	}
	// Only then does os.NewFile give it to Go's network poller.
	if err := unix.SetNonblock(a.epoll, true); err != nil {
		return fail(err)
	}
	a.file = os.NewFile(uintptr(a.epoll), "waker")
	if a.raw, err = a.file.SyscallConn(); err != nil {
		return nil, errors.Join(fmt.Errorf("make a waker: %w", err), a.file.Close())
	}
	a.timer = time.AfterFunc(time.Hour, a.timerExpired)
	a.timer.Stop()
	go a.run()
	return a, nil
}

// run waits for events until the waker is closed.
func (a *waker) run() {
	defer close(a.done)
	for {
		n := 0
		err := a.raw.Read(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), a.events[:], 0)
			return n > 0
		})
		if err != nil || a.closing.Load() {
			return
		}
		for _, ev := range a.events[:n] {
			if ev.Fd == wakeHandshake {
				a.news.Or(newsHandshake)
				if a.asyncProgress != nil {
					a.asyncProgress()
				}
			}
		}
		if a.wakeup != nil {
			a.wakeup.Wake()
		}
	}
}

// arm makes the next event of a connection wake the engine; disarm undoes that.
func (a *waker) arm() bool { return a.set(unix.EPOLLIN|unix.EPOLLONESHOT) == nil }
func (a *waker) disarm()   { _ = a.set(unix.EPOLLONESHOT) }

func (a *waker) set(events uint32) error {
	ev := unix.EpollEvent{Events: events, Fd: wakeTraffic}
	return unix.EpollCtl(a.epoll, unix.EPOLL_CTL_MOD, a.traffic, &ev)
}

// turnMade records a progress call, and whether it left work unfinished.
func (a *waker) turnMade(unfinished bool) {
	if !unfinished {
		if a.needsTurn.Load() {
			a.needsTurn.Store(false)
		}
		return
	}
	if a.asyncProgress == nil {
		return
	}
	a.stamp.Add(1)
	a.needsTurn.Store(true)
	if !a.running.Load() && a.running.CompareAndSwap(false, true) {
		a.timer.Reset(stallNanos)
	}
}

// timerExpired is the function of the timer.
func (a *waker) timerExpired() {
	a.timerMu.Lock()
	defer a.timerMu.Unlock()
	if a.closing.Load() {
		return
	}
	if !a.needsTurn.Load() {
		a.running.Store(false)
		// If a progress call has left work unfinished meanwhile, it relied on this timer, or has
		// set it again.
		if !a.needsTurn.Load() || !a.running.CompareAndSwap(false, true) {
			return
		}
	}
	if now := a.stamp.Load(); now != a.seen {
		a.seen = now
	} else {
		a.news.Or(newsStalled)
		a.asyncProgress()
	}
	a.timer.Reset(stallNanos)
}

func (a *waker) close() error {
	a.closing.Store(true)
	a.timerMu.Lock() // after this, asyncProgress is not called any more
	a.timer.Stop()
	a.timerMu.Unlock()
	err := a.file.Close()
	<-a.done
	return err
}

// Arm implements progress.Idler.
func (m *module) Arm() bool {
	if m.Closed || m.waker == nil || m.cfg.Wakeup == nil {
		return false
	}
	m.sendPendingAcks(true)
	m.pollActive()
	m.armed = true
	for _, e := range m.blocked {
		if !e.wantsOut && e.phase == phaseReady && e.State() == btl.Up {
			e.wantsOut = m.trafficPoller.control(unix.EPOLL_CTL_MOD, e.fd, unix.EPOLLIN|unix.EPOLLOUT) == nil
			m.outs = append(m.outs, e)
		}
	}
	// The next poll must check everything. Work that is due at a time can wait for the end of the
	// longest sleep. Work that is due after progress calls, and the next attempt to connect,
	// cannot.
	m.look, m.Unsettled = true, true
	pausing := slices.ContainsFunc(m.dialing, func(e *endpoint) bool { return e.attempt == nil && e.phase == phaseDialing })
	return m.waker.arm() && !pausing && len(m.unparsed) == 0 && !m.Waiting()
}

// Disarm implements progress.Idler.
func (m *module) Disarm() {
	if m.Closed || m.waker == nil {
		return
	}
	m.waker.disarm()
	m.armed = false
	for _, e := range m.outs {
		e.wantsOut = false
		if e.phase == phaseReady {
			_ = m.trafficPoller.control(unix.EPOLL_CTL_MOD, e.fd, unix.EPOLLIN)
		}
	}
	clear(m.outs)
	m.outs = m.outs[:0]
	m.look = true
	if len(m.blocked) > 0 {
		m.flushBlocked()
	}
}
