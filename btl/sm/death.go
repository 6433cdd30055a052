package sm

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// lookEvery is the number of progress calls between two checks whether a peer's process has ended
// or its module was closed. It counts calls, because reading the clock costs more than a progress
// call. A rank also checks before each sleep. A check is one system call for all peers, and one
// load for each peer.
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

// add watches a peer's process. The caller keeps the descriptor.
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

// look calls ended for some ranks whose process has ended. It reports a rank again each time until
// the rank is removed.
func (w *watch) look(ended func(rank int)) {
	n, err := unix.EpollWait(w.epoll, w.events[:], 0)
	if err != nil {
		return // interrupted; the next look reports it
	}
	for i := range n {
		ended(int(w.events[i].Fd))
	}
}

func (w *watch) close() error { return unix.Close(w.epoll) }

// lookForEnds finds peers whose process has ended or whose module was closed, and leaves them to
// settle. A closed module may not have known this rank, and therefore may not have notified it.
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
		if p != nil && p.watched && m.hasClosed(p) {
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
		m.watch.remove(p.remote.pidfd)
	}
}

// endPeer fails the endpoint to a peer that sends no more. It first hands up what the peer had
// sent.
func (m *module) endPeer(p *peer) int {
	n := m.checkControl(p) // the peer may have begun a session unnoticed
	// The rank may already have a new module.
	if p.ep != nil && (p.dead || p.closed) {
		p.ep.rejected()
	}
	return n
}
