package coll

import (
	"context"
	"errors"

	"github.com/mpigo/mpigo/request"
)

// Blocking calls. Everything in this file runs with the engine's lock held. Waits release it.

// Refuse ends a collective with bad arguments, before any message was sent. The collective counts
// nevertheless, so that later ones match at all ranks. Refuse revokes it.
func (s *Schedule) Refuse(err error) error {
	s.Revoke(Refused)
	return s.describe(err)
}

// describe wraps the error of the call.
func (s *Schedule) describe(err error) error {
	return s.team.owner.DescribeCollective(s.id, s.root, err)
}

// admit is the error of a call that cannot begin: the communicator is unfit, or ctx, which may be
// nil, has ended. The call counts, like one with bad arguments, and is revoked.
func (s *Schedule) admit(ctx context.Context) error {
	if unfit := s.team.unfit; unfit != nil {
		s.Revoke(Unfit)
		return s.describe(unfit)
	}
	if ctx != nil && ctx.Err() != nil {
		s.Revoke(Ended)
		return s.describe(givenUp(ctx))
	}
	return nil
}

// Call runs, launches or keeps the collective, by the form of its call. The request is null for a
// blocking call.
func (s *Schedule) Call(ctx context.Context) (request.Request, error) {
	switch s.how {
	case Nonblocking:
		return s.Launch(ctx)
	case Persistent:
		return s.Keep(ctx)
	}
	return request.Request{}, s.Run(ctx)
}

// Run runs the schedule. If ctx, which may be nil, ends or has ended, the collective is given up.
func (s *Schedule) Run(ctx context.Context) error {
	if s.area != nil {
		s.team.hub.keepMoving()
	}
	if err := s.admit(ctx); err != nil {
		return err
	}
	return s.run(ctx)
}

func (s *Schedule) run(ctx context.Context) error {
	s.isInline = true
	s.move(phaseRunning)
	s.team.answerProbes(s)
	err := s.failed()
	for waiting := true; err == nil && waiting; {
		if waiting, err = s.post(); waiting {
			err = s.await(ctx)
		}
	}
	if err == nil {
		err = s.failed() // while this rank only had to send
	}
	if err == nil && s.atEnd != nil {
		err = s.atEnd()
	}
	if err != nil {
		err = s.explain(err)
		s.giveUp(err)
	}
	s.move(phaseOver)
	return err
}

// await waits for all posted operations.
func (s *Schedule) await(ctx context.Context) error {
	if s.meeting.word != nil && s.next < len(s.steps) {
		return s.awaitMeeting(ctx)
	}
	for len(s.recvs) > 0 {
		last := len(s.recvs) - 1
		r := s.recvs[last]
		if err := r.req.Await(ctx); err != nil {
			return s.stopped(ctx, r.peer, err)
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
			return s.stopped(ctx, r.Dest(), err)
		}
		if len(s.sends) == 0 {
			break // interrupt has given all of them up
		}
		s.sends = s.sends[:last]
		if _, err := r.Take(); err != nil {
			s.failedPeer = r.Dest()
			return err
		}
	}
	return nil
}

// stopped is the error of a wait for a rank that has ended with err: ctx has ended, or the job.
func (s *Schedule) stopped(ctx context.Context, peer int, err error) error {
	if ctx == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	return s.team.owner.Describe(s.id.String(), peer, s.seq, givenUp(ctx))
}

// giveUp ends a collective that has failed and tells all other ranks.
//
// Afterwards the library does not use the user's buffers any more. So giveUp waits for messages
// that are already arriving, and for devices that read a buffer, which their rail ends by its own
// deadline.
func (s *Schedule) giveUp(cause error) {
	s.revokeFor(cause)
	for _, list := range [...]*[]postedRecv{&s.recvs, &s.meeting.watches} {
		for _, r := range *list {
			_ = r.req.Await(context.Background()) // ends with message, peer or job
			r.req.Abandon()
		}
		*list = (*list)[:0]
	}
	for _, d := range s.lent {
		_ = d.Await(context.Background()) // ends when the rail calls back, or with the job
		d.Abandon()
	}
	clear(s.lent)
	s.lent = s.lent[:0]
}

// Leave ends a call: the caller of Begin does nothing more with the schedule. A nonblocking
// collective that was launched goes on, and a persistent one stays for its starts.
func (s *Schedule) Leave() {
	t := s.team
	if t.blocking == s {
		t.blocking = nil
	}
	switch {
	case s.how == Nonblocking && s.phase != phaseOpen:
	case s.how == Persistent && s.phase == phaseReady:
	case s.phase == phaseRunning: // a panic has left it
		s.end()
		s.Unbind()
	default:
		s.end()
		s.recycle()
	}
}

// end removes the collective from those under way, and discards its messages that were not
// received.
func (s *Schedule) end() {
	t := s.team
	s.endMeetings()
	t.pass(s)
	if s.making != nil {
		s.making.End()
		s.afterMaking()
		s.making, s.afterMaking = nil, nil
	}
	t.tidyArea()
	if !s.setUp { // see Prepare
		t.removeIfFreed()
	}
}

// recycle keeps the schedule for later collectives, without the user's buffers.
func (s *Schedule) recycle() {
	t := s.team
	s.declineStarts()
	s.move(phaseIdle)
	s.leaveArea()
	clear(s.steps)
	clear(s.Parts)
	s.steps, s.next, s.waits = s.steps[:0], 0, false
	s.Reduction = Reduction{}
	s.keepTemp()
	s.used, s.want = 0, 0
	s.agreed, s.inPlace, s.noBuffers = 0, false, false
	s.starts, s.origin = 0, nil
	s.failure, s.failedPeer, s.setUp, s.hook, s.atEnd = failure{}, none, false, nil, nil
	s.isChecked, s.check = false, checking{}
	s.probed, s.wasIdle = s.probed[:0], false
	if len(t.idle) >= idleWithMemory {
		s.words = nil
	}
	if len(t.idle) < mostIdle {
		t.idle = append(t.idle, s)
	} else {
		s.Unbind()
	}
}

// mostIdle is how many schedules a team keeps for later collectives, and idleWithMemory how many of
// them with their temporary memory.
const mostIdle, idleWithMemory = 16, 2
