package sm

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// remoteSegment is a peer's process, and its segment as mapped here.
type remoteSegment struct {
	address address
	header          // of its segment
	out     channel // in its segment; this rank sends on it
	pidfd   int     // readable once the process has ended
	wakeup  int     // write end of its pipe, -1 before it is needed
}

// openRemote opens the segment that an address names. own is this rank, and device the device of
// anonymous files.
//
// The error wraps errGone if the process, or the segment, does not exist any more.
func openRemote(c address, l layout, own int, device uint64) (_ *remoteSegment, err error) {
	f := &remoteSegment{address: c, pidfd: -1, wakeup: -1}
	defer func() {
		if err != nil {
			_ = f.close()
		}
	}()
	// The process is opened first. If the segment is then the right one, it belongs to this
	// process, and not to a later one with the same number.
	if f.pidfd, err = unix.PidfdOpen(int(c.pid), 0); errors.Is(err, unix.ESRCH) {
		return nil, goneError{fmt.Errorf("process %d has ended", c.pid)}
	} else if err != nil {
		return nil, gone(fmt.Errorf("open process %d: %w", c.pid, err))
	}
	fd, err := openFD(c.pid, c.segment, unix.O_RDWR, func(st *unix.Stat_t) error {
		if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Dev != device {
			return fmt.Errorf("%w: no anonymous file", errSegment)
		}
		return nil
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, goneError{fmt.Errorf("process %d has ended, or has closed its segment", c.pid)}
	case err != nil:
		return nil, gone(fmt.Errorf("open segment of process %d: %w", c.pid, err))
	}
	defer func() { _ = unix.Close(fd) }()
	if err := checkSegment(fd, l); err != nil {
		return nil, gone(fmt.Errorf("segment of process %d: %w", c.pid, err))
	}
	if f.header, err = mapHeader(fd, l); err != nil {
		return nil, err
	}
	if err := f.header.check(&c); err != nil {
		return nil, gone(fmt.Errorf("segment of process %d: %w", c.pid, err))
	}
	if f.out, err = mapChannel(fd, l, own); err != nil {
		return nil, err
	}
	return f, nil
}

// errGone: a peer's process or its segment does not exist any more.
var errGone = errors.New("the peer is gone")

// gone makes err wrap errGone if err means that the peer is gone. It does not change the text,
// because the class of a btl.Error says so too.
func gone(err error) error {
	switch {
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.ENOENT), errors.Is(err, errSegment), errors.Is(err, unix.ENXIO):
		return goneError{err}
	}
	return err
}

// goneError is an error that Is errGone.
type goneError struct{ error }

func (e goneError) Is(target error) bool { return target == errGone }
func (e goneError) Unwrap() error        { return e.error }

func (f *remoteSegment) close() error {
	err := errors.Join(f.out.unmap(), f.header.unmap())
	for _, fd := range [2]*int{&f.pidfd, &f.wakeup} {
		if *fd >= 0 {
			err = errors.Join(err, unix.Close(*fd))
			*fd = -1
		}
	}
	return err
}

// openFD opens the file of a descriptor of another process, if check accepts it. The descriptor may
// name another file by now. Opening that file could have side effects, or fail for unrelated
// reasons.
func openFD(pid, fd uint32, flags int, check func(st *unix.Stat_t) error) (int, error) {
	path, err := unix.Open(procFD(pid, fd), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(path) }()
	var st unix.Stat_t
	if err := unix.Fstat(path, &st); err != nil {
		return -1, err
	}
	if err := check(&st); err != nil {
		return -1, err
	}
	return unix.Open("/proc/self/fd/"+strconv.Itoa(path), flags|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
}

func procFD(pid, fd uint32) string {
	return "/proc/" + strconv.FormatUint(uint64(pid), 10) + "/fd/" + strconv.FormatUint(uint64(fd), 10)
}

// openWakeup opens the pipe on which the peer sleeps, or returns -1. It checks that the descriptor
// still names that pipe.
func openWakeup(c *address) int {
	if c.wakeup == noWakeup {
		return -1
	}
	fd, err := openFD(c.pid, c.wakeup, unix.O_WRONLY, func(st *unix.Stat_t) error {
		if st.Mode&unix.S_IFMT != unix.S_IFIFO || st.Ino != c.wakeupNode {
			return errGone
		}
		return nil
	})
	if err != nil {
		return -1
	}
	return fd
}

// wakeupOf returns the descriptor of this rank's pipe, and its inode.
func wakeupOf(fd int) (number uint32, node uint64, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, 0, fmt.Errorf("look at the wakeup pipe: %w", err)
	}
	return uint32(fd), st.Ino, nil
}
