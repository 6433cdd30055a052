package coll

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/mpigo/mpigo/progress"
	"github.com/mpigo/mpigo/request"
)

// A meeting is a collective through the team's area. It is a single step, which goes on
// each time the area has changed.
//
//	short  Each rank puts its contribution into the area and arrives. The last one to arrive
//	       combines all of them, puts the result there, and releases the others, which copy it.
//	long   Each rank puts its contribution into the area and arrives. When all have, each rank
//	       combines a range of all contributions, puts that part of the result there, and arrives
//	       again. When all have, each rank copies the other parts. A vector that is longer than a
//	       cell goes in blocks.
//
// Contributions are combined as by the schedules with messages (combining), so the results do not
// depend on who arrives first, nor on whether there is an area.
//
// A rank may write to its cell again when all ranks have read it: that is so once they have been
// released from a short collective, or have arrived a second time for a block of a long one. The
// result may be written again when all ranks have copied it: that is so once they have arrived for
// the next collective or block.
//
// # Waiting
//
// A rank that waits polls the area, as any wait polls its transports. When it is about to sleep, it
// posts a receive from each rank that it may wait for, under a tag that no message has (watchTag).
// These receives fail if the rank is lost, and mismatch probes and deadlock reports go by them.
// When the wait is over, they are cancelled.
type meeting struct {
	call    meetingCall
	in, out []byte // of the call; in is nil for in place
	phase   meetingPhase
	at      int // the first byte of the block

	// What the rank waits for: *word ≥ target.
	word    *uint64
	target  uint64
	isFirst bool // for the first time in the collective

	spin     int32 // 1 while it is waited for in Engine.Spin
	waiter   progress.Waiter
	wait     bool // with waiter
	watch    bool // a receive from each rank is to be posted
	watching bool // they are
}

type meetingCall uint8

const (
	meetNowhere meetingCall = iota
	meetBarrier
	meetAllreduce // short
	meetAllreduceLong
)

type meetingPhase uint8

const (
	meetingArrive   meetingPhase = iota
	meetingReleased              // waits for the result of a short collective
	meetingAll                   // waits until all have arrived with a block
	meetingParts                 // waits until all have combined their parts of a block
)

var errArrivals = errors.New("a rank has written to the memory that the ranks share what cannot be right")

// meet adds the step of a meeting. A schedule has at most one, and no message before it.
func (s *Schedule) meet(call meetingCall, in, out []byte) {
	s.add(stepMeet, 0, in, out)
	m := &s.meeting
	m.call, m.in, m.out, m.phase, m.at, m.isFirst = call, in, out, meetingArrive, 0, true
}

// goOn does what can be done of a meeting without waiting, and reports whether it is over. If the
// area turns out to be poisoned, it makes the schedule the one with messages.
func (s *Schedule) goOn() (done bool, err error) {
	m := &s.meeting
	for {
		if m.phase != meetingArrive && !m.isReady() || m.isFirst && m.phase == meetingArrive && s.team.area.isPoisoned() {
			if m.isFirst && s.team.area.isPoisoned() {
				s.useMessages()
			}
			return false, nil
		}
		switch m.phase {
		case meetingArrive:
			done, err = s.arrive()
			if m.call == meetNowhere {
				return false, nil
			}
		case meetingReleased:
			m.isFirst = false
			copy(m.out, s.shortResult())
			done = true
		case meetingAll:
			if m.isFirst {
				if ok, err := s.checkCalls(); !ok {
					return false, err
				}
			}
			m.isFirst = false
			err = s.combineRange()
		case meetingParts:
			done = s.copyParts()
		}
		if err == nil {
			err = s.failed()
		}
		if done || err != nil {
			s.team.p.Engine().CountCompletion(err != nil)
			m.word = nil
			return done, err
		}
	}
}

// useMessages replaces the meeting by steps that send messages. Nothing of the call's buffers has
// changed yet.
func (s *Schedule) useMessages() {
	m := &s.meeting
	call, in, out := m.call, m.in, m.out
	s.endMeeting()
	s.team.dropArea()
	later := slices.Clone(s.steps[s.next+1:])
	s.steps = s.steps[:s.next]
	if call == meetBarrier {
		s.barrierByMessages()
	} else {
		s.allreduceByMessages(in, out)
	}
	if len(later) > 0 {
		later[0].waits = true
	}
	s.steps = append(s.steps, later...)
}

// endMeeting forgets the meeting, and the user's buffers.
func (s *Schedule) endMeeting() {
	m := &s.meeting
	m.call, m.in, m.out, m.word = meetNowhere, nil, nil, nil
}

