// Command idle shows what waiting costs. With two ranks, rank 1 waits two seconds for a message and prints
// the processor time that took. With more, rank 0 computes while all others wait, and prints how
// much longer the same computation took than while nobody waited.
package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/comm"
)

const waits = 2 * time.Second

func main() {
	comm.Run(func(world *comm.Comm) error {
		token := []byte{0}
		if world.Rank() > 0 {
			before := processorTime()
			if _, err := comm.Recv(world, token, 0, 0); err != nil {
				return err
			}
			if world.Size() == 2 {
				fmt.Printf("waiting %v took %.2f %% of a core\n", waits, 100*float64(processorTime()-before)/float64(waits))
			}
			return nil
		}
		if world.Size() == 2 {
			time.Sleep(waits)
		} else {
			time.Sleep(waits / 4) // by now the others sleep
			t := time.Now()
			used := processorTime()
			sum := compute()
			fmt.Printf("computing among waiting ranks took %.2f of its processor time (sum %g)\n",
				float64(time.Since(t))/float64(processorTime()-used), sum)
		}
		for r := 1; r < world.Size(); r++ {
			if err := comm.Send(world, token, r, 0); err != nil {
				return err
			}
		}
		return nil
	})
}

// compute keeps a core busy for about a second.
func compute() (sum float64) {
	for i := range 1_000_000_000 {
		sum += float64(i)
	}
	return sum
}

// processorTime is what this process has used, all threads, in user and system mode.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
