package procs

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// exitWatcher reports the exits of processes in the order in which they happen. Epoll(7) lists
// pidfds in the order in which they become ready. With a goroutine per process, any goroutine could
// run first.
type exitWatcher struct {
	epoll int
	stop  int           // an eventfd; a write to it ends run
	done  chan struct{} // closed when run has returned

	mu     sync.Mutex
	procs  map[int]*Proc // the running processes, by pidfd
	exited int           // number of processes that have exited
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

// watch starts to watch p, and takes ownership of its pidfd. If the system has no pidfds (-1), a
// goroutine waits for p, and the order of exits is less exact.
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

// remove stops watching a process. The caller holds mu.
func (e *exitWatcher) remove(pidfd int) {
	delete(e.procs, pidfd)
	_ = unix.Close(pidfd) // this also removes it from the epoll instance
}

// report records the exit of p. The caller holds mu.
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
			return // cannot happen: the descriptor is open until close
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

// close stops watching all processes.
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
