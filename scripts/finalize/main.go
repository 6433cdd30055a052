// Finalize is a correct program whose rank 0 is late: the others call Finalize, and rank 0 does
// some time after them.
package main

import (
	"flag"
	"time"

	"github.com/mpigo/mpigo/comm"
)

var (
	late   = flag.Duration("late", time.Second, "how much later rank 0 calls Finalize")
	master = flag.Bool("master", false, "rank 0 gives work to each other rank, and these do not talk to each other; without it, a barrier")
)

func main() {
	flag.Parse()
	comm.Run(func(w *comm.Comm) error {
		talk := w.Barrier
		if *master {
			talk = func() error { return work(w) }
		}
		if err := talk(); err != nil {
			return err
		}
		if w.Rank() == 0 {
			time.Sleep(*late)
		}
		return w.Finalize()
	})
}

// work sends a number from rank 0 to each other rank and back.
func work(w *comm.Comm) error {
	n := []int{0}
	if w.Rank() != 0 {
		if _, err := comm.Recv(w, n, 0, 0); err != nil {
			return err
		}
		return comm.Send(w, n, 0, 0)
	}
	for rank := 1; rank < w.Size(); rank++ {
		if err := comm.Send(w, n, rank, 0); err != nil {
			return err
		}
		if _, err := comm.Recv(w, n, rank, 0); err != nil {
			return err
		}
	}
	return nil
}
