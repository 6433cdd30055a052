package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mpigo/mpigo/mpirun-go/internal/build"
	"github.com/mpigo/mpigo/mpirun-go/internal/cli"
)

// benchPackage is built by the user's go, in the module that is worked in: that of the library, or one
// that requires it.
const benchPackage = "github.com/mpigo/mpigo/bench"

// parseBench reads mpirun-go bench: flags of the launcher, the name of a benchmark, and its flags. It
// is the command line that launches the program bench, with two ranks unless it says otherwise.
func parseBench(args []string) (*cli.Command, error) {
	cmd, err := cli.Parse(append([]string{"-n", "2"}, args...))
	switch {
	case errors.Is(err, cli.ErrHelp): // that of the program says more
		return &cli.Command{Groups: []cli.Group{{Ranks: 1, Program: benchPackage, Args: []string{"--help"}}}}, nil
	case errors.Is(err, cli.ErrNoProgram):
		return nil, errors.New("bench: no NAME given: mpirun-go bench latency, for example")
	case err != nil:
		return nil, err
	}
	if len(cmd.Groups) > 1 {
		return nil, errors.New("bench: ':' is for jobs of several programs, and this is one")
	}
	g := &cmd.Groups[0]
	g.Program, g.Args = benchPackage, append([]string{g.Program}, g.Args...)
	return cmd, nil
}

// explainBench says what to do about a benchPackage that go cannot find.
func explainBench(err error) error {
	if !errors.Is(err, build.ErrNotFound) || !strings.Contains(err.Error(), "no required module provides") {
		return err
	}
	return fmt.Errorf("bench: %s: %w in the module of this directory: go to that of mpigo, or to one that requires it", benchPackage, build.ErrNotFound)
}
