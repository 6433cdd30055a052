package main

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/mpitest"
)

func TestJobOfTwoRanksCutsNothing(t *testing.T) {
	cfg := config{time: 300 * time.Millisecond, every: 50 * time.Millisecond, rate: 100e6}
	var out bytes.Buffer // written to by one rank
	mpitest.Run(t, 2, func(t testing.TB, world *comm.Comm) {
		require.NoError(t, run(world, cfg, &out))
	})
	assert.Regexp(t, `\nmessages   \d+, \d+\.\d MB, every byte checked\n`+
		`rails      failed 0 times, came back 0 times; 0\.0 kB were sent again\n$`, out.String())
}

func TestJobOfThreeRanksFails(t *testing.T) {
	err := comm.RunLocal(3, func(world *comm.Comm) error { return run(world, config{}, io.Discard) })
	assert.ErrorContains(t, err, "the program takes 2 ranks, or 1, which makes 2 itself; there are 3")
}
