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

// How a rank is woken.
//
// An epoll of its own holds the module's two: that of handshakes always, for a peer that asks for a connection is not to wait until
// this rank's program next calls, and that of traffic only while the rank sleeps (Arm), for one event. A goroutine waits for it in Go's
// network poller, which so has nothing to do with traffic while somebody polls.
//
// A timer runs while something is owed, such as an acknowledgement that waits for an answer to go with, what a full socket has not taken,
// a stranger's end, or what the peer tries a new connection with. If no turn was made since it was last set, the program is busy with something else, and a turn is asked for.

var _ progress.Idler = (*module)(nil)

// stallNanos is how long what is owed may wait for a turn of progress.
const stallNanos = time.Millisecond

// alarm wakes a rank. All but its two functions that run on goroutines of their own is called under the engine's lock.
type alarm struct {
	bell    progress.Bell
	kick    func()
	epoll   int
	traffic int
	file    *os.File // of epoll, for Go's poller
	raw     syscall.RawConn
	over    chan struct{} // closed when the goroutine has ended
	events  [2]unix.EpollEvent

	timer   *time.Timer
	running atomic.Bool
	care    atomic.Bool   // something is owed
	news    atomic.Uint32 // for the next turn
	stamp   atomic.Uint32 // changes with each turn in which something is owed
	seen    uint32        // the timer's
	shut    atomic.Bool
	ringing sync.Mutex // held while the timer's function runs
}

// What a turn may have to see to that nothing else tells it of.
const (
	newsDoor    = 1 << iota // somebody has come, or said something
	newsStalled             // what is owed has waited long enough
)

// The epoll's two events.
const (
	wakeTraffic = 1 + iota
	wakeEntrance
)

func newAlarm(cfg *Config, traffic, entrance int) (_ *alarm, err error) {
	a := &alarm{bell: cfg.Bell, kick: cfg.Wakeup, traffic: traffic, over: make(chan struct{})}
	if a.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make an alarm (epoll_create): %w", err)
	}
	fail := func(err error) (*alarm, error) {
		return nil, errors.Join(fmt.Errorf("make an alarm: %w", err), unix.Close(a.epoll))
	}
	// One-shot and without events: not armed.
	ev := unix.EpollEvent{Events: unix.EPOLLONESHOT, Fd: wakeTraffic}
	if err := unix.EpollCtl(a.epoll, unix.EPOLL_CTL_ADD, traffic, &ev); err != nil {
		return fail(err)
	}
	// Edge-triggered: once for each thing that happens, however long it takes until it is seen to.
	ev = unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET&0xffffffff, Fd: wakeEntrance}
	if err := unix.EpollCtl(a.epoll, unix.EPOLL_CTL_ADD, entrance, &ev); err != nil {
		return fail(err)
	}
	if err := unix.SetNonblock(a.epoll, true); err != nil { // which has os.NewFile give it to the poller
		return fail(err)
	}
	a.file = os.NewFile(uintptr(a.epoll), "alarm")
	if a.raw, err = a.file.SyscallConn(); err != nil {
		return nil, errors.Join(fmt.Errorf("make an alarm: %w", err), a.file.Close())
	}
	a.timer = time.AfterFunc(time.Hour, a.expired)
	a.timer.Stop()
	go a.run()
	return a, nil
}

// run waits for events, until the alarm is closed.
func (a *alarm) run() {
	defer close(a.over)
	for {
		n := 0
		err := a.raw.Read(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), a.events[:], 0)
			return n > 0
		})
		if err != nil || a.shut.Load() {
			return
		}
		for _, ev := range a.events[:n] {
			if ev.Fd == wakeEntrance {
				a.news.Or(newsDoor)
				if a.kick != nil {
					a.kick()
				}
			}
		}
		if a.bell != nil {
			a.bell.Ring()
		}
	}
}

// arm has the bell rung at the next event of a connection, disarm not.
func (a *alarm) arm() bool { return a.set(unix.EPOLLIN|unix.EPOLLONESHOT) == nil }
func (a *alarm) disarm()   { _ = a.set(unix.EPOLLONESHOT) }

func (a *alarm) set(events uint32) error {
	ev := unix.EpollEvent{Events: events, Fd: wakeTraffic}
	return unix.EpollCtl(a.epoll, unix.EPOLL_CTL_MOD, a.traffic, &ev)
}

// turned notes that a turn was made, and whether something is still owed.
func (a *alarm) turned(owed bool) {
	if !owed {
		if a.care.Load() {
			a.care.Store(false)
		}
		return
	}
	if a.kick == nil {
		return
	}
	a.stamp.Add(1)
	a.care.Store(true)
	if !a.running.Load() && a.running.CompareAndSwap(false, true) {
		a.timer.Reset(stallNanos)
	}
}

// expired is the timer's.
func (a *alarm) expired() {
	a.ringing.Lock()
	defer a.ringing.Unlock()
	if a.shut.Load() {
		return
	}
	if !a.care.Load() {
		a.running.Store(false)
		// A turn that has come to care meanwhile has left it to us, or has set the timer anew.
		if !a.care.Load() || !a.running.CompareAndSwap(false, true) {
			return
		}
	}
	if now := a.stamp.Load(); now != a.seen {
		a.seen = now
	} else {
		a.news.Or(newsStalled)
		a.kick()
	}
	a.timer.Reset(stallNanos)
}

func (a *alarm) close() error {
	a.shut.Store(true)
	a.ringing.Lock() // after this nobody is kicked
	a.timer.Stop()
	a.ringing.Unlock()
	err := a.file.Close()
	<-a.over
	return err
}

// Arm implements progress.Idler.
func (m *module) Arm() bool {
	if m.Closed || m.alarm == nil || m.cfg.Bell == nil {
		return false
	}
	m.settleDebts(true)
	m.pollHot()
	m.armed = true
	for _, e := range m.blocked {
		if !e.wantsOut && e.phase == phaseReady && e.State() == btl.Up {
			e.wantsOut = m.traffic.control(unix.EPOLL_CTL_MOD, e.fd, unix.EPOLLIN|unix.EPOLLOUT) == nil
			m.outs = append(m.outs, e)
		}
	}
	// The poll that follows has to look everywhere. What is due by the clock can wait for the end of the longest sleep, but what is due
	// by turns, and the next attempt to connect, cannot.
	m.look, m.Unsettled = true, true
	pausing := slices.ContainsFunc(m.dialing, func(e *endpoint) bool { return e.attempt == nil && e.phase == phaseDialing })
	return m.alarm.arm() && !pausing && len(m.leftover) == 0 && !m.Waiting()
}

// Disarm implements progress.Idler.
func (m *module) Disarm() {
	if m.Closed || m.alarm == nil {
		return
	}
	m.alarm.disarm()
	m.armed = false
	for _, e := range m.outs {
		e.wantsOut = false
		if e.phase == phaseReady {
			_ = m.traffic.control(unix.EPOLL_CTL_MOD, e.fd, unix.EPOLLIN)
		}
	}
	clear(m.outs)
	m.outs = m.outs[:0]
	m.look = true
	if len(m.blocked) > 0 {
		m.flushBlocked()
	}
}
