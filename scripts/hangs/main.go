// Hangs is a program that hangs in the way that its argument names. A launcher's report of the hang
// should name the cause.
//
//	mpirun-go -n 8 ./scripts/hangs cyclic-recv
//
// Without an argument it lists the names. "hangs want CASE RANKS" prints the regular expressions
// that the first three lines of the report must match together. dead-rail only sends messages
// between ranks 0 and 1: cut the network between them from outside.
package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/internal/hangcases"
)

func main() {
	if len(os.Args) == 4 && os.Args[1] == "want" {
		want(os.Args[2], os.Args[3])
		return
	}
	if len(os.Args) == 2 {
		for _, c := range hangcases.Cases() {
			if c.Name == os.Args[1] {
				comm.Run(func(w *comm.Comm) error { return c.Body(w, env(w)) })
				return
			}
		}
	}
	fmt.Fprintln(os.Stderr, "usage: hangs CASE, where CASE is one of:")
	for _, c := range hangcases.Cases() {
		fmt.Fprintln(os.Stderr, "   ", c.Name)
	}
	os.Exit(2)
}

// want prints the regular expressions for the report of a case with a number of ranks.
func want(name, ranks string) {
	n, err := strconv.Atoi(ranks)
	for _, c := range hangcases.Cases() {
		if c.Name == name && err == nil {
			for _, expr := range c.Want(n) {
				fmt.Println(expr)
			}
			return
		}
	}
	fmt.Fprintln(os.Stderr, "hangs: no such case")
	os.Exit(2)
}

// env is the environment of a rank that is a process.
func env(w *comm.Comm) hangcases.Env {
	return hangcases.Env{
		Stop:    stop,
		Compute: compute,
		// The script that cuts the network reads the line.
		CutRail: func() { fmt.Printf("rank %d is ready\n", w.Rank()); time.Sleep(time.Second) },
	}
}

// stop stops the process. Its threads run on for a moment.
func stop() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	time.Sleep(time.Second)
}

// compute never returns.
func compute() {
	for x := uint32(1); ; x = x*1664525 + 1013904223 {
		if x == 0 {
			fmt.Print() // keeps the loop from being optimized away
		}
	}
}
