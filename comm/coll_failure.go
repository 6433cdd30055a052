package comm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/request"
)

// A rank that cannot go on with a collective (its arguments are bad, a message has not the length
// that is due, a peer is gone, the context has ended) spoils it, which the point-to-point layer
// tells every other rank: their calls end too, or will when they come to it (pml/spoil.go). Calls
// that do not belong together, and so could wait for ever, are found by their signatures. A rank
// that gives up a Dup or Split after others have got their communicator has that one revoked
// (pml/revoke.go).

// badMessage is the error for a receive that failed with err, or got too little.
func (s *schedule) badMessage(r collRecv, st request.Status, err error) error {
	switch {
	case s.bare && (err == nil || errors.Is(err, ErrTruncate)):
		ours, _ := s.colls.Signature()
		err = &spoiledError{s.call, true, &pml.SpoiledError{Rank: r.peer, Why: pml.Differs, Theirs: &pml.Signature{}, Ours: &ours}}
	case errors.Is(err, ErrTruncate):
		err = fmt.Errorf("%w: rank %d sent more than the %d bytes that are due: its arguments differ (%w)", ErrCount, r.peer, r.room, ErrTruncate)
	case err == nil:
		err = fmt.Errorf("%w: rank %d sent %d bytes where %d are due: its arguments differ", ErrCount, r.peer, st.Bytes, r.room)
	}
	return s.Describe(s.call, r.peer, none, err)
}

// explain makes an *Error for the user of what has ended the collective.
func (s *schedule) explain(err error) error {
	if spoiled := (*pml.SpoiledError)(nil); errors.As(err, &spoiled) {
		return s.Describe(s.call, s.root, none, &spoiledError{s.call, s.bare, spoiled})
	}
	if e := (*Error)(nil); errors.As(err, &e) {
		e.Tag = Undefined // that of the schedule is no user's
		return e
	}
	return s.Describe(s.call, s.root, none, err)
}

// spoiledError is why a collective ended that another rank has given up, or called otherwise.
type spoiledError struct {
	call  string
	bare  bool // as of its schedule
	cause *pml.SpoiledError
}

// why is the reason as it is for this call.
func (e *spoiledError) why() pml.Why {
	if e.bare && e.cause.Why == pml.Lengths {
		return pml.Differs // it is the other call that has lengths
	}
	return e.cause.Why
}

func (e *spoiledError) Error() string {
	if e.cause.Theirs != nil {
		return fmt.Sprintf("the arguments differ: %s", e.difference())
	}
	switch e.why() {
	case pml.Over:
		return fmt.Sprintf("rank %d has done with this %s, and sends nothing more: the arguments differ", e.cause.Rank, e.call)
	case pml.Freed:
		return fmt.Sprintf("rank %d has freed the communicator, without this %s", e.cause.Rank, e.call)
	case pml.Finalized:
		return fmt.Sprintf("rank %d is in Finalize, without this %s", e.cause.Rank, e.call)
	case pml.Unwanted:
		return fmt.Sprintf("rank %d has done with this %s without what this rank sends it: the arguments differ", e.cause.Rank, e.call)
	}
	return fmt.Sprintf("rank %d gave up on this %s: %v", e.cause.Rank, e.call, e.why())
}

// difference says what another rank has called otherwise.
func (e *spoiledError) difference() string {
	switch theirs, ours := e.cause.Theirs, e.cause.Ours; {
	case theirs.Call != ours.Call:
		return fmt.Sprintf("rank %d is in another collective", e.cause.Rank)
	case theirs.Root != ours.Root:
		return fmt.Sprintf("for rank %d the root is %d", e.cause.Rank, theirs.Root)
	case theirs.Bytes != ours.Bytes:
		return fmt.Sprintf("rank %d counts %d bytes, this one %d", e.cause.Rank, theirs.Bytes, ours.Bytes)
	}
	return fmt.Sprintf("rank %d has elements of another size, or in place and not, or another order", e.cause.Rank)
}

