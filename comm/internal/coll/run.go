package coll

import (
	"context"
	"errors"

	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/request"
)

// Everything in this file runs with the engine's lock held. Waiting, long copies and the user's
// operations give it up meanwhile.

// Refuse ends a collective whose arguments are bad, before any message was sent. The collective
// counts nevertheless, so that the next one meets the next one of the other ranks. They are told.
func (s *Schedule) Refuse(err error) error {
	s.Revoke(Refused)
	return s.team.owner.DescribeCollective(s.call, s.root, err)
}

// Run does the schedule. If ctx, which may be nil, ends, the collective is given up; if ctx has
// ended before, the call does not count.
func (s *Schedule) Run(ctx context.Context) error {
	t := s.team
	if t.unfit != nil {
		s.Revoke(Unfit)
		return t.owner.DescribeCollective(s.call, s.root, t.unfit)
	}
	if ctx != nil && ctx.Err() != nil {
		s.uncounted = true
		return t.owner.DescribeCollective(s.call, s.root, ctx.Err())
	}
	t.answerProbes()
	err := s.failure()
	for waiting := true; err == nil && waiting; {
		if waiting, err = s.post(); waiting {
			err = s.await(ctx)
		}
	}
	if err == nil {
		err = s.failure() // while this rank only had to send
	}
	if err != nil {
		err = s.explain(err)
		s.giveUp(err)
	}
	return err
}

// failure is why the collective was revoked, or nil.
func (s *Schedule) failure() error {
	if !s.team.hasFailures() {
		return nil
	}
	return s.team.errorOf(s.seq)
}

// End ends the collective and keeps the schedule for later ones, without the user's buffers.
func (s *Schedule) End() {
	t := s.team
	if s.failed {
		t.poison()
	}
	s.endMeeting()
	clear(s.steps)
	clear(s.Parts)
	s.steps, s.next, s.waits = s.steps[:0], 0, false
	s.Reduction = Reduction{}
	if s.want > len(s.words) && s.want <= tempKeepBytes/wordBytes {
		s.words = make([]uint64, s.want)
	}
	s.used, s.want = 0, 0
	s.agreed, s.inPlace, s.noBuffers = 0, false, false
	if !s.uncounted {
		t.passTo(nextNumber(s.seq))
	}
	isCall := !s.setUp
	s.uncounted, s.failed, s.setUp, s.hook = false, false, false, nil
	t.running = nil
	if t.hub.closed {
		t.dropArea()
	}
	if isCall { // see Prepare
		t.removeIfFreed()
	}
	t.idle = append(t.idle, s)
}

// post does steps until one has to wait, and reports whether there is one.
func (s *Schedule) post() (waiting bool, err error) {
	p, ctx := s.team.p, s.team.ctx
	for s.next < len(s.steps) {
		st := &s.steps[s.next]
		if st.waits && s.isOutstanding() {
			return true, nil
		}
		if st.kind == stepMeet {
			done, err := s.goOn()
			if err != nil {
				return false, err
			}
			if s.meeting.call == meetNowhere { // other steps have taken its place
				continue
			}
			if !done {
				return true, nil
			}
			s.next++
			continue
		}
		s.next++
		peer := int(st.peer)
		switch st.kind {
		case stepSend:
			if r := p.Send(ctx, st.a, peer, s.seq, pml.Standard, s.call); r != nil {
				s.sends = append(s.sends, r)
			}
		case stepRecv:
			if len(s.recvs) > 0 || s.next < len(s.steps) && !s.steps[s.next].waits {
				r := p.Irecv(ctx, st.a, 1, peer, s.seq, s.call)
				s.recvs = append(s.recvs, postedRecv{r, peer, len(st.a)})
				break
			}
			// It is the only one, and there is nothing to do before its message is here.
			var got request.Status
			r := p.Recv(&got, ctx, st.a, 1, peer, s.seq, s.call)
			if recv := (postedRecv{r, peer, len(st.a)}); r != nil {
				s.recvs = append(s.recvs, recv)
			} else if got.Bytes != int64(len(st.a)) {
				return false, s.badMessage(recv, got, nil)
			}
		case stepCopy:
			s.doCopy(st.a, st.b)
		case stepCombine:
			s.doCombine(st.a, st.b)
		case stepCall:
			s.hook()
		}
	}
	return s.isOutstanding(), nil
}

// isOutstanding reports whether something is posted and not known to be finished.
func (s *Schedule) isOutstanding() bool { return len(s.recvs) > 0 || len(s.sends) > 0 }

// unlockBytes is from which length on a copy is made without the engine's lock: it takes longer
// than giving the lock up and taking it again.
const unlockBytes = 32 << 10

func (s *Schedule) doCopy(dst, src []byte) {
	if len(src) < unlockBytes {
		copy(dst, src)
		return
	}
	eng := s.team.p.Engine()
	eng.Unlock()
	copy(dst, src)
	eng.Lock()
}

// doCombine runs the user's operation.
func (s *Schedule) doCombine(in, inout []byte) {
	s.withoutLock(func() { s.Op.Combine(in, inout) })
}

// await waits for everything that is posted.
func (s *Schedule) await(ctx context.Context) error {
	if s.meeting.word != nil {
		return s.awaitMeeting(ctx)
	}
	for len(s.recvs) > 0 {
		last := len(s.recvs) - 1
		r := s.recvs[last]
		if err := r.req.Await(ctx); err != nil {
			return err
		}
		s.recvs = s.recvs[:last]
		st, err := r.req.Take()
		if err != nil || st.Bytes != int64(r.room) {
			return s.badMessage(r, st, err)
		}
	}
	for len(s.sends) > 0 {
		last := len(s.sends) - 1
		r := s.sends[last]
		if err := r.Await(ctx); err != nil {
			return err
		}
		if len(s.sends) == 0 {
			break // abandonRunning has given all of them up meanwhile
		}
		s.sends = s.sends[:last]
		if _, err := r.Take(); err != nil {
			return err
		}
	}
	return nil
}

// giveUp ends a collective that has failed and tells all other ranks. If cause is more than a
// mismatch of arguments, the communicator becomes unfit for collectives.
//
// The user's buffers are the user's again afterwards. Sends go on in the background, from copies.
// Messages that are arriving already are waited for, as by a receive that gives up. So are devices
// that read a buffer: until they have done so, or until their rail gives them up by its own
// deadline.
func (s *Schedule) giveUp(cause error) {
	call, revoked := (*callError)(nil), (*pml.RevokedError)(nil)
	switch {
	case errors.As(cause, &revoked):
		s.Revoke(Unfit)
	case errors.Is(cause, request.ErrCount), errors.Is(cause, request.ErrTruncate), errors.As(cause, &call):
		if s.noBuffers {
			s.Revoke(Differs)
		} else {
			s.Revoke(Lengths)
		}
	case errors.Is(cause, request.ErrProcFailed), errors.Is(cause, request.ErrUnreachable):
		s.Revoke(Lost)
		s.team.markUnfit(s.call, cause)
	default:
		s.Revoke(Failed)
		s.team.markUnfit(s.call, cause)
	}
	s.abandonSends()
	for _, r := range s.recvs {
		_ = r.req.Await(context.Background()) // ends with message, peer or job
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

// abandonSends lets the sends go on in the background. Buffers that devices still read are in
// s.lent afterwards.
func (s *Schedule) abandonSends() {
	for _, r := range s.sends {
		if d := r.Detach(); d != nil {
			s.lent = append(s.lent, d)
		}
		r.Abandon()
	}
	s.sends = s.sends[:0]
}
