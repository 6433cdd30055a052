package output

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// OnClosed calls closed when f is a pipe or socket whose other end is closed, so that no process
// can read what is written to f. A write would also detect this, but ranks that compute for a long
// time do not write. For other kinds of files OnClosed does nothing.
//
// OnClosed calls closed once, on a goroutine of its own. The returned stop ends the watch; closed
// is not called after stop has returned.
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
		// Control keeps the descriptor open, so the kernel cannot reuse its number.
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

// awaitClosed waits until the other end of fd is closed, and returns true, or until wake is
// readable, and returns false. Poll(2) reports a closed end even if no event is requested.
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
