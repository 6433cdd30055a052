package procs

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// ends sees processes end, in the order in which they do: epoll(7) lists what becomes
// ready as it does. Of several goroutines that each wait for one process, any may be
// the first to run.
type exitWatcher struct {
	epoll int
	stop  int           // an eventfd; written to, it ends run
	done  chan struct{} // closed when run has returned

	mu     sync.Mutex
	procs  map[int]*Proc // by pidfd: those that have not ended
	exited int           // of those that have
}

func newExitWatcher() (*exitWatcher, error) {
	e := &exitWatcher{done: make(chan struct{}), procs: map[int]*Proc{}}
	var err error
	if e.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if e.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		_ = unix.Close(e.epoll)
		return nil, os.NewSyscallError("eventfd", err)
	}
	if err = e.add(e.stop); err != nil {
		_, _ = unix.Close(e.epoll), unix.Close(e.stop)
		return nil, err
	}
	go e.run()
	return e, nil
}

func (e *exitWatcher) add(fd int) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(e.epoll, unix.EPOLL_CTL_ADD, fd, &event))
}

// watch begins to wait for p, whose pidfd becomes e's. If the system gives none (-1), a
// goroutine waits, and knows the order less well.
func (e *exitWatcher) watch(p *Proc, pidfd int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if pidfd >= 0 {
		e.procs[pidfd] = p
		if e.add(pidfd) == nil {
			return
		}
		e.remove(pidfd)
	}
	go func() {
		_, _ = p.status()
		e.mu.Lock()
		defer e.mu.Unlock()
		e.report(p)
	}()
}

// drop forgets a process. The caller holds mu.
func (e *exitWatcher) remove(pidfd int) {
	delete(e.procs, pidfd)
	_ = unix.Close(pidfd) // which takes it out of epoll
}

// ended tells of p's end. The caller holds mu.
func (e *exitWatcher) report(p *Proc) {
	e.exited++
	p.exitOrder = e.exited
	close(p.exited)
}

func (e *exitWatcher) run() {
	defer close(e.done)
	events := make([]unix.EpollEvent, 64)
	for {
		n, err := unix.EpollWait(e.epoll, events, -1)
		if err != nil && err != unix.EINTR {
			return // of a descriptor that is ours this cannot be
		}
		for _, event := range events[:max(n, 0)] {
			fd := int(event.Fd)
			if fd == e.stop {
				return
			}
			e.mu.Lock()
			if p := e.procs[fd]; p != nil {
				e.remove(fd)
				e.report(p)
			}
			e.mu.Unlock()
		}
	}
}

// close ends the watch over what has not ended.
func (e *exitWatcher) close() {
	_, _ = unix.Write(e.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	<-e.done
	e.mu.Lock()
	defer e.mu.Unlock()
	for pidfd := range e.procs {
		e.remove(pidfd)
	}
	_, _ = unix.Close(e.epoll), unix.Close(e.stop)
}
