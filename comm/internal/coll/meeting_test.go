package coll

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/comm/internal/area"
)

// testAreas are the areas of this many ranks, in the same memory, for a team without any collective
// yet.
func testAreas(ranks int) []*area.Area { return sharedAreas(make([]btl.Sharer, ranks)) }

// sharedAreas are the areas of ranks with these rails.
func sharedAreas(sharers []btl.Sharer) []*area.Area {
	ranks := len(sharers)
	block := area.Align(1000)
	mem := bytesOfWords(make([]uint64, area.Bytes(ranks, block)/wordBytes))
	before := area.Stamp(0, area.MostRound)
	area.Clear(mem, ranks, before)
	areas := make([]*area.Area, ranks)
	world := make([]int, ranks)
	for rank := range areas {
		world[rank] = rank
		areas[rank] = area.New(sharers[rank], mem, world, rank, block, before)
	}
	return areas
}

// meetingOf is a schedule, without an engine, of rank 0 of an area of this many ranks.
func meetingOf(ranks int, m meet) *Schedule {
	s := &Schedule{team: &Team{}, area: testAreas(ranks)[0], tuning: DefaultTuning(false)}
	s.meeting.meet = m
	return s
}

// TestMeetingTakesNoMoreRoundsThanAStampHas: a longer buffer is refused, and no round gets the
// stamp of another collective.
func TestMeetingTakesNoMoreRoundsThanAStampHas(t *testing.T) {
	s := meetingOf(2, meet{kind: &meetBarrier})
	s.tuning = &Tuning{SharedBytes: 1 << 40}
	s.Elem = 8
	block := s.area.Block / 2 / s.Elem * s.Elem
	require.True(t, s.fitsArea(&meetAllreduceLong, 1000*block))
	// A block takes two rounds for the reduction, and as many for the bcast as that has pieces.
	const roundsPerBlock = 2 + bcastPieces + 1
	require.False(t, s.fitsArea(&meetAllreduceLong, (area.MostRound/roundsPerBlock+1)*block))

	s.meeting.rounds = area.MostRound
	_, err := s.come()
	require.ErrorIs(t, err, errManyRounds)
}

// TestReduceOfNothingKeepsTheLock: a barrier of several hosts has nothing to combine. There is no
// engine whose lock could be given up.
func TestReduceOfNothingKeepsTheLock(t *testing.T) {
	s := meetingOf(1, meet{kind: &meetReduce})
	s.meeting.checked = true
	done, err := s.allHere()
	require.NoError(t, err)
	require.True(t, done)
}
