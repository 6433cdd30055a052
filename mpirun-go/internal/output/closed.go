package output

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// OnClosed calls closed, once and on a goroutine of its own, when what is written to f
// cannot be read by anybody any more: f is a pipe, or a socket, whose other end is closed.
// A write would tell, but ranks that compute for long do not write. Of other files nothing
// is ever told. stop ends the watch; closed is not called after it has returned.
func OnClosed(f *os.File, closed func()) (stop func()) {
	info, err := f.Stat()
	if err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return func() {}
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return func() {}
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return func() {}
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		// Control keeps the descriptor from being closed, and its number from being used again.
		_ = raw.Control(func(fd uintptr) {
			if awaitClosed(int(fd), wake) {
				closed()
			}
		})
	})
	return sync.OnceFunc(func() {
		_, _ = unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		watching.Wait()
		_ = unix.Close(wake)
	})
}

// awaitClosed sleeps until fd's other end is closed, or until wake can be read, and reports
// which. Poll(2) tells of an end without being asked for any event.
func awaitClosed(fd, wake int) bool {
	fds := []unix.PollFd{{Fd: int32(fd)}, {Fd: int32(wake), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, -1)
		if err != nil && err != unix.EINTR {
			return false
		}
		if err == nil && fds[1].Revents != 0 {
			return false
		}
		if err == nil && fds[0].Revents != 0 {
			return true
		}
	}
}
