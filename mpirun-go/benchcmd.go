package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mpigo/mpigo/mpirun-go/internal/build"
	"github.com/mpigo/mpigo/mpirun-go/internal/cli"
)

// benchPackage is the program that mpirun-go bench runs. The user's go builds it in the current
// module, which is the library's or one that requires it.
const benchPackage = "github.com/mpigo/mpigo/bench"

// parseBench parses the arguments of mpirun-go bench: flags of the launcher, the name of a
// benchmark, and the benchmark's flags. It returns the command that runs benchPackage, with two
// ranks by default.
func parseBench(args []string) (*cli.Command, error) {
	cmd, err := cli.Parse(append([]string{"-n", "2"}, args...))
	switch {
	case errors.Is(err, cli.ErrHelp): // the benchmark program's help has more details
		return &cli.Command{Groups: []cli.Group{{Ranks: 1, Program: benchPackage, Args: []string{"--help"}}}}, nil
	case errors.Is(err, cli.ErrNoProgram):
		return nil, errors.New("bench: no NAME given, for example: mpirun-go bench latency")
	case err != nil:
		return nil, err
	}
	if len(cmd.Groups) > 1 {
		return nil, errors.New("bench: ':' is not allowed, because bench runs a single program")
	}
	g := &cmd.Groups[0]
	g.Program, g.Args = benchPackage, append([]string{g.Program}, g.Args...)
	return cmd, nil
}

// explainBench adds advice to the error of a go command that cannot find benchPackage.
func explainBench(err error) error {
	if !errors.Is(err, build.ErrNotFound) || !strings.Contains(err.Error(), "no required module provides") {
		return err
	}
	return fmt.Errorf("bench: %s: %w in the module of this directory: run bench in mpigo's module or in one that requires it", benchPackage, build.ErrNotFound)
}
