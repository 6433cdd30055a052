// Bench measures the library: latency, bandwidth, message rate and collectives. It uses the method
// of the OSU micro-benchmarks and prints their format.
//
//	mpirun-go bench latency
//	mpirun-go bench -n 4 allreduce -m 8:1M --json
//	go run ./bench latency --local 2
//
// Any launcher can start it (mpirun-go -n 2 ./bench latency).
//
// The benchmarks are in internal/bench, because mpirun-go has them too. peers/peer.c does the same
// for other MPI libraries, and compare/ runs both.
package main

import (
	"os"

	"github.com/mpigo/mpigo/internal/bench"
)

func main() { os.Exit(bench.Main(os.Args[1:])) }
