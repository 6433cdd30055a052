package btl

import (
	"errors"
	"fmt"
	"strconv"
)

var (
	// ErrResource: the operation was not taken and nothing was sent. Post it again after a progress
	// call (C6).
	ErrResource = errors.New("no resource now")
	// ErrFailed: the endpoint is not Up, and the operation was not taken.
	ErrFailed = errors.New("endpoint is down")
	// ErrTooLong: the fragment is longer than the module's MaxSendBytes.
	ErrTooLong = errors.New("fragment too long")
	// ErrMemory: this rail cannot expose this kind of memory.
	ErrMemory = errors.New("memory that this rail cannot expose")
	// ErrUnreachable: this rail does not lead to that peer.
	ErrUnreachable = errors.New("peer not reachable by this rail")
	// ErrNoAddress: the peer's rail had no address when addresses were exchanged. It may have one
	// now.
	ErrNoAddress = errors.New("the address of the peer's rail is not known yet")
	// ErrClosed: the module is closed.
	ErrClosed = errors.New("rail is closed")
	// ErrInjected is the cause of errors that a test asked for.
	ErrInjected = errors.New("injected fault")
)

// Class says what kind of thing went wrong. It decides how the layer above reacts.
type Class uint8

const (
	// ClassPath: the path to the peer does not work (retries exceeded, link down).
	ClassPath Class = iota
	// ClassFlushed: the operation ended only because something else failed first. It says nothing
	// about the cause.
	ClassFlushed
	// ClassUsage: bad key, bad length, bad operation: an error of the layer above, not of the path.
	ClassUsage
	// ClassDevice: the rail's own device or queue is broken.
	ClassDevice
	// ClassPeerGone: the peer's process has ended.
	ClassPeerGone
	// ClassProtocol: the peer broke the transport's protocol.
	ClassProtocol
	// ClassTimeout: no completion came before the deadline.
	ClassTimeout
	// ClassClosed: brought down on purpose, by this side or by the peer.
	ClassClosed
)

var classNames = [...]string{"path", "flushed", "usage", "device", "peer gone", "protocol", "timeout", "closed"}

func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return "class " + strconv.Itoa(int(c))
}

// Side is the end of the path that the evidence points to.
type Side uint8

const (
	SideNone Side = iota
	SideLocal
	SideRemote
	SideBoth
)

func (s Side) String() string {
	switch s {
	case SideLocal:
		return "local"
	case SideRemote:
		return "remote"
	case SideBoth:
		return "both"
	}
	return "none"
}

// Error is a failure that a rail reports (C7).
type Error struct {
	Rail string // Attrs.Name
	Peer int    // or AllPeers
	// Class of the cause.
	Class Class
	// Side is the end that the evidence points to.
	Side Side
	// Native is the transport's own status: "IBV_WC_RETRY_EXC_ERR", "ECONNRESET".
	Native string
	// Err is the cause, for errors.Is.
	Err error
}

func (e *Error) Error() string {
	s := "rail " + e.Rail
	if e.Peer != AllPeers {
		s += fmt.Sprintf(" to rank %d", e.Peer)
	}
	// The native status or the cause, if there is one, already says that the path does not work.
	if e.Class != ClassPath || e.Native == "" && e.Err == nil {
		s += ": " + e.Class.String()
	}
	if e.Native != "" {
		s += ": " + e.Native
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }
