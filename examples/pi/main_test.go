package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/mpitest"
)

func estimate(t *testing.T, n, intervals int) string {
	var out bytes.Buffer
	mpitest.Run(t, n, func(t testing.TB, world *comm.Comm) {
		require.NoError(t, run(world, intervals, &out))
	})
	return out.String()
}

func TestSameDigitsForAnyNumberOfRanks(t *testing.T) {
	for _, intervals := range []int{1, 2, 1000, 1_000_003} {
		one := estimate(t, 1, intervals)
		for _, n := range []int{2, 3, 8} {
			assert.Equal(t, one, estimate(t, n, intervals), "%d ranks", n)
		}
	}
}

func TestRunPrintsEstimate(t *testing.T) {
	assert.Equal(t, "pi is about 3.200000000000000\nthe error is 5.8e-02, with 1 intervals\n", estimate(t, 1, 1))
	assert.Contains(t, estimate(t, 4, 1_000_000), "pi is about 3.14159265358")
}

func TestBlocksCoverTheIntervals(t *testing.T) {
	for _, intervals := range []int{1, blocks - 1, blocks, 10*blocks + 7} {
		assert.Equal(t, 0, border(0, intervals))
		assert.Equal(t, intervals, border(blocks, intervals))
		for b := range blocks {
			assert.LessOrEqual(t, border(b, intervals), border(b+1, intervals))
		}
	}
}
