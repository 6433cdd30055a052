package comm

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/request"
)

// Kinds of errors, for errors.Is.
var (
	// ErrTruncate: the message was longer than the buffer. The buffer holds its beginning.
	ErrTruncate = request.ErrTruncate
	// ErrRank: no such rank in the communicator.
	ErrRank = errors.New("invalid rank")
	// ErrTag: a tag that is negative or over TagUB.
	ErrTag = errors.New("invalid tag")
	// ErrComm: not a communicator, or one that does not permit the call.
	ErrComm = request.ErrComm
	// ErrCount: a negative count, or slices whose lengths do not fit.
	ErrCount = request.ErrCount
	// ErrType: a type that cannot be sent, or that differs from the type of the message.
	ErrType = errors.New("invalid type")
	// ErrOp: an invalid reduction operation.
	ErrOp = errors.New("invalid operation")
	// ErrRoot: no such root in the communicator.
	ErrRoot = coll.ErrRoot
	// ErrRequest: a request that does not permit the call.
	ErrRequest = request.ErrRequest
	// ErrPending: a request that has neither completed nor failed.
	ErrPending = request.ErrPending
	// ErrInStatus: some requests failed; each status has the error of its request.
	ErrInStatus = request.ErrInStatus
	// ErrBuffer: memory that is not from Alloc, buffers that overlap, or no memory left.
	ErrBuffer = errors.New("invalid buffer")
	// ErrUnreachable: no rail leads to the peer.
	ErrUnreachable = request.ErrUnreachable
	// ErrProcFailed: the peer's process has ended or failed, or is in Finalize.
	ErrProcFailed = request.ErrProcFailed
	// ErrGivenUp: this rank has given up a collective because the context of the view ended. Ranks
	// that have not finished it get errors.
	ErrGivenUp = coll.ErrGivenUp
	// ErrNotSupported: not possible here.
	ErrNotSupported = errors.New("not supported")
	// ErrFinalized: the rank has left the job.
	ErrFinalized = errors.New("already finalized")
)

var (
	errNullComm   = fmt.Errorf("%w: it is nil", ErrComm)
	errFreedComm  = fmt.Errorf("%w: it was freed", ErrComm)
	errUnmadeComm = fmt.Errorf("%w: the request that makes it is not complete", ErrComm)

	errNoMessage   = fmt.Errorf("%w: there is no message", ErrRequest)
	errUsedMessage = fmt.Errorf("%w: the message was received before", ErrRequest)
)

// Error is the error of this package's calls, and of calls on a single request. It says which call
// failed, where and why. Calls on a null handle, calls on several requests, and RunLocal return
// other errors; errors.As finds the *Error of a request in them.
type Error struct {
	// Op is the call: "send", "irecv", "allreduce", "allreduce init". Errors of the request of a
	// persistent collective, from Start or Wait, have "persistent allreduce".
	Op   string
	Comm string // the communicator's name
	// Line is the line of the program, such as "main.go:51", without the folder. It is empty if the
	// library made the error on a goroutine of its own. The error of a call has the line of that
	// call. The error of a request has the line of the call that returned the error, such as Wait;
	// in checked mode, the line of the call that started the request.
	Line string
	// Peer and Tag are the arguments of the call or, after a match, the source and tag of the
	// message. They are Undefined if the call has none.
	//
	// The Peer of a collective is the rank with which an exchange of this rank failed. That rank is
	// not always the cause. If no exchange of this rank failed, for example because another rank
	// gave up, Peer is the root, or Undefined if the collective has no root.
	Peer, Tag int
	Err       error // the cause

	// oddPeer and oddTag say that Peer or Tag is an argument of the call although it equals
	// Undefined or none.
	oddPeer, oddTag bool
}

// none is, within this package, the peer or tag of a call that has none. No call accepts it as an
// argument. If a program passes it nevertheless, isAbout tells the two cases apart.
const none = math.MinInt

// Error returns one line: communicator, call, line of the program, peer and tag, cause.
func (e *Error) Error() string {
	s := e.Comm + ": " + e.Op
	sep := " ("
	if e.Line != "" {
		s += sep + e.Line
		sep = ", "
	}
	if e.Peer != Undefined || e.oddPeer {
		s += sep + "peer " + rankName(e.Peer, e.receives() && !errors.Is(e.Err, ErrRank))
		sep = ", "
	}
	if e.Tag != Undefined || e.oddTag {
		s += sep + "tag " + tagName(e.Tag, e.receives() && !errors.Is(e.Err, ErrTag))
		sep = ", "
	}
	if sep == ", " {
		s += ")"
	}
	return s + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// receives reports whether the call accepts wildcards. A wildcard in the sending half of Sendrecv
// is wrong all the same, as the cause says.
func (e *Error) receives() bool {
	return calls.Named(e.Op).Receives()
}

func rankName(rank int, wild bool) string {
	switch {
	case rank == AnySource && wild:
		return "any"
	case rank == ProcNull:
		return "null"
	}
	return strconv.Itoa(rank)
}

func tagName(tag int, wild bool) string {
	if tag == AnyTag && wild {
		return "any"
	}
	return strconv.Itoa(tag)
}

// fail makes err an *Error, unless it is nil or an *Error already. peer and tag are none if the
// call has none. The lock may be held or not.
func (c *Comm) fail(call calls.ID, peer, tag int, err error) error {
	if err == nil {
		return nil
	}
	if c.isNull() {
		return wrap(call.String(), "null", peer, tag, err)
	}
	return c.describe(call.String(), peer, tag, err)
}

// describe is fail for a communicator that is not null.
func (s *state) describe(op string, peer, tag int, err error) error {
	if untold := s.job.untold; untold != nil && errors.Is(err, ErrUnreachable) {
		if why := untold(); why != nil && !errors.As(err, new(*Error)) {
			err = withReason(err, why)
		}
	}
	return wrap(op, *s.name.Load(), peer, tag, err)
}

func wrap(op, comm string, peer, tag int, err error) error {
	if e, ok := err.(*Error); ok {
		return e
	}
	line, err := lineOf(err)
	e := &Error{Op: op, Comm: comm, Line: line, Peer: peer, Tag: tag, Err: err}
	e.oddPeer = peer == Undefined || isAbout(err, none, ErrRank, ErrRoot)
	e.oddTag = tag == Undefined || isAbout(err, none, ErrTag)
	if peer == none && !e.oddPeer {
		e.Peer = Undefined
	}
	if tag == none && !e.oddTag {
		e.Tag = Undefined
	}
	return e
}
