package main

import (
	"flag"
	"time"

	"github.com/mpigo/mpigo/comm"
)

// finalizeLate is a correct program whose rank 0 calls Finalize some time after the other ranks.
func finalizeLate(world *comm.Comm, args []string) error {
	flags := flag.NewFlagSet("finalize", flag.ExitOnError)
	late := flags.Duration("late", time.Second, "how much later rank 0 calls Finalize")
	master := flags.Bool("master", false, "rank 0 exchanges messages with each other rank, and these have none "+
		"between them; without it all ranks meet in a barrier")
	_ = flags.Parse(args) // exits after a mistake
	connect := world.Barrier
	if *master {
		connect = func() error { return pingWorkers(world) }
	}
	if err := connect(); err != nil {
		return err
	}
	if world.Rank() == 0 {
		time.Sleep(*late)
	}
	return world.Finalize()
}

// pingWorkers sends a number from rank 0 to each other rank and back.
func pingWorkers(world *comm.Comm) error {
	n := []int{0}
	if world.Rank() != 0 {
		if _, err := comm.Recv(world, n, 0, 0); err != nil {
			return err
		}
		return comm.Send(world, n, 0, 0)
	}
	for rank := 1; rank < world.Size(); rank++ {
		if err := comm.Send(world, n, rank, 0); err != nil {
			return err
		}
		if _, err := comm.Recv(world, n, rank, 0); err != nil {
			return err
		}
	}
	return nil
}
