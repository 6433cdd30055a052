package coll

import (
	"errors"

	"github.com/mpigo/mpigo/comm/internal/area"
	"github.com/mpigo/mpigo/progress"
)

// A meeting is a step of a schedule in which the ranks of the team's area work together. It goes on
// each time the area has changed. It takes one or two rounds for each block of the buffers.
//
//	barrier    Each rank comes to the round. The last one to come says so.
//	allreduce  Short: each rank puts its contribution into the area. The last one to come combines
//	           all of them, and puts the result there. Long: when all have come, each rank combines
//	           a range of all contributions, and comes to a second round. When all have, each rank
//	           copies the other ranges. If these go to other hosts in between, there are two
//	           meetings: to combine ranges, and to gather them.
//	reduce     Only the root waits. It combines the contributions of a short vector, and the others
//	           go on. A long one is combined by all ranks, as by allreduce.
//	bcast      The root puts the block into the area and goes on. The others copy it.
//	allgather  Each rank puts its part into the area. When all have come, each copies all parts.
//	alltoall   The same with a part for each rank, of which each rank copies its own.
//
// The last rank to come works for all: ranks that share processor cores run one after the other,
// and so each has to run only once. If there are few ranks (Tuning.SharedFewRanks), each reads the
// slots of all others, and no rank is counted: that takes fewer transfers of cache lines. Ranks
// with short contributions need no schedule for that (short.go).
//
// A rank that writes to the area waits for others only if it is RoundsAhead rounds ahead, or has no
// room.
//
// Contributions are combined as by the schedules with messages (combine.go). So the results do not
// depend on the order of arrival, or on whether there is an area.
type meeting struct {
	meet
	phase   meetingPhase
	at      int // the first byte of the block
	rounds  int // of the schedule so far
	stamp   uint64
	checked bool // that all ranks have made the same call

	// The rank waits until rank from, or anyRank, has stored target into *word, or a later value if
	// orMore.
	word   *uint64
	target uint64
	orMore bool
	from   int

	spin    int32            // 1 while it is waited for in Engine.Spin
	waiter  *progress.Waiter // of the goroutine that waits for it then, or nil
	watch   bool             // a receive from each rank is to be posted
	watches []postedRecv     // these receives
}

// meet describes a meeting. Ranks are numbers in the area.
type meet struct {
	kind *meetingKind
	// in and out are the buffers of the call; in is nil for in place. in is a bcast's at the root,
	// and out at the other ranks.
	in, out []byte
	root    int // of reduce and bcast
	order   order
	// byMessages, of a persistent collective, adds steps with messages in place of the meeting.
	byMessages func(s *Schedule, m *meet)
}

// buffer is the buffer of a bcast.
func (m *meet) buffer() []byte {
	if m.in != nil {
		return m.in
	}
	return m.out
}

type meetingPhase uint8

const (
	meetingCome  meetingPhase = iota // to the round of the next block
	meetingDone                      // waits for the rank that is last
	meetingAll                       // waits until all have come
	meetingParts                     // waits until all have come to the second round of a block
	meetingData                      // waits for the root's block
)

// anyRank: a wait may be for every rank that has not come.
const anyRank = -1

var (
	errAreaWrong  = errors.New("a rank has written invalid data to the shared memory")
	errAreaGone   = errors.New("the job has ended")
	errManyRounds = errors.New("the buffers are too long for the memory that the ranks share: raise coll.shared.bytes, or set it to 0")
)

// meet adds the step of a meeting.
func (s *Schedule) meet(m meet) {
	s.add(stepMeet, len(s.meets), nil, nil)
	s.meets = append(s.meets, m)
}

