package coll

import (
	"context"

	"github.com/mpigo/mpigo/progress"
	"github.com/mpigo/mpigo/request"
)

// Nonblocking calls, and starts of persistent ones, run in the progress calls of any goroutine.
// When all posted operations have ended, the schedule is queued in the engine, and goes on at the
// end of the turn. So a step never runs inside another one, or inside a transport.

// task is a Schedule as a task of the engine.
type task Schedule

var (
	_ request.Operation = (*Schedule)(nil)
	_ progress.Task     = (*task)(nil)
	_ progress.Ahead    = (*Schedule)(nil)
)

// Launch begins a nonblocking collective and returns its request. The engine then owns the
// schedule. If ctx, which may be nil, has ended, the collective is given up.
func (s *Schedule) Launch(ctx context.Context) (request.Request, error) {
	if err := s.admit(ctx); err != nil {
		return request.Request{}, err
	}
	s.isInline = false
	s.Activate()
	r := s.Handle()
	s.team.answerProbes(s)
	s.move(phaseRunning)
	s.advance()
	return r, nil
}

// Run implements progress.Task: the operations that the schedule waited for have ended, or one has
// failed. It may also be queued without need.
func (k *task) Run() {
	switch s := (*Schedule)(k); s.phase {
	case phaseWaiting:
		if !s.watchNow() {
			s.goOnWaiting()
		}
	case phaseFailing:
		s.unwatch()
		s.drain()
	}
}

// goOnWaiting looks whether a wait is over, and goes on.
func (s *Schedule) goOnWaiting() {
	s.meeting.watch = false // if it was to post receives, which is too late now
	s.unwatch()
	s.endWait()
	s.move(phaseRunning)
	s.advance()
}

// advance runs the steps until one has to wait.
func (s *Schedule) advance() {
	err := s.failed()
	for err == nil {
		var active int
		if active, err = s.collect(); err != nil {
			break
		}
		if active > 0 {
			s.move(phaseWaiting)
			s.watch(active)
			s.markActive()
			return
		}
		var waiting bool
		if waiting, err = s.post(); err != nil {
			break
		}
		if !waiting {
			err = s.failed()
			break
		}
		if s.meeting.word != nil && !s.isOutstanding() {
			if s.team.hub.closed { // the hub does not poll the area any more
				err = errAreaGone
				break
			}
			s.move(phaseWaiting)
			s.beginWait()
			s.markActive()
			s.pollMeeting() // a rank may have seen, just before, that no rank waits
			return
		}
	}
	if err == nil && s.atEnd != nil {
		err = s.atEnd()
	}
	if err == nil {
		s.complete(nil)
		return
	}
	s.cause = s.explain(err)
	s.revokeFor(s.cause)
	s.move(phaseFailing)
	s.drain()
}

// Look implements progress.Ahead. If the collective waits only for one message, or for a change of
// shared memory, a call that waits for the collective looks for that, and runs the next steps at
// once.
func (s *Schedule) Look() (events int, able bool) {
	switch {
	case s.phase != phaseWaiting:
		return 0, false
	case s.meeting.word != nil && !s.isOutstanding():
		if !s.meeting.looks() {
			return 0, true
		}
		s.goOnWaiting()
		return 1, true
	case len(s.recvs) != 1 || len(s.sends) > 0:
		return 0, false
	}
	r := s.recvs[0].req
	if r.State() != request.Active {
		return 0, true // the schedule is queued
	}
	r.Unwatch(&s.wakes)
	if events, able = r.Look(); events == 0 {
		r.Watch(&s.wakes)
		return 0, able
	}
	s.move(phaseRunning)
	s.advance()
	return events, true
}

// markActive makes the rank progress for the collective until unmarkActive.
func (s *Schedule) markActive() {
	if !s.isActive {
		s.isActive = true
		s.team.hub.active++
		s.team.hub.background(s.agreed)
	}
}

