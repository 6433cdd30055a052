package coll

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// meetingOf is a schedule of rank 0 of an area of so many ranks. It has no engine.
func meetingOf(ranks int, m meet) *Schedule {
	s := &Schedule{team: &Team{}, area: testAreas(ranks)[0], tuning: DefaultTuning(false)}
	s.meeting.meet = m
	return s
}

// TestMeetingTakesNoMoreRoundsThanAStampHas: neither is a buffer taken that needs more, nor does a
// round get the stamp of another collective.
func TestMeetingTakesNoMoreRoundsThanAStampHas(t *testing.T) {
	s := meetingOf(2, meet{call: meetBarrier})
	s.tuning = &Tuning{SharedBytes: 1 << 40}
	s.Elem = 8
	block := s.area.block / 2 / s.Elem * s.Elem
	require.True(t, s.fitsArea(meetAllreduceLong, 1000*block))
	// A block takes two rounds for the reduction, and as many for the bcast as that has pieces.
	const roundsPerBlock = 2 + bcastPieces + 1
	require.False(t, s.fitsArea(meetAllreduceLong, (mostRound/roundsPerBlock+1)*block))

	s.meeting.rounds = mostRound
	_, err := s.come()
	require.ErrorIs(t, err, errManyRounds)
}

// TestReduceOfNothingKeepsTheLock: a barrier of several hosts has nothing to combine. There is no
// engine whose lock could be given up.
func TestReduceOfNothingKeepsTheLock(t *testing.T) {
	s := meetingOf(1, meet{call: meetReduce})
	s.meeting.checked = true
	done, err := s.allHere()
	require.NoError(t, err)
	require.True(t, done)
}
