package coll

import (
	"context"
	"errors"
	"fmt"

	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/request"
)

// ErrGivenUp is the error of a collective that this rank gave up because a context ended, before
// the call or during it.
var ErrGivenUp = errors.New("given up, and the other ranks are told")

// givenUp is the error of a call whose context has ended.
func givenUp(ctx context.Context) error { return fmt.Errorf("%w: %w", ErrGivenUp, ctx.Err()) }

// ErrRoot is the error of a root that does not exist, or differs from another rank's.
var ErrRoot = errors.New("invalid root")

// badMessage is the error of a receive that failed with err, or whose message has the wrong length.
func (s *Schedule) badMessage(r postedRecv, st request.Status, err error) error {
	s.failedPeer = r.peer
	switch {
	case s.noBuffers && (err == nil || errors.Is(err, request.ErrTruncate)):
		return s.otherCall(r.peer)
	case errors.Is(err, request.ErrTruncate):
		err = fmt.Errorf("%w: rank %d sent more than the %d bytes that are due: its arguments differ (%w)",
			request.ErrCount, r.peer, r.room, request.ErrTruncate)
	case err == nil:
		err = fmt.Errorf("%w: rank %d sent %d bytes where %d are due: its arguments differ",
			request.ErrCount, r.peer, st.Bytes, r.room)
	}
	return s.team.owner.Describe(s.id.String(), r.peer, s.seq, err)
}

// otherCall is the error of a message that can only belong to another call.
func (s *Schedule) otherCall(peer int) error {
	ours := s.signature()
	err := &callError{s.id, s.rank, s.noBuffers, &RevokedError{Rank: peer, Reason: Differs, Theirs: &Signature{}, Ours: &ours}}
	return s.team.owner.Describe(s.id.String(), peer, s.seq, err)
}

// explain makes the user's error of the error that ended the collective.
func (s *Schedule) explain(err error) error {
	if revoked := (*RevokedError)(nil); errors.As(err, &revoked) {
		err = &callError{s.id, s.rank, s.callHasNoBuffers(), revoked}
	}
	return s.describe(err)
}

// callError is the error of a call whose collective another rank has revoked, or whose arguments
// differ.
type callError struct {
	call      calls.ID
	self      int  // this rank
	noBuffers bool // of the user's
	cause     *RevokedError
}

// reason is the reason from the point of view of this call.
func (e *callError) reason() Reason {
	if e.noBuffers && e.cause.Reason == Lengths {
		return Differs // only the other rank's call has lengths
	}
	return e.cause.Reason
}

func (e *callError) Error() string {
	if e.cause.Theirs != nil {
		return e.difference()
	}
	switch e.reason() {
	case Lost:
		if e.cause.Rank == e.self {
			return fmt.Sprintf("another rank, which this %s needs, does not reach this one", e.call)
		}
		return fmt.Sprintf("it needs rank %d, which is lost or in Finalize", e.cause.Rank)
	case Lengths, Differs:
		return fmt.Sprintf("rank %d has noticed that %v, in this %s; checked mode (check=true) says how",
			e.cause.Rank, e.reason(), e.call)
	case Finished:
		return fmt.Sprintf("rank %d has finished this %s and sends nothing more: the arguments differ", e.cause.Rank, e.call)
	case Freed:
		return fmt.Sprintf("rank %d has freed the communicator, without this %s", e.cause.Rank, e.call)
	case FreedRequest:
		return fmt.Sprintf("rank %d has freed its request of this %s, and starts it no more", e.cause.Rank, e.call)
	case Finalized:
		return fmt.Sprintf("rank %d is in Finalize, without this %s", e.cause.Rank, e.call)
	case Unwanted:
		return fmt.Sprintf("rank %d has finished this %s without the message that this rank sends it: the arguments differ",
			e.cause.Rank, e.call)
	}
	return fmt.Sprintf("rank %d gave up on this %s: %v", e.cause.Rank, e.call, e.reason())
}

// Follows reports whether the error of a call is only the consequence of another rank's failure.
func Follows(err error) bool {
	call := (*callError)(nil)
	if !errors.As(err, &call) || call.cause.Rank == call.self {
		return false
	}
	switch call.cause.Reason {
	case Failed, Panicked, Refused:
		return true
	}
	return false
}

// difference says how the call of another rank differs.
func (e *callError) difference() string {
	switch theirs, ours := e.cause.Theirs, e.cause.Ours; {
	case theirs.Call != ours.Call, (theirs.Kind^ours.Kind)&(kindNonblocking|kindPersistent) != 0:
		return fmt.Sprintf("rank %d is in another collective than this %s", e.cause.Rank, e.call)
	case theirs.Root != ours.Root:
		return fmt.Sprintf("the arguments differ: at rank %d the root is %d", e.cause.Rank, theirs.Root)
	case theirs.Bytes != ours.Bytes:
		return fmt.Sprintf("the arguments differ: rank %d counts %d bytes, this rank %d", e.cause.Rank, theirs.Bytes, ours.Bytes)
	}
	return fmt.Sprintf("the arguments differ: rank %d has elements of another size, or only one of the two is in place or in rank order", e.cause.Rank)
}

// Is matches ErrComm, and the error of the arguments if it is known.
func (e *callError) Is(target error) bool {
	switch theirs, ours := e.cause.Theirs, e.cause.Ours; target {
	case request.ErrComm:
		return true
	case request.ErrCount:
		return e.reason() == Lengths
	case request.ErrProcFailed:
		return e.cause.Reason == Lost || e.cause.Reason == Finalized
	case ErrRoot:
		return theirs != nil && theirs.Call == ours.Call && theirs.Root != ours.Root
	}
	return false
}
