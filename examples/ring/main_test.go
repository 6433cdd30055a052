package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/mpitest"
)

func TestRunOnAnyNumberOfRanks(t *testing.T) {
	want := map[int]string{
		1: "a ring of 1, 2 laps\n" +
			"lap 1: back from rank 0 after 1 hops, ranks add up to 0\n" +
			"lap 2: back from rank 0 after 2 hops, ranks add up to 0\n",
		2: "a ring of 2, 2 laps\n" +
			"lap 1: back from rank 1 after 2 hops, ranks add up to 1\n" +
			"lap 2: back from rank 1 after 4 hops, ranks add up to 2\n",
		7: "a ring of 7, 2 laps\n" +
			"lap 1: back from rank 6 after 7 hops, ranks add up to 21\n" +
			"lap 2: back from rank 6 after 14 hops, ranks add up to 42\n",
	}
	for n, want := range want {
		var out bytes.Buffer
		mpitest.Run(t, n, func(t testing.TB, world *comm.Comm) {
			require.NoError(t, run(world, 2, &out))
		})
		assert.Equal(t, want, out.String())
	}
}

func TestCheckWrongTokenFails(t *testing.T) {
	assert.NoError(t, token{Hops: 8, Sum: 12}.check(2, 4))
	assert.Error(t, token{Hops: 8, Sum: 11}.check(2, 4))
	assert.Error(t, token{Hops: 7, Sum: 12}.check(2, 4))
}
