// Pi integrates 4/(1+x²) over 0 … 1 by the midpoint rule, which gives π.
//
//	mpirun-go -n 4 ./examples/pi -intervals 100000000
//
// It prints the same digits for any number of ranks. A floating-point sum depends on the order of
// its terms, so this program fixes the order: it cuts the intervals into blocks, whose number does
// not depend on the ranks. One rank sums up each block, and the root adds the sums in the order of
// the blocks.
package main

import (
	"flag"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/mpigo/mpigo/comm"
)

const (
	root   = 0
	blocks = 4096 // far more than ranks, so the ranks' shares are nearly equal
)

func main() {
	flags := flag.NewFlagSet("pi", flag.ContinueOnError)
	intervals := flags.Int("intervals", 100_000_000, "number of intervals between 0 and 1")
	check := func() error {
		switch {
		case flags.NArg() > 0:
			return fmt.Errorf("unexpected argument %q", flags.Arg(0))
		case *intervals < 1:
			return fmt.Errorf("-intervals is %d: it must be at least 1", *intervals)
		}
		return nil
	}
	comm.Run(func(world *comm.Comm) error {
		if err := comm.ParseFlags(world, flags, os.Args[1:], check); err != nil {
			return err
		}
		return run(world, *intervals, os.Stdout)
	})
}

// run is the program of one rank. Only the root writes to out.
func run(world *comm.Comm, intervals int, out io.Writer) error {
	// Each rank computes every size-th block. The blocks of other ranks stay zero here.
	mine := make([]float64, blocks)
	for b := world.Rank(); b < blocks; b += world.Size() {
		mine[b] = sumBlock(b, intervals)
	}

	// A block's sum is one rank's plus zeros. That is exact in any order of the reduction.
	sums := make([]float64, blocks)
	if err := comm.Reduce(world, mine, sums, comm.Sum, root); err != nil {
		return err
	}
	if world.Rank() != root {
		return nil
	}
	pi := 0.0
	for _, s := range sums {
		pi += s
	}
	pi /= float64(intervals)
	fmt.Fprintf(out, "pi is about %.15f\nthe error is %.1e, with %d intervals\n",
		pi, math.Abs(pi-math.Pi), intervals)
	return nil
}

// sumBlock sums up 4/(1+x²) at the midpoints of block b's intervals.
func sumBlock(b, intervals int) float64 {
	width := 1 / float64(intervals)
	sum := 0.0
	for i := border(b, intervals); i < border(b+1, intervals); i++ {
		x := (float64(i) + 0.5) * width
		// The conversion forbids the compiler to fuse the product with the sum, which it does on
		// some machines only, with another result.
		sum += 4 / (1 + float64(x*x))
	}
	return sum
}

// border returns the first interval of block b. Blocks differ by at most one interval.
func border(b, intervals int) int {
	return b*(intervals/blocks) + min(b, intervals%blocks)
}
