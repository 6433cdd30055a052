// Bench measures the library: latency, bandwidth, message rate and collectives. It uses the method
// of the OSU micro-benchmarks and prints their format.
//
//	mpirun-go bench latency
//	mpirun-go bench -n 4 allreduce -m 8:1M --json
//	go run ./bench latency --local 2
//
// Any launcher can start it (mpirun-go -n 2 ./bench latency).
//
// peers/peer.c does the same for other MPI libraries, and compare/ runs both.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/mpigo/mpigo/comm"
)

// statusUsage is the exit status after a bad command line.
const statusUsage = 2

func main() {
	status := 0
	comm.Run(func(world *comm.Comm) error {
		var err error
		status, err = start(world, os.Args[1:], os.Stdout, os.Stderr)
		return err
	})
	os.Exit(status)
}

// start is the program of one rank. Every rank finds the same errors in the command line, and only
// rank 0 prints them.
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
