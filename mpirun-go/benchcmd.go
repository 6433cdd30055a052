package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/mpigo/mpigo/mpirun-go/internal/cli"
)

// benchArg is the first argument of a rank of mpirun-go bench, which is this program. So bench
// works in any directory, without a go command, and measures the library of mpirun-go's version.
const benchArg = "mpigo-bench-rank"

// parseBench parses the arguments of mpirun-go bench: flags of the launcher, the name of a
// benchmark, and the benchmark's flags. It returns the command that runs this program as ranks,
// two by default.
func parseBench(args []string) (*cli.Command, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("bench: this program cannot be found: %w", err)
	}
	cmd, err := cli.Parse(append([]string{"-n", "2"}, args...))
	switch {
	case errors.Is(err, cli.ErrHelp): // the benchmark program's help has more details
		return &cli.Command{Groups: []cli.Group{{Ranks: 1, Program: self, Args: []string{benchArg, "--help"}}}}, nil
	case errors.Is(err, cli.ErrNoProgram):
		return nil, errors.New("bench: no NAME given, for example: mpirun-go bench latency")
	case err != nil:
		return nil, err
	}
	if len(cmd.Groups) > 1 {
		return nil, errors.New("bench: ':' is not allowed, because bench runs a single program")
	}
	g := &cmd.Groups[0]
	g.Program, g.Args = self, append([]string{benchArg, g.Program}, g.Args...)
	return cmd, nil
}
