package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/comm"
)

const waitTime = 2 * time.Second

// idle measures the cost of waiting. With two ranks, rank 1 waits for a message and prints the
// processor time that the wait took. With more ranks, rank 0 computes while all others wait, and
// prints the elapsed time divided by the processor time of the computation.
func idle(world *comm.Comm, _ []string) error {
	token := []byte{0}
	if world.Rank() > 0 {
		before := processorTime()
		if _, err := comm.Recv(world, token, 0, 0); err != nil {
			return err
		}
		if world.Size() == 2 {
			used := processorTime() - before
			fmt.Printf("waiting %v took %.2f %% of a core\n", waitTime, 100*float64(used)/float64(waitTime))
		}
		return nil
	}
	if world.Size() == 2 {
		time.Sleep(waitTime)
	} else {
		time.Sleep(waitTime / 4) // until the others sleep
		began, usedBefore := time.Now(), processorTime()
		sum := compute()
		took, used := time.Since(began), processorTime()-usedBefore
		fmt.Printf("computing among waiting ranks took %.2f of its processor time (sum %g)\n",
			float64(took)/float64(used), sum)
	}
	for r := 1; r < world.Size(); r++ {
		if err := comm.Send(world, token, r, 0); err != nil {
			return err
		}
	}
	return nil
}

// compute keeps a core busy for about a second.
func compute() (sum float64) {
	for i := range 1_000_000_000 {
		sum += float64(i)
	}
	return sum
}

// processorTime returns the time that this process has used, in user and system mode.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
