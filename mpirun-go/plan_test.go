package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRankEnvironSetsGOMAXPROCS(t *testing.T) {
	for _, c := range []struct {
		environ []string
		crowded bool
		want    []string
	}{
		{[]string{"A=1"}, false, []string{"A=1"}},
		{[]string{"A=1"}, true, []string{"A=1", "GOMAXPROCS=1", gomaxprocsMarker}},
		{[]string{"GOMAXPROCS=3"}, false, []string{"GOMAXPROCS=3"}},
		{[]string{"GOMAXPROCS=3"}, true, []string{"GOMAXPROCS=3"}},
		// The last value counts.
		{[]string{"GOMAXPROCS="}, true, []string{"GOMAXPROCS=", "GOMAXPROCS=1", gomaxprocsMarker}},
		// This launcher is a rank of another job.
		{[]string{"A=1", "GOMAXPROCS=1", gomaxprocsMarker}, false, []string{"A=1"}},
		// Set with -x of the outer launcher.
		{[]string{"GOMAXPROCS=4", gomaxprocsMarker}, true, []string{"GOMAXPROCS=4"}},
		{[]string{"A=1", "GOMAXPROCS=1", gomaxprocsMarker}, true, []string{"A=1", "GOMAXPROCS=1", gomaxprocsMarker}},
	} {
		assert.Equal(t, c.want, rankEnviron(c.environ, c.crowded), "%v, crowded: %v", c.environ, c.crowded)
	}
}