// Is says that the communicator does not permit the call, and what is wrong with the arguments if that is known.
func (e *spoiledError) Is(target error) bool {
	switch theirs, ours := e.cause.Theirs, e.cause.Ours; target {
	case ErrComm:
		return true
	case ErrCount:
		return e.why() == pml.Lengths
	case ErrProcFailed:
		return e.cause.Why == pml.Lost || e.cause.Why == pml.Finalized
	case ErrRoot:
		return theirs != nil && theirs.Call == ours.Call && theirs.Root != ours.Root
	}
	return false
}

// giveUp ends a collective that has failed: all other ranks are told. The user's buffers are the
// user's again afterwards: sends go on in the background, from copies. Messages that are arriving
// already are waited for, as by a receive that gives up, and so are devices that read a buffer:
// until they have done so, or their rail gives them up by its own deadline. What is the matter with
// more than the arguments makes the communicator unfit for collectives.
func (s *schedule) giveUp(cause error) {
	spoiled, revoked := (*spoiledError)(nil), (*pml.RevokedError)(nil)
	switch {
	case errors.As(cause, &revoked):
		s.job.pml.Spoil(s.coll, pml.Unfit)
	case errors.Is(cause, ErrCount), errors.Is(cause, ErrTruncate), errors.As(cause, &spoiled):
		why := pml.Lengths
		if s.bare {
			why = pml.Differs
		}
		s.job.pml.Spoil(s.coll, why)
	default:
		why := pml.Failed
		if errors.Is(cause, ErrProcFailed) || errors.Is(cause, ErrUnreachable) {
			why = pml.Lost
		}
		s.job.pml.Spoil(s.coll, why)
		if s.collErr == nil {
			s.collErr = fmt.Errorf("%w: unfit for collectives since a %s failed: %w", ErrComm, s.call, cause)
			s.job.pml.MarkUnfit(s.coll)
		}
	}
	s.abandonSends()
	for _, r := range s.recvs {
		_ = r.req.Await(context.Background()) // ends with the message, with the peer or with the job
		r.req.Abandon()
	}
	s.recvs = s.recvs[:0]
	for _, d := range s.lent {
		_ = d.Await(context.Background()) // ends when the rail calls back, or with the job
		d.Abandon()
	}
	clear(s.lent)
	s.lent = s.lent[:0]
}

// abandonSends lets the sends go on in the background. What devices still read of their buffers is
// in s.lent then.
func (s *schedule) abandonSends() {
	for _, r := range s.sends {
		if d := r.Detach(); d != nil {
			s.lent = append(s.lent, d)
		}
		r.Abandon()
	}
	s.sends = s.sends[:0]
}

// Uses implements pml.Collective.
func (k *collectives) Uses(mem []byte) bool {
	return k.running != nil && slices.ContainsFunc(k.running.steps, func(st step) bool {
		return checkApart(mem, st.a) != nil || checkApart(mem, st.b) != nil
	})
}

// GivenUp implements pml.Collective: another rank has spoiled what this one does. Its receives have
// ended, but for those whose message is arriving. The goroutine that is in the collective waits for
// these, and for what devices still read, when it comes to give up itself.
func (k *collectives) GivenUp() {
	if s := k.running; s != nil {
		s.abandonSends()
		s.next = len(s.steps)
	}
}

// Signature implements pml.Collective.
func (k *collectives) Signature() (pml.Signature, bool) {
	s := k.running
	if s == nil {
		return pml.Signature{}, false
	}
	sign := pml.Signature{Call: hashOf(s.call), Root: int64(s.root), Bytes: uint64(s.agreed)}
	const inOrder, inPlace = 1 << 63, 1 << 62
	if s.op != nil {
		sign.Kind = uint64(s.elem)
		if !s.commutes {
			sign.Kind |= inOrder
		}
	}
	if s.inPlace {
		sign.Kind |= inPlace
	}
	return sign, true
}

// hashOf is FNV-1a.
func hashOf(name string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 0x100000001b3
	}
	return h
}
