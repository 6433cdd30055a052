// Ring passes a token round all ranks: from rank 0 to rank 1, on to rank 2, …, and from the last
// rank back to rank 0.
//
//	mpirun-go -n 4 ./examples/ring -laps 3
//
// Without a launcher the ring has one rank, which sends to itself.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/mpigo/mpigo/comm"
)

// token travels round the ring. The elements of a message may have any type without pointers.
type token struct {
	Hops int64 // how often the token was sent
	Sum  int64 // of the ranks that it has passed
}

const tagToken = 1

func main() {
	flags := flag.NewFlagSet("ring", flag.ContinueOnError)
	laps := flags.Int("laps", 3, "how many times the token goes round")
	check := func() error {
		switch {
		case flags.NArg() > 0:
			return fmt.Errorf("unexpected argument %q", flags.Arg(0))
		case *laps < 0:
			return fmt.Errorf("-laps is %d: it cannot be negative", *laps)
		}
		return nil
	}
	comm.Run(func(world *comm.Comm) error {
		if err := comm.ParseFlags(world, flags, os.Args[1:], check); err != nil {
			return err
		}
		return run(world, *laps, os.Stdout)
	})
}

// run is the program of one rank. Only rank 0 writes to out.
func run(world *comm.Comm, laps int, out io.Writer) error {
	rank, size := world.Rank(), world.Size()
	left, right := (rank+size-1)%size, (rank+1)%size

	if rank == 0 {
		fmt.Fprintf(out, "a ring of %d, %d laps\n", size, laps)
	}
	tok := make([]token, 1)
	for lap := 1; lap <= laps; lap++ {
		if rank != 0 {
			if _, err := comm.Recv(world, tok, left, tagToken); err != nil {
				return err
			}
			tok[0].Sum += int64(rank)
			tok[0].Hops++
			if err := comm.Send(world, tok, right, tagToken); err != nil {
				return err
			}
			continue
		}

		// Rank 0 posts its receive before it sends. In a ring of one rank, a send that waits for
		// its receive would never end otherwise.
		back := make([]token, 1)
		req, err := comm.Irecv(world, back, left, tagToken)
		if err != nil {
			return err
		}
		tok[0].Hops++
		if err := comm.Send(world, tok, right, tagToken); err != nil {
			return err
		}
		if _, err := req.Wait(); err != nil {
			return err
		}
		tok[0] = back[0]
		fmt.Fprintf(out, "lap %d: back from rank %d after %d hops, ranks add up to %d\n",
			lap, left, tok[0].Hops, tok[0].Sum)
		if err := tok[0].check(lap, size); err != nil {
			return err
		}
	}
	return nil
}

// check returns an error unless the token is what it must be after whole laps.
func (t token) check(laps, size int) error {
	l, n := int64(laps), int64(size)
	if want := (token{Hops: l * n, Sum: l * n * (n - 1) / 2}); t != want {
		return fmt.Errorf("after %d laps the token is %+v, not %+v", laps, t, want)
	}
	return nil
}
