package sm

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// lookEvery is after how many turns of progress a module looks whether a peer's process
// has ended, or its module was closed. By turns, because a look at the clock costs more than
// a turn; a rank that sleeps looks before each sleep. A look is one system call, for all
// peers, and a word of each peer.
const lookEvery = 1 << 13

// watch notices the end of processes.
type watch struct {
	epoll  int
	events [8]unix.EpollEvent
}

func newWatch() (*watch, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch processes (epoll_create): %w", err)
	}
	return &watch{epoll: fd}, nil
}

// add watches a peer's process, whose descriptor stays the caller's.
func (w *watch) add(pidfd, rank int) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(rank)}
	if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, pidfd, &ev); err != nil {
		return fmt.Errorf("watch the peer's process: %w", err)
	}
	return nil
}

func (w *watch) remove(pidfd int) {
	_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, pidfd, nil)
}

// look calls ended for some ranks whose process has ended, again each time until removed.
func (w *watch) look(ended func(rank int)) {
	n, err := unix.EpollWait(w.epoll, w.events[:], 0)
	if err != nil {
		return // interrupted; next time then
	}
	for i := range n {
		ended(int(w.events[i].Fd))
	}
}

func (w *watch) close() error { return unix.Close(w.epoll) }

// lookForEnds finds peers whose process has ended, for settle to deal with, and those whose
// module was closed: it may have known nothing of us, and so have told us nothing.
func (m *module) lookForEnds() {
	if m.watched == 0 {
		return
	}
	m.watch.look(func(rank int) {
		p := m.peers[rank]
		m.unwatch(p)
		p.dead = true
		m.ends = append(m.ends, p)
		m.Unsettled = true
	})
	for _, p := range m.peers {
		if p != nil && p.watched && m.hasLeft(p) {
			m.ends = append(m.ends, p)
			m.Unsettled = true
		}
	}
}

// unwatch stops watching the peer's process.
func (m *module) unwatch(p *peer) {
	if p.watched {
		p.watched = false
		m.watched--
		m.watch.remove(p.far.pidfd)
	}
}

// bury ends what there is with a peer that sends no more. What it had sent before is handed
// up first.
func (m *module) bury(p *peer) int {
	n := m.heed(p) // it may have begun what we have not heard of
	// Unless it has a new module already.
	if p.ep != nil && (p.dead || p.departed) {
		p.ep.turnedAway()
	}
	return n
}
