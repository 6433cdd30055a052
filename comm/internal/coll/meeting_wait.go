package coll

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/mpigo/mpigo/comm/internal/area"
	"github.com/mpigo/mpigo/progress"
	"github.com/mpigo/mpigo/request"
)

// Waiting in meetings.
//
// A rank that waits polls the area, as any wait polls its transports. When it is about to sleep, it
// posts a receive from each rank that it may wait for, under a tag that no message has (watchTag).
// A watch receive fails if that rank is lost, and mismatch probes and deadlock reports use it. The
// end of the wait cancels it.
//
// A blocking call waits in its goroutine. A start of a persistent collective waits as if for
// messages (launch.go): it is queued in the engine.

// isReady reports whether the wait is over.
func (m *meeting) isReady() bool {
	v := atomic.LoadUint64(m.word)
	return v == m.target || m.orMore && area.IsAfter(v, m.target)
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
		if err := eng.WaitFor(ctx, (*change)(s), empty); err != nil {
			return s.stopped(ctx, none, err)
		}
		if !m.watch {
			return nil
		}
	}
	m.watch = false
	return s.watchRanks(ctx)
}

// change is a Schedule as a condition: a change of shared memory lets the meeting go on.
type change Schedule

// Watch implements progress.Condition.
func (c *change) Watch(w *progress.Waiter) {
	c.meeting.waiter = w
	(*Schedule)(c).beginWait()
}

// Unwatch implements progress.Condition.
func (c *change) Unwatch(*progress.Waiter) {
	(*Schedule)(c).endWait()
	c.meeting.waiter = nil
}

// beginWait makes the hub poll the area for the meeting until endWait.
func (s *Schedule) beginWait() {
	s.team.hub.add(s)
	if s.meeting.orMore {
		s.area.NeedRoom(true)
	}
}

// endWait undoes beginWait, if that was called.
func (s *Schedule) endWait() {
	if s.team.hub.remove(s) && s.meeting.orMore && s.area != nil {
		s.area.NeedRoom(false)
	}
}

// Look implements progress.Ahead.
func (m *meeting) Look() (events int, able bool) {
	if m.looks() {
		m.spin = 0
		return 1, true
	}
	return 0, true
}

// looks is isReady, for a fraction of a microsecond.
func (m *meeting) looks() bool {
	const looks = 32
	for range looks {
		if m.isReady() {
			return true
		}
	}
	return false
}

// pollMeeting ends the wait of the meeting if it is over, and returns the number of events.
func (s *Schedule) pollMeeting() int {
	m := &s.meeting
	switch {
	case s.isInline:
		return m.poll()
	case m.word == nil || !m.isReady():
		return 0
	}
	s.team.p.Engine().Queue((*task)(s))
	return 1
}

// poll is pollMeeting of a blocking call.
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

// interrupt ends the wait, so that the meeting looks again.
func (m *meeting) interrupt() {
	if m.waiter != nil && !m.waiter.Done() {
		m.waiter.Finish()
	}
	for _, r := range m.watches {
		r.req.Cancel()
	}
}

// watchSoon is called when the rank is about to sleep while the meeting waits. The meeting then
// posts its watch receives.
func (s *Schedule) watchSoon() {
	switch m := &s.meeting; {
	case !s.isInline:
		if !m.watch && len(m.watches) == 0 {
			m.watch = true
			s.team.p.Engine().Queue((*task)(s))
		}
	case m.waiter != nil && !m.waiter.Done():
		m.watch = true
		m.waiter.Finish()
	}
}

// watchNow posts the watch receives of a start of a persistent collective, if watchSoon has asked
// for them. It reports false if the wait may be over, and the meeting has to go on.
func (s *Schedule) watchNow() bool {
	m := &s.meeting
	if !m.watch {
		return false
	}
	m.watch = false
	if m.word == nil || m.isReady() || s.failed() != nil {
		return false
	}
	s.postWatches()
	for _, r := range m.watches {
		if r.req.State() != request.Active {
			return false
		}
	}
	s.watch(1)
	return true
}

// postWatches posts a receive from each rank that the meeting may wait for.
func (s *Schedule) postWatches() {
	m, t := &s.meeting, s.team
	for number, rank := range t.local {
		if s.mayAwait(number) {
			r := t.p.Irecv(t.ctx, nil, 1, rank, s.tag|watchTag, s.id.String())
			m.watches = append(m.watches, postedRecv{r, rank, 0})
		}
	}
}

// endWatches cancels the watch receives, and returns how many of them are still active. An error is
// that of a rank which the meeting waits for; the other receives then remain.
func (s *Schedule) endWatches() (active int, err error) {
	m := &s.meeting
	for _, r := range m.watches {
		if r.req.Cancel(); r.req.State() == request.Active || err != nil {
			m.watches[active] = r
			active++
			continue
		}
		err = s.endWatch(r)
	}
	m.watches = m.watches[:active]
	return active, err
}

// endWatch takes a watch receive that is complete.
func (s *Schedule) endWatch(r postedRecv) error {
	st, err := r.req.Take()
	switch {
	case err == nil && st.Cancelled, !s.mayAwaitRank(r.peer):
		return nil
	case err == nil, errors.Is(err, request.ErrTruncate):
		return s.otherCall(r.peer) // no message has this tag
	}
	return s.badMessage(r, st, err)
}

// watchRanks waits as awaitMeeting, with a receive from each rank that the collective may wait for.
func (s *Schedule) watchRanks(ctx context.Context) error {
	m := &s.meeting
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
	s.postWatches()
	m.poll() // a receive may have ended at once
	for len(m.watches) > 0 {
		last := len(m.watches) - 1
		r := m.watches[last]
		if err := r.req.Await(ctx); err != nil {
			return s.stopped(ctx, r.peer, err)
		}
		m.watches = m.watches[:last]
		if err := s.endWatch(r); err != nil {
			return err
		}
	}
	return nil
}

// mayAwait reports whether the meeting may wait for a rank of the area now. One that has come may
// have gone on.
func (s *Schedule) mayAwait(number int) bool {
	m, a := &s.meeting, s.area
	stamp := m.stamp
	switch {
	case m.word == nil, m.isReady(), number == a.Self:
		return false
	case m.from != anyRank:
		return number == m.from
	case m.phase == meetingParts:
		stamp++
	}
	// A rank that has come with another call is not counted, and answers a probe.
	if !a.HasCome(number, stamp) || !m.checked && signatureIn(a, number, stamp) != s.signature() {
		return true
	}
	// If all have come, it waits for the last one to come.
	for other := range a.Ranks {
		if !a.HasCome(other, stamp) {
			return false
		}
	}
	return m.phase == meetingDone
}

// mayAwaitRank is mayAwait for a rank of the team.
func (s *Schedule) mayAwaitRank(rank int) bool { return s.mayAwait(slices.Index(s.team.local, rank)) }