// goOn advances a meeting without waiting, and reports whether it is over.
func (s *Schedule) goOn(index int) (done bool, err error) {
	m := &s.meeting
	if s.area == nil {
		return false, errAreaGone
	}
	if m.kind == nil {
		m.meet, m.phase, m.at = s.meets[index], meetingCome, 0
	}
	for {
		if m.word != nil && !m.isReady() {
			return false, nil
		}
		m.word = nil
		switch m.phase {
		case meetingCome:
			done, err = s.come()
		case meetingDone:
			done, err = true, s.takeResult()
		case meetingAll:
			if s.isMissing(m.stamp) {
				continue
			}
			done, err = s.allHere()
		case meetingParts:
			if s.isMissing(m.stamp + 1) {
				continue
			}
			done = m.kind.parts(s)
		case meetingData:
			done, err = s.takeBlock()
		}
		if err == nil {
			err = s.failed()
		}
		if done || err != nil {
			s.team.p.Engine().CountCompletion(err != nil)
			m.meet, m.word = meet{}, nil
			return done, err
		}
	}
}

// endMeetings ends the meetings of a call or a start: this rank reads nothing of them any more.
func (s *Schedule) endMeetings() {
	m := &s.meeting
	if m.rounds > 0 && s.area != nil {
		s.area.PassRounds(area.Stamp(s.inArea()+1, 0))
	}
	m.meet, m.word, m.rounds, m.checked, m.watch = meet{}, nil, 0, false, false
}

// inArea is the number in the stamps of the schedule's rounds.
func (s *Schedule) inArea() uint64 {
	if s.isKept() {
		return s.starts
	}
	return s.count
}

// await makes the meeting wait until *word is target.
func (m *meeting) await(phase meetingPhase, word *uint64, target uint64, from int) {
	m.phase, m.word, m.target, m.orMore, m.from = phase, word, target, false, from
}

// come comes to the round of the next block, with this rank's data.
func (s *Schedule) come() (done bool, err error) {
	m, a := &s.meeting, s.area
	if m.rounds >= area.MostRound { // a block may have a second round
		return false, errManyRounds
	}
	stamp := area.Stamp(s.inArea(), uint64(m.rounds))
	s.area.PassRounds(stamp)
	puts := m.kind.awaits != awaitRoot || a.Self == m.root
	bytes := s.blockLen()
	if m.kind.putBytes != nil {
		bytes = m.kind.putBytes(s)
	}
	isPut := a.IsPut(stamp)
	if puts && !isPut {
		if rank, until := a.Reserve(stamp, bytes); rank != area.Nobody {
			m.await(meetingCome, a.Passed(rank), until+1, rank)
			m.orMore = true
			return false, nil
		}
	}
	m.stamp = stamp
	m.rounds++
	if !puts {
		m.await(meetingData, a.Published(m.root, stamp), stamp, m.root)
		return false, nil
	}
	if !isPut {
		m.kind.put(s, a.Place(stamp, bytes))
		sign := s.signature()
		sign.append(a.Sign(stamp))
	}
	if m.kind.awaits == awaitRoot {
		a.Publish(stamp)
		s.area.Wake()
		return m.advance(s.blockLen(), s.length()), nil
	}
	if s.isFew() {
		return s.comeAmongFew()
	}
	last, ok := a.Arrive(stamp)
	switch {
	case !ok:
		return false, errAreaWrong
	case m.kind.awaits != awaitLast:
		if last {
			s.area.Wake()
		}
		if m.kind.awaits == rootAwaits && a.Self != m.root {
			return m.advance(s.blockLen(), s.length()), nil
		}
		m.await(meetingAll, a.Count(stamp), a.AllCounted(stamp), anyRank)
		return false, nil
	case !last:
		m.await(meetingDone, a.Done(stamp), stamp, anyRank)
		return false, nil
	}
	return s.doForAll()
}

// isFew reports whether the ranks of the area are so few that each reads the slots of all others.
func (s *Schedule) isFew() bool { return s.area.Ranks <= s.tuning.SharedFewRanks }

// comeAmongFew comes to a round in which no rank is counted, after this rank has filled its slot.
func (s *Schedule) comeAmongFew() (done bool, err error) {
	m, a := &s.meeting, s.area
	missing := s.publishAmongFew(m.stamp)
	switch {
	case m.kind.awaits == rootAwaits && a.Self != m.root:
		return m.advance(s.blockLen(), s.length()), nil
	case missing != area.Nobody:
		m.await(meetingAll, a.Published(missing, m.stamp), m.stamp, anyRank)
		return false, nil
	}
	return s.allHere()
}