func (s *Schedule) unmarkActive() {
	if s.isActive {
		s.isActive = false
		s.team.hub.active--
	}
}

// interrupt ends the steps of a collective that has just failed. A goroutine in the call gives up
// by itself, and then waits for arriving messages, and for devices that still read buffers.
func (s *Schedule) interrupt() {
	s.abandonSends()
	s.next = len(s.steps)
	s.meeting.interrupt()
	if s.phase == phaseWaiting {
		s.team.p.Engine().Queue((*task)(s))
	}
}

// collect removes the operations that have ended, and returns how many have not. After an error the
// rest remains.
func (s *Schedule) collect() (active int, err error) {
	watches, err := s.endWatches()
	for _, r := range s.recvs {
		if r.req.State() == request.Active || err != nil {
			s.recvs[active] = r
			active++
			continue
		}
		st, e := r.req.Take()
		if e != nil || st.Bytes != int64(r.room) {
			err = s.badMessage(r, st, e)
		}
	}
	s.recvs = s.recvs[:active]
	left := 0
	for _, r := range s.sends {
		if r.State() == request.Active || err != nil {
			s.sends[left] = r
			left++
			continue
		}
		if _, err = r.Take(); err != nil {
			s.failedPeer = r.Dest()
		}
	}
	clear(s.sends[left:])
	s.sends = s.sends[:left]
	return watches + active + left, err
}

// watch makes the schedule run when all active operations have ended, or one has failed.
func (s *Schedule) watch(active int) {
	s.wakes.ResetTask(active, s.team.p.Engine(), (*task)(s))
	s.eachPosted(func(o *request.Object) { o.Watch(&s.wakes) })
}

// unwatch undoes watch for operations that are still active.
func (s *Schedule) unwatch() {
	s.eachPosted(func(o *request.Object) { o.Unwatch(&s.wakes) })
}

func (s *Schedule) eachPosted(f func(o *request.Object)) {
	for _, r := range s.recvs {
		f(&r.req.Object)
	}
	for _, r := range s.meeting.watches {
		f(&r.req.Object)
	}
	for _, r := range s.sends {
		f(&r.Object)
	}
	for _, d := range s.lent {
		f(&d.Object)
	}
}

// drain completes a failed schedule as soon as its buffers are unused: when arriving messages have
// ended, and no device reads a buffer.
func (s *Schedule) drain() {
	for _, r := range s.meeting.watches {
		r.req.Cancel()
	}
	active := 0
	for _, list := range []*[]postedRecv{&s.recvs, &s.meeting.watches} {
		n := 0
		for _, r := range *list {
			if r.req.State() == request.Active {
				(*list)[n] = r
				n++
			} else {
				r.req.Abandon()
			}
		}
		*list = (*list)[:n]
		active += n
	}
	left := 0
	for _, d := range s.lent {
		if d.State() == request.Active {
			s.lent[left] = d
			left++
		} else {
			d.Abandon()
		}
	}
	clear(s.lent[left:])
	s.lent = s.lent[:left]
	if active+left == 0 {
		s.complete(s.cause)
		return
	}
	s.watch(active + left)
}

// complete ends a nonblocking collective, or a start of a persistent one.
func (s *Schedule) complete(err error) {
	s.cause = nil
	s.unmarkActive()
	s.move(phaseOver)
	if s.how == Persistent {
		s.endMeetings()
		if s.area != nil {
			s.keepTemp()
		}
		s.move(phaseReady)
		if s.team.hub.closed {
			s.dropArea()
		}
	} else {
		s.end()
	}
	s.Complete(request.Empty(), err)
}

// Release implements request.Operation.
func (s *Schedule) Release() {
	if s.how == Persistent {
		s.free()
	}
	s.recycle()
}

// Cancel implements request.Operation. It is never called: see request.Object.MustEnd.
func (s *Schedule) Cancel() {}

// Describe implements request.Operation.
func (s *Schedule) Describe(err error) error { return s.describe(err) }
