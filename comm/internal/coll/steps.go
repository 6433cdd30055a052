package coll

import (
	"errors"

	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/request"
)

// Everything in this file runs with the engine's lock held. Long copies and the user's operations
// release it.

// failed is why the collective was revoked, or nil.
func (s *Schedule) failed() error {
	if !s.team.hasFailures() {
		return nil
	}
	return s.team.errorOf(s.tag)
}

// post runs steps until one has to wait. It reports whether there is such a step, or a posted
// operation is left.
func (s *Schedule) post() (waiting bool, err error) {
	for s.next < len(s.steps) {
		st := &s.steps[s.next]
		if st.waits && s.isOutstanding() {
			return true, nil
		}
		if st.kind == stepMeet {
			done, err := s.goOn(int(st.peer))
			if err != nil {
				return false, err
			}
			if !done {
				return true, nil
			}
			s.next++
			continue
		}
		s.next++
		switch st.kind {
		case stepSend:
			s.postSend(int(st.peer), st.a)
		case stepRecv:
			if err := s.postRecv(int(st.peer), st.a); err != nil {
				return false, err
			}
		case stepCopy:
			s.doCopy(st.a, st.b)
		case stepCombine:
			if err := apart(s, combiningStep.do, combiningStep{s.Op, st.a, st.b}); err != nil {
				return false, err
			}
		case stepCall:
			s.hook()
		case stepCheck:
			if err := s.doCheck(int(st.peer)); err != nil {
				return false, err
			}
		}
	}
	return s.isOutstanding(), nil
}

// postSend posts a send. A collective that is not inline may run inside a turn of progress, so it
// must not make turns itself, as PML.Send does.
func (s *Schedule) postSend(peer int, buf []byte) {
	p, ctx := s.team.p, s.team.ctx
	var r *pml.SendRequest
	if s.isInline {
		r = p.Send(ctx, buf, peer, s.tag, pml.Standard, s.id.String())
	} else if !p.SendNow(ctx, buf, peer, s.tag) {
		r = p.Isend(ctx, buf, peer, s.tag, pml.Standard, s.id.String())
	}
	if r != nil {
		s.sends = append(s.sends, r)
	}
}

// postRecv posts a receive. Inline, if it is the only operation and the next step waits for it,
// postRecv waits for it without a request.
func (s *Schedule) postRecv(peer int, buf []byte) error {
	p, ctx := s.team.p, s.team.ctx
	isAlone := len(s.recvs) == 0 && (s.next == len(s.steps) || s.steps[s.next].waits)
	if !isAlone || !s.isInline {
		r := p.Irecv(ctx, buf, 1, peer, s.tag, s.id.String())
		s.recvs = append(s.recvs, postedRecv{r, peer, len(buf)})
		return nil
	}
	var got request.Status
	r := p.Recv(&got, ctx, buf, 1, peer, s.tag, s.id.String())
	if recv := (postedRecv{r, peer, len(buf)}); r != nil {
		s.recvs = append(s.recvs, recv)
	} else if got.Bytes != int64(len(buf)) {
		return s.badMessage(recv, got, nil)
	}
	return nil
}

// isOutstanding reports whether a posted operation is not known to have ended.
func (s *Schedule) isOutstanding() bool { return len(s.recvs) > 0 || len(s.sends) > 0 }

// unlockBytes is the length from which a copy is made without the engine's lock: it takes longer
// than releasing the lock and taking it again.
const unlockBytes = 32 << 10

func (s *Schedule) doCopy(dst, src []byte) {
	if len(src) < unlockBytes {
		copy(dst, src)
		return
	}
	s.move(phaseApart)
	call := s.team.p.Engine().Leave()
	copy(dst, src)
	s.team.p.Engine().Return(call)
	s.move(phaseRunning)
}

// panicError is the error of an operation of the user's that has panicked. err is the owner's.
type panicError struct{ err error }

func (e *panicError) Error() string { return e.err.Error() }
func (e *panicError) Unwrap() error { return e.err }

var (
	errOperationPanicked = errors.New("the operation panicked")
	errOperationExited   = errors.New("the operation ended its goroutine")
)

// apart runs f(a), which calls the user's operation, without the engine's lock. If that panics
// inline, the collective is given up, and the panic goes on to the user. Otherwise any waiting call
// may run it. So an operation that may not return gets its own goroutine, which it may end, and its
// panic is the error of the collective.
//
// f is no closure, because a closure would be allocated even without the goroutine.
func apart[A any](s *Schedule, f func(A), a A) error {
	eng := s.team.p.Engine()
	s.move(phaseApart)
	call := eng.Leave()
	if !s.isInline && !s.Returns {
		err := inGoroutine(s.team.owner, f, a)
		eng.Return(call)
		s.move(phaseRunning)
		return err
	}
	returned := false
	defer func() {
		eng.Return(call)
		s.move(phaseRunning)
		if !returned {
			s.giveUp(&panicError{errOperationPanicked})
		}
	}()
	f(a)
	returned = true
	return nil
}

// combiningStep is a stepCombine.
type combiningStep struct {
	op        Combiner
	in, inout []byte
}

func (c combiningStep) do() { c.op.Combine(c.in, c.inout) }

// inGoroutine runs f on a goroutine of its own, and returns an error if f does not return.
func inGoroutine[A any](owner Owner, f func(A), a A) error {
	done := make(chan error, 1)
	go func() {
		err := errOperationExited
		defer func() {
			if v := recover(); v != nil {
				err = &panicError{owner.Panicked(v)}
			}
			done <- err
		}()
		f(a)
		err = nil
	}()
	return <-done
}

// revokeFor revokes the collective because of an error. Unless that is only a mismatch of
// arguments, the communicator becomes unfit for collectives. Sends go on in the background, from
// copies.
func (s *Schedule) revokeFor(cause error) {
	call, revoked, panicked, check := (*callError)(nil), (*pml.RevokedError)(nil), (*panicError)(nil), (*CheckError)(nil)
	switch {
	case errors.As(cause, &check): // every rank has found the same
	case errors.As(cause, &panicked): // with any kind of error
		s.Revoke(Panicked)
		s.team.markUnfit(s.id, cause, none)
	case errors.Is(cause, ErrGivenUp):
		s.Revoke(Ended)
		s.team.markUnfit(s.id, cause, none)
	case errors.As(cause, &revoked):
		s.Revoke(Unfit)
	case errors.Is(cause, request.ErrProcFailed), errors.Is(cause, request.ErrUnreachable):
		lost := s.failedPeer
		if errors.As(cause, &call) {
			lost = call.cause.Rank
		}
		if lost == none {
			s.Revoke(Failed)
		} else {
			s.revoke(&RevokedError{Rank: lost, Reason: Lost})
		}
		s.team.markUnfit(s.id, cause, lost)
	case errors.Is(cause, request.ErrCount), errors.Is(cause, request.ErrTruncate), errors.As(cause, &call):
		if s.callHasNoBuffers() {
			s.Revoke(Differs)
		} else {
			s.Revoke(Lengths)
		}
	default:
		s.Revoke(Failed)
		s.team.markUnfit(s.id, cause, none)
	}
	s.abandonSends()
}

// abandonSends lets the sends go on in the background. Afterwards s.lent has the buffers that
// devices still read.
func (s *Schedule) abandonSends() {
	for _, r := range s.sends {
		r.Unwatch(&s.wakes)
		if d := r.Detach(); d != nil {
			s.lent = append(s.lent, d)
		}
		r.Abandon()
	}
	clear(s.sends)
	s.sends = s.sends[:0]
}
