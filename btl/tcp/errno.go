package tcp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
)

var (
	errNoAnswer = errors.New("there is no connection to the peer")
	errNonsense = errors.New("the peer sent what makes no sense")
	errStranger = errors.New("who answers there is not the peer")
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
	return m.NewError(peer, btl.ClassPath, sideOf(errno), nativeOf(errno), fmt.Errorf("%s: %w", doing, errno))
}
