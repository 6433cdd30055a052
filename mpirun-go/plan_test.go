package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/mpirun-go/internal/cli"
	"github.com/mpigo/mpigo/mpirun-go/internal/slots"
)

func TestRankEnvironSetsGOMAXPROCS(t *testing.T) {
	const own = gomaxprocsMarker
	for _, c := range []struct {
		environ []string
		crowded bool
		want    []string
	}{
		{[]string{"A=1"}, false, []string{"A=1"}},
		{[]string{"A=1"}, true, []string{"A=1", "GOMAXPROCS=2", own + "2"}},
		{[]string{"GOMAXPROCS=3"}, false, []string{"GOMAXPROCS=3"}},
		{[]string{"GOMAXPROCS=3"}, true, []string{"GOMAXPROCS=3"}},
		{[]string{"GOMAXPROCS=2"}, true, []string{"GOMAXPROCS=2"}},
		// The last value counts.
		{[]string{"GOMAXPROCS="}, true, []string{"GOMAXPROCS=", "GOMAXPROCS=2", own + "2"}},
		// This launcher is a rank of another job.
		{[]string{"A=1", "GOMAXPROCS=1", own + "1"}, false, []string{"A=1"}},
		{[]string{"A=1", "GOMAXPROCS=1", own + "1"}, true, []string{"A=1", "GOMAXPROCS=2", own + "2"}},
		{[]string{"A=1", "GOMAXPROCS=2", own + "2"}, false, []string{"A=1"}},
		// Set with -x of the outer launcher.
		{[]string{"GOMAXPROCS=4", own + "2"}, true, []string{"GOMAXPROCS=4"}},
		{[]string{"GOMAXPROCS=1", own + "2"}, true, []string{"GOMAXPROCS=1"}},
	} {
		assert.Equal(t, c.want, rankEnviron(c.environ, c.crowded, "2"), "%v, crowded: %v", c.environ, c.crowded)
	}
}

func TestCrowdedProcsIsTwoOnOneHost(t *testing.T) {
	place := func(host int) slots.Place { return slots.Place{Host: host} }
	assert.Equal(t, "2", crowdedProcs([]slots.Place{place(0)}))
	assert.Equal(t, "2", crowdedProcs([]slots.Place{place(1), place(1)}))
	assert.Equal(t, "1", crowdedProcs([]slots.Place{place(0), place(0), place(1)}))
}

func TestParseBenchBuildsCommand(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	for line, want := range map[string]cli.Group{
		"latency":                    {Ranks: 2, Program: self, Args: []string{benchArg, "latency"}},
		"latency -m 8 --json":        {Ranks: 2, Program: self, Args: []string{benchArg, "latency", "-m", "8", "--json"}},
		"--bind-to core -n 4 mbw_mr": {Ranks: 4, Program: self, Args: []string{benchArg, "mbw_mr"}},
		"barrier -n 4":               {Ranks: 2, Program: self, Args: []string{benchArg, "barrier", "-n", "4"}},
	} {
		cmd, err := parseBench(strings.Fields(line))
		require.NoError(t, err, line)
		require.Equal(t, []cli.Group{want}, cmd.Groups, line)
	}
	for line, want := range map[string]string{
		"":             "bench: no NAME given",
		"-n 4":         "bench: no NAME given",
		"-n x latency": "-n x:",
		"latency : bw": "bench: ':' is not allowed",
		"--bogus bw":   "no such flag: --bogus",
	} {
		_, err := parseBench(strings.Fields(line))
		require.ErrorContains(t, err, want, line)
	}
	cmd, err := parseBench([]string{"--help"})
	require.NoError(t, err)
	require.Equal(t, []cli.Group{{Ranks: 1, Program: self, Args: []string{benchArg, "--help"}}}, cmd.Groups)
}
