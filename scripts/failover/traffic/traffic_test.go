package traffic

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/mpitest"
)

func TestRoundChecksEveryMessage(t *testing.T) {
	mpitest.Run(t, 2, func(t testing.TB, world *comm.Comm) {
		bytes := 0
		traffic, err := New(world, 4<<20, func(n int) { bytes += n })
		require.NoError(t, err)
		for range rareRound {
			require.NoError(t, traffic.Round())
		}
		assert.Greater(t, bytes, 4<<20)
		require.NoError(t, traffic.Free())
	})
}

func TestNewOnOtherThanTwoRanksFails(t *testing.T) {
	err := comm.RunLocal(3, func(world *comm.Comm) error {
		_, err := New(world, 1<<20, func(int) {})
		return err
	})
	assert.ErrorContains(t, err, "the exchange takes 2 ranks, not 3")
}

func TestSizesUpToLargest(t *testing.T) {
	assert.Equal(t, []int{1, 25, 500}, sizes(8*1000))
	assert.Len(t, sizes(4<<20), 9)
}

func TestCheckWrongMessageFails(t *testing.T) {
	for name, corrupt := range map[string]func(b []uint64){
		"word":       func(b []uint64) { b[len(b)-1] ^= 1 },
		"missing":    func(b []uint64) { clear(b[3:5]) },
		"misplaced":  func(b []uint64) { b[3], b[4] = b[4], b[3] },
		"stale":      func(b []uint64) { fill(b, 1, 6, 2) },
		"of another": func(b []uint64) { fill(b, 0, 7, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // a failure takes a second
			b := make([]uint64, 10)
			fill(b, 1, 7, 2)
			require.NoError(t, check(b, 1, 7, 2))
			corrupt(b)
			assert.ErrorContains(t, check(b, 1, 7, 2), "round 7, message 2 of 10 words: word ")
		})
	}
	b := make([]uint64, 10)
	fill(b, 1, 7, 2)
	clear(b[3:5])
	assert.Equal(t, "[3-5 (2 are 0)]", wrongWords(b, 1, 7, 2))
}
