// Package bench is the program that measures the library: the ranks of mpirun-go bench, and the
// command github.com/mpigo/mpigo/bench.
package bench

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/mpigo/mpigo/comm"
)

// statusUsage is the exit status after a bad command line.
const statusUsage = 2

// Main is the program of one rank, with the command line args. It returns the exit status.
func Main(args []string) (status int) {
	comm.Run(func(world *comm.Comm) (err error) {
		status, err = start(world, args, os.Stdout, os.Stderr)
		return err
	})
	return status
}

// start runs a command line at one rank. Every rank finds the same errors in the command line, and
// only rank 0 prints them.
func start(world *comm.Comm, args []string, stdout, stderr io.Writer) (status int, err error) {
	if world.Rank() != 0 {
		stdout, stderr = io.Discard, io.Discard
	}
	cfg, err := parse(args)
	if errors.Is(err, errHelp) {
		_, err = io.WriteString(stdout, helpText())
		return 0, err
	}
	if err == nil {
		err = cfg.checkRanks(world.Size())
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v (mpirun-go bench --help)\n", err)
		return statusUsage, nil
	}
	if cfg.local > 0 {
		return 0, comm.RunLocal(cfg.local, func(inner *comm.Comm) error { return run(inner, cfg, stdout) })
	}
	return 0, run(world, cfg, stdout)
}
