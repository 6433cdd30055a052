package coll

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/comm/internal/area"
	"github.com/mpigo/mpigo/pml"
)

// inOrder is an operation whose operands must not change places: 10·a + b, in bytes.
type inOrder struct{}

func (inOrder) Combine(in, inout []byte) {
	for i := range in {
		inout[i] += 10 * in[i]
	}
}

// TestTwoContributionsAreCombinedInOrder: this rank's own is the left operand exactly if it has to
// be, also if it is in the buffer of the result.
func TestTwoContributionsAreCombinedInOrder(t *testing.T) {
	for _, left := range []bool{true, false} {
		for _, inPlace := range []bool{true, false} {
			areas := testAreas(2)
			stamp := area.Stamp(1, 0)
			mine, theirs := []byte{1, 2}, []byte{3, 4}
			copy(areas[0].Place(stamp, 2), mine)
			copy(areas[1].Place(stamp, 2), theirs)
			team := &Team{area: areas[0]}
			in, out := mine, make([]byte, 2)
			if inPlace {
				in, out = nil, []byte{1, 2}
			}
			team.combineTwo(in, out, inOrder{}, left)
			want := []byte{13, 24}
			if !left {
				want = []byte{31, 42}
			}
			assert.Equal(t, want, out, "left %v, in place %v", left, inPlace)
		}
	}
}

// wakeCounter is a rail that counts how often a rank has woken another one.
type wakeCounter struct {
	btl.Sharer
	woken int
}

func (w *wakeCounter) WakePeer(int) { w.woken++ }

// shortTeams are the teams of two ranks with an area. They have no engine.
func shortTeams() (teams [2]*Team, wakes [2]*wakeCounter) {
	for rank := range wakes {
		wakes[rank] = &wakeCounter{}
	}
	for rank, a := range sharedAreas([]btl.Sharer{wakes[0], wakes[1]}) {
		teams[rank] = &Team{area: a, group: pml.NewGroup([]int{0, 1}), hosts: hosts{local: []int{0, 1}}}
	}
	return teams, wakes
}

// TestRanksWakeEachOtherOnShortPaths: the rank that comes last wakes the other one, which may
// sleep.
func TestRanksWakeEachOtherOnShortPaths(t *testing.T) {
	teams, wakes := shortTeams()
	put := func(rank int) int {
		before := wakes[rank].woken
		assert.True(t, teams[rank].comeShort(&Signature{}, []byte{1}))
		return wakes[rank].woken - before
	}
	assert.Equal(t, 0, put(0))
	assert.Equal(t, 1, put(1))
	for _, team := range teams {
		team.count++
	}
	assert.Equal(t, 0, put(1))
	assert.Equal(t, 0, put(1), "it has come already")
	assert.Equal(t, 1, put(0))
}

// TestRankThatOnlyPutsSaysWhatItHasPassed: otherwise the other rank would wait for room, and this
// one may make no further collective.
func TestRankThatOnlyPutsSaysWhatItHasPassed(t *testing.T) {
	teams, _ := shortTeams()
	for range 3 {
		assert.True(t, teams[1].comeShort(&Signature{}, []byte{1}))
		assert.Equal(t, teams[1].shortStamp(), *teams[0].area.Passed(1))
		teams[1].count++
	}
}

// TestShortPathsFitTheGeneralWay: a collective that begins on a short path may go on in a meeting,
// which has to do the same for these ranks and bytes.
func TestShortPathsFitTheGeneralWay(t *testing.T) {
	for _, crowded := range []bool{false, true} {
		tuning := DefaultTuning(crowded)
		assert.Equal(t, 2, tuning.SharedFewRanks)
		assert.LessOrEqual(t, MostCombined, tuning.SharedShortBytes, "one rank combines all")
		assert.LessOrEqual(t, MostCombined, tuning.AllreduceDoublingBytes, "not by a ring")
		assert.LessOrEqual(t, MostCombined, tuning.ReduceTreeBytes, "not by a chain")
		assert.LessOrEqual(t, MostCopied, tuning.SharedPieceBytes, "one block")
		assert.LessOrEqual(t, MostCopied, tuning.PieceBytes, "one block")
	}
}
