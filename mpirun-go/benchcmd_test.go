package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/mpirun-go/internal/cli"
)

func TestParseBench(t *testing.T) {
	for line, want := range map[string]cli.Group{
		"latency":                    {Ranks: 2, Program: benchPackage, Args: []string{"latency"}},
		"latency -m 8 --json":        {Ranks: 2, Program: benchPackage, Args: []string{"latency", "-m", "8", "--json"}},
		"--bind-to core -n 4 mbw_mr": {Ranks: 4, Program: benchPackage, Args: []string{"mbw_mr"}},
		"barrier -n 4":               {Ranks: 2, Program: benchPackage, Args: []string{"barrier", "-n", "4"}},
	} {
		cmd, err := parseBench(strings.Fields(line))
		require.NoError(t, err, line)
		require.Equal(t, []cli.Group{want}, cmd.Groups, line)
	}
	for line, want := range map[string]string{
		"":              "bench: which benchmark?",
		"-n 4":          "bench: which benchmark?",
		"-n x latency":  "-n x:",
		"latency : bw":  "bench: it is one program",
		"--nonsense bw": "no such flag: --nonsense",
	} {
		_, err := parseBench(strings.Fields(line))
		require.ErrorContains(t, err, want, line)
	}
	cmd, err := parseBench([]string{"--help"})
	require.NoError(t, err)
	require.Equal(t, []cli.Group{{Ranks: 1, Program: benchPackage, Args: []string{"--help"}}}, cmd.Groups)
}
