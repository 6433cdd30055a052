package tcp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
)

var (
	errPeerFailed = errors.New("the peer's end failed")
	errPeerClosed = errors.New("the peer has closed its end")
	errNoAnswer   = errors.New("there is no connection to the peer")
	errNonsense   = errors.New("the peer sent what makes no sense")
	errEpochs     = errors.New("no epoch is left")
	errNoSecret   = errors.New("the job's secret is not known yet")
	errStranger   = errors.New("who answers there is not the peer")
)

// sideOf is where an error of the system points to (tcp(7), ip(7)).
func sideOf(errno unix.Errno) btl.Side {
	switch errno {
	case unix.ENETDOWN, unix.EADDRNOTAVAIL, unix.ENETUNREACH, unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EACCES, unix.EPERM:
		return btl.SideLocal
	case unix.ECONNREFUSED, unix.ECONNRESET, unix.EPIPE:
		return btl.SideRemote
	}
	return btl.SideBoth
}

// nativeOf is the system's word for an error.
func nativeOf(errno unix.Errno) string {
	if errno == 0 {
		return ""
	}
	if name := unix.ErrnoName(errno); name != "" {
		return name
	}
	return fmt.Sprintf("errno %d", int(errno))
}

// pathError is the error of a connection that the system reports.
func (m *module) pathError(peer int, errno unix.Errno, doing string) *btl.Error {
	return m.errorf(peer, btl.ClassPath, sideOf(errno), nativeOf(errno), fmt.Errorf("%s: %w", doing, errno))
}

// errorf makes an error of this rail.
func (m *module) errorf(peer int, class btl.Class, side btl.Side, native string, err error) *btl.Error {
	return &btl.Error{Rail: m.cfg.Rail, Peer: peer, Class: class, Side: side, Native: native, Err: err}
}

// because is the error of a failure that the layer above asked for.
func (m *module) because(peer int, class btl.Class, cause error) *btl.Error {
	var be *btl.Error
	if errors.As(cause, &be) {
		return m.errorf(peer, be.Class, be.Side, be.Native, cause)
	}
	return m.errorf(peer, class, btl.SideLocal, "", cause)
}
