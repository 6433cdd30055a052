package tcp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
)

var (
	errNoAnswer  = errors.New("there is no connection to the peer")
	errProtocol  = errors.New("protocol error by the peer")
	errWrongPeer = errors.New("another process answers at the address of the peer")
)

// sideOf returns the end that an error of the system points to (tcp(7), ip(7)). If the system finds
// no address or route of the peer, it is the peer's end, because the rail may reach other peers
// (O2IBLND, "Handling Errors on Sends").
func sideOf(errno unix.Errno) btl.Side {
	switch errno {
	case unix.ENETDOWN, unix.ENODEV, unix.EADDRNOTAVAIL, unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ENOSPC, unix.EACCES, unix.EPERM:
		return btl.SideLocal
	case unix.ECONNREFUSED, unix.ECONNRESET, unix.EPIPE, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EHOSTDOWN:
		return btl.SideRemote
	}
	return btl.SideBoth
}

// nativeOf returns the system's name of an error.
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
