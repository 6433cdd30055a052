package tcp

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller is an epoll. It is level-triggered: bytes that a bounded progress call has left are
// reported again in the next one, and bytes that were read without polling are not reported.
type poller struct {
	fd     int
	events [32]unix.EpollEvent
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a poller (epoll_create): %w", err)
	}
	return &poller{fd: fd}, nil
}

// add polls a socket for bytes to read, its end, and errors.
func (p *poller) add(fd int) error { return p.control(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN) }

func (p *poller) control(op, fd int, events uint32) error {
	ev := unix.EpollEvent{Events: events, Fd: int32(fd)}
	if err := unix.EpollCtl(p.fd, op, fd, &ev); err != nil {
		return fmt.Errorf("poll a socket (epoll_ctl): %w", err)
	}
	return nil
}

// remove stops polling a socket that stays open.
func (p *poller) remove(fd int) { _ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, fd, nil) }

// poll returns the sockets that have events. The result is valid until the next poll.
func (p *poller) poll() []unix.EpollEvent {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])), uintptr(len(p.events)), 0, 0, 0)
	if errno != 0 {
		return nil // interrupted; the next poll reports it
	}
	return p.events[:n]
}

func (p *poller) close() error { return unix.Close(p.fd) }