// publishAmongFew publishes that this rank has come to a round, and wakes the others if all have. A
// rank publishes before it looks, so at least the last one sees all others. missing is a rank that
// has not come, or area.Nobody.
func (s *Schedule) publishAmongFew(stamp uint64) (missing int) {
	a := s.area
	a.Publish(stamp)
	if missing = a.Missing(stamp); missing == area.Nobody {
		s.area.Wake()
	}
	return missing
}

// isMissing makes the meeting wait for the next of few ranks that has not come to a round. It
// reports false if there is none.
func (s *Schedule) isMissing(stamp uint64) bool {
	m, a := &s.meeting, s.area
	if !s.isFew() {
		return false // all were counted
	}
	missing := a.Missing(stamp)
	if missing != area.Nobody {
		m.await(m.phase, a.Published(missing, stamp), stamp, anyRank)
	}
	return missing != area.Nobody
}

// advance goes on to the next block, and reports whether there is none.
func (m *meeting) advance(bytes, length int) (done bool) {
	m.at += bytes
	m.phase = meetingCome
	return m.at >= length
}

// doForAll completes a barrier or a short allreduce for all ranks, of which this is the last.
func (s *Schedule) doForAll() (done bool, err error) {
	m, a := &s.meeting, s.area
	a.AllArrived(m.stamp)
	if err := s.checkCalls(); err != nil {
		return false, err
	}
	if m.kind.forAll != nil {
		if err := m.kind.forAll(s); err != nil {
			return false, err
		}
	}
	a.Finish(m.stamp)
	s.area.Wake()
	return true, nil
}

// takeResult copies the result that another rank has made.
func (s *Schedule) takeResult() error {
	m, a := &s.meeting, s.area
	a.AllArrived(m.stamp)
	result, ok := a.Result(m.stamp, len(m.out))
	if !ok {
		return errAreaWrong
	}
	copy(m.out, result)
	return nil
}

// allHere goes on when all ranks have come to the first round of a block.
func (s *Schedule) allHere() (done bool, err error) {
	m, a := &s.meeting, s.area
	a.AllArrived(m.stamp)
	if err := s.checkCalls(); err != nil {
		return false, err
	}
	return m.kind.allHere(s)
}

// takeBlock copies a block of the root.
func (s *Schedule) takeBlock() (done bool, err error) {
	m, a := &s.meeting, s.area
	if !m.checked {
		m.checked = true
		if err := s.checkCall(m.root, s.signature()); err != nil {
			return false, err
		}
	}
	n := s.blockLen()
	s.doCopy(m.out[m.at:][:n], a.At(m.root, m.stamp, n))
	if done = m.advance(n, s.length()); !done {
		s.area.PassRounds(m.stamp + 1)
	}
	return done, nil
}

// checkCalls compares this rank's call with those of the others, which have come to the first round
// of the collective.
func (s *Schedule) checkCalls() error {
	m := &s.meeting
	if m.checked {
		return nil
	}
	m.checked = true
	ours := s.signature()
	for rank := range s.area.Ranks {
		if err := s.checkCall(rank, ours); err != nil {
			return err
		}
	}
	return nil
}

// checkComers compares this rank's call with those of the ranks that have come so far. A rank that
// has made another call may have gone on without counting itself, and would not notice.
func (s *Schedule) checkComers() error {
	m, a := &s.meeting, s.area
	if m.checked || m.orMore {
		return nil
	}
	ours := s.signature()
	for rank := range a.Ranks {
		if rank != a.Self && a.HasCome(rank, m.stamp) {
			if err := s.checkCall(rank, ours); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkCall compares this rank's call with that of a rank of the area.
func (s *Schedule) checkCall(rank int, ours Signature) error {
	theirs := signatureIn(s.area, rank, s.meeting.stamp)
	if theirs == ours {
		return nil
	}
	s.compare(probe{rank: s.team.local[rank], seq: s.seq, signature: theirs}, ours)
	return s.failed()
}
