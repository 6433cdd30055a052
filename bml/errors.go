package bml

import (
	"errors"

	"github.com/mpigo/mpigo/btl"
)

// The errors of a rail are counted by the side that the evidence points to, and by kind, as in LNet
// health (Lustre manual). Where an operation waited for too long tells the side too:
//
//   - It was posted, and not delivered: the path (probe.go, deadlines of transports).
//   - It was delivered, and not answered: the peer, which may only be busy. That costs no health.

// ErrorCounts counts errors by kind; package btl explains the kinds. An end that closes a rail, or
// whose process ends, is no error of the rail, nor is an operation that is wrong in itself.
type ErrorCounts struct {
	Path, Device, Timeout, Protocol uint64
}

// add counts an error. It reports false if the class is no error of a rail.
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

// countLate counts that the peer has not answered what was delivered to it by a rail.
func (b *BML) countLate(rl *Rail) {
	rl.errors.remote.Timeout++
	b.stats.RemoteErrors++
}

// evidence is what an error says. An error that no transport has made, such as that of an endpoint
// which takes nothing any more, is one of the path.
func evidence(err error) (class btl.Class, side btl.Side) {
	var be *btl.Error
	if !errors.As(err, &be) {
		return btl.ClassPath, btl.SideNone
	}
	return be.Class, be.Side
}