// arrive puts the rank's contribution to a block into the area, and arrives. The last rank
// completes a short collective.
func (s *Schedule) arrive() (done bool, err error) {
	m, a := &s.meeting, s.team.area
	if m.call == meetAllreduceLong {
		a.take(s.blockLen())
	} else if len(m.out) > smallBytes {
		a.take(len(m.out))
	}
	if m.isFirst {
		a.describe(s.rank, s.seq, s.signature())
	}
	switch {
	case m.call == meetBarrier:
	case m.call == meetAllreduce:
		copy(s.contribution(s.rank), m.have())
	default:
		s.putBlock()
	}
	all, last, ok := a.arrive()
	switch {
	case !ok:
		return false, errArrivals
	case m.call == meetAllreduceLong:
		m.word, m.target, m.phase = a.arrived, all, meetingAll
		if last {
			s.team.wake()
		}
		return false, nil
	case !last:
		m.word, m.target, m.phase = a.released, all, meetingReleased
		return false, nil
	}
	if ok, err := s.checkCalls(); !ok {
		return false, err
	}
	m.isFirst = false
	if m.call == meetAllreduce {
		if err := s.combineShort(); err != nil {
			return false, err
		}
	}
	atomic.StoreUint64(a.released, all)
	s.team.wake()
	return true, nil
}

// have is this rank's contribution.
func (m *meeting) have() []byte {
	if m.in == nil {
		return m.out
	}
	return m.in
}

// isReady reports whether what the rank waits for has come.
func (m *meeting) isReady() bool { return int64(atomic.LoadUint64(m.word)-m.target) >= 0 }

// checkCalls compares this rank's call with those of the others, which have arrived. It reports
// whether the collective can go on.
//
// Another rank may be in a later collective, because it has taken another call for this one: then
// the calls differ. Or it is in an earlier one, for which it took another call than this rank did.
// That collective fails there, and this one goes by messages.
func (s *Schedule) checkCalls() (ok bool, err error) {
	t, ours, isBehind := s.team, s.signature(), false
	for rank := range s.size {
		seq, theirs := t.area.call(rank)
		switch {
		case seq == uint64(s.seq) && theirs == ours:
			continue
		case seq >= SequenceNumbers:
			return false, errArrivals
		case distance(s.seq, int(seq)) < 0:
			isBehind = true
			continue
		case distance(s.seq, int(seq)) > 0:
			theirs = Signature{}
		}
		s.compare(probe{rank: rank, seq: s.seq, signature: theirs}, ours)
		return false, s.failed()
	}
	if isBehind {
		t.tellPoisoned()
		s.useMessages()
	}
	return !isBehind, nil
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
		t.hub.add(s)
		err := eng.WaitOn(ctx, &m.waiter, empty)
		t.hub.remove(s)
		m.wait = false
		if err != nil || !m.watch {
			return err
		}
	}
	m.watch = false
	return s.watchRanks(ctx)
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
func (m *meeting) poll(s *Schedule) int {
	a := s.team.area
	if m.word == nil || a == nil {
		return 0
	}
	isOver := m.isReady() || m.isFirst && a.isPoisoned()
	if m.watching {
		for _, r := range s.recvs {
			isOver = isOver || r.req.State() != request.Active
		}
	}
	if !isOver {
		return 0
	}
	m.interrupt(s)
	return 1
}

// interrupt ends the wait, and lets the meeting look again.
func (m *meeting) interrupt(s *Schedule) {
	if m.wait && !m.waiter.Done() {
		m.waiter.Finish()
	}
	if m.watching {
		for _, r := range s.recvs {
			r.req.Cancel()
		}
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
	m.watching = true
	t.hub.add(s)
	defer func() {
		t.hub.remove(s)
		m.watching = false
		for _, r := range s.recvs { // after an error: Schedule.giveUp waits for them
			r.req.Cancel()
		}
	}()
	isMissing := func(rank int) bool { return t.area.seq(rank) != uint64(s.seq) }
	someMissing := false
	for rank := range s.size {
		someMissing = someMissing || m.isFirst && isMissing(rank)
	}
	for rank := range s.size {
		if rank != s.rank && (!someMissing || isMissing(rank)) {
			r := t.p.Irecv(t.ctx, nil, 1, rank, s.tag|watchTag, s.call)
			s.recvs = append(s.recvs, postedRecv{r, rank, 0})
		}
	}
	m.poll(s) // a receive may have ended at once
	for len(s.recvs) > 0 {
		last := len(s.recvs) - 1
		r := s.recvs[last]
		if err := r.req.Await(ctx); err != nil {
			return err
		}
		s.recvs = s.recvs[:last]
		st, err := r.req.Take()
		switch {
		case err == nil && st.Cancelled:
		case err == nil, errors.Is(err, request.ErrTruncate):
			return s.otherCall(r.peer) // nobody sends that
		default:
			return s.badMessage(r, st, err)
		}
	}
	return nil
}
