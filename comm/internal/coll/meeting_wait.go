package coll

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/mpigo/mpigo/request"
)

// Waiting in meetings.
//
// A rank that waits polls the area, as any wait polls its transports. When it is about to sleep, it
// posts a receive from each rank that it may wait for, under a tag that no message has (watchTag).
// These receives fail if the rank is lost, and mismatch probes and deadlock reports go by them.
// When the wait is over, they are cancelled.

// isReady reports whether what the rank waits for has come.
func (m *meeting) isReady() bool {
	v := atomic.LoadUint64(m.word)
	return v == m.target || m.orMore && v > m.target
}

// awaitMeeting waits until the meeting can go on, or has failed.
func (s *Schedule) awaitMeeting(ctx context.Context) error {
	m, t := &s.meeting, s.team
	eng := t.p.Engine()
	if !m.watch {
		m.spin = 1
		empty := eng.Spin(&m.spin, m)
		if m.spin == 0 || s.next >= len(s.steps) {
			return nil
		}
		m.waiter.Reset(1)
		m.wait = true
		s.beginWait()
		err := eng.WaitOn(ctx, &m.waiter, empty)
		s.endWait()
		m.wait = false
		if err != nil || !m.watch {
			return err
		}
	}
	m.watch = false
	return s.watchRanks(ctx)
}

// beginWait has the hub poll the area for the meeting until endWait.
func (s *Schedule) beginWait() {
	s.team.hub.add(s)
	if s.meeting.orMore {
		s.team.area.needRoom(true)
	}
}

func (s *Schedule) endWait() {
	s.team.hub.remove(s)
	if s.meeting.orMore && s.team.area != nil {
		s.team.area.needRoom(false)
	}
}

// Look implements progress.Ahead.
func (m *meeting) Look() (events int, able bool) {
	const looks = 32
	for range looks {
		if m.isReady() {
			m.spin = 0
			return 1, true
		}
	}
	return 0, true
}

// poll ends the wait if it is over, and returns the number of events.
func (m *meeting) poll() int {
	if m.word == nil {
		return 0
	}
	isOver := m.isReady()
	for _, r := range m.watches {
		isOver = isOver || r.req.State() != request.Active
	}
	if !isOver {
		return 0
	}
	m.interrupt()
	return 1
}

// interrupt ends the wait, and lets the meeting look again.
func (m *meeting) interrupt() {
	if m.wait && !m.waiter.Done() {
		m.waiter.Finish()
	}
	for _, r := range m.watches {
		r.req.Cancel()
	}
}

// watchSoon is called when the rank is about to sleep. A meeting that waits then posts receives.
func (s *Schedule) watchSoon() {
	if m := &s.meeting; m.wait && !m.waiter.Done() {
		m.watch = true
		m.waiter.Finish()
	}
}

// watchRanks waits as awaitMeeting, with a receive from each rank that the collective may wait for.
func (s *Schedule) watchRanks(ctx context.Context) error {
	m, t := &s.meeting, s.team
	if err := s.checkComers(); err != nil {
		return err
	}
	s.beginWait()
	defer func() {
		s.endWait()
		for _, r := range m.watches { // after an error: Schedule.giveUp waits for them
			r.req.Cancel()
		}
	}()
	for number, rank := range t.local {
		if s.mayAwait(number) {
			r := t.p.Irecv(t.ctx, nil, 1, rank, s.tag|watchTag, s.call)
			m.watches = append(m.watches, postedRecv{r, rank, 0})
		}
	}
	m.poll() // a receive may have ended at once
	for len(m.watches) > 0 {
		last := len(m.watches) - 1
		r := m.watches[last]
		if err := r.req.Await(ctx); err != nil {
			return err
		}
		m.watches = m.watches[:last]
		st, err := r.req.Take()
		switch {
		case err == nil && st.Cancelled, !s.mayAwaitRank(r.peer):
		case err == nil, errors.Is(err, request.ErrTruncate):
			return s.otherCall(r.peer) // nobody sends that
		default:
			return s.badMessage(r, st, err)
		}
	}
	return nil
}

// mayAwait reports whether the meeting may wait for a rank of the area now. One that has come may
// have gone on.
func (s *Schedule) mayAwait(number int) bool {
	m, a := &s.meeting, s.team.area
	stamp := m.stamp
	switch {
	case number == a.self, m.word == nil, m.isReady():
		return false
	case m.from != anyRank:
		return number == m.from
	case m.phase == meetingParts:
		stamp++
	}
	// A rank that has come with another call is not counted, and says so when it is asked.
	if !a.hasCome(number, stamp) || !m.checked && a.signature(number, stamp) != s.signature() {
		return true
	}
	// If all have come, it waits for the one that has been the last.
	for other := range a.ranks {
		if !a.hasCome(other, stamp) {
			return false
		}
	}
	return m.phase == meetingDone
}

// mayAwaitRank is mayAwait for a rank of the team.
func (s *Schedule) mayAwaitRank(rank int) bool { return s.mayAwait(slices.Index(s.team.local, rank)) }
