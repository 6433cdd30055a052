package bml

import (
	"errors"

	"github.com/mpigo/mpigo/btl"
)

// Errors of a rail are counted by kind, and by the side that the evidence points to, as in LNet
// health (Lustre manual). A timeout points to a side, too:
//
//   - An operation was posted, and not delivered: the path (probe.go, deadlines of transports).
//   - An operation was delivered, and not answered: the peer, which may only be busy. That costs no
//     health.

// ErrorCounts counts errors by kind; package btl explains the kinds. Three things are no errors of
// the rail: an end closes it, a process ends, an operation is invalid.
type ErrorCounts struct {
	Path, Device, Timeout, Protocol uint64
}

// add counts an error. It reports false if the class is no rail error.
func (c *ErrorCounts) add(class btl.Class) bool {
	switch class {
	case btl.ClassPath:
		c.Path++
	case btl.ClassDevice:
		c.Device++
	case btl.ClassTimeout:
		c.Timeout++
	case btl.ClassProtocol:
		c.Protocol++
	default:
		return false
	}
	return true
}

// railErrors are the errors of a rail.
type railErrors struct{ local, path, remote ErrorCounts }

// countError counts an error of a rail.
func (b *BML) countError(rl *Rail, err error) {
	class, side := evidence(err)
	switch {
	case side == btl.SideLocal:
		if rl.errors.local.add(class) {
			b.stats.LocalErrors++
		}
	case side == btl.SideRemote:
		if rl.errors.remote.add(class) {
			b.stats.RemoteErrors++
		}
	case rl.errors.path.add(class):
		b.stats.PathErrors++
	}
}

// countLate counts a PROBE that was delivered, and not answered.
func (b *BML) countLate(rl *Rail) {
	rl.errors.remote.Timeout++
	b.stats.RemoteErrors++
}

// evidence returns the class and the side of an error. An error that is no *btl.Error, such as
// btl.ErrFailed, points to the path.
func evidence(err error) (class btl.Class, side btl.Side) {
	var be *btl.Error
	if !errors.As(err, &be) {
		return btl.ClassPath, btl.SideNone
	}
	return be.Class, be.Side
}
