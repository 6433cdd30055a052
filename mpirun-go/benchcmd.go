package main

import (
	"errors"

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
		return nil, errors.New("bench: which benchmark? mpirun-go bench latency, for example; mpirun-go bench --help names all")
	case err != nil:
		return nil, err
	}
	if len(cmd.Groups) > 1 {
		return nil, errors.New("bench: it is one program, without ':'")
	}
	g := &cmd.Groups[0]
	g.Program, g.Args = benchPackage, append([]string{g.Program}, g.Args...)
	return cmd, nil
}
