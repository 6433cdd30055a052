package comm_test

import (
	"errors"
	"fmt"

	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/comm"
)

// A library takes a communicator of its own, so that its messages never meet the program's.
func ExampleComm_Dup() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		own, err := world.Dup()
		if err != nil {
			return err
		}
		if own.Rank() == 0 {
			fmt.Println(own.Name())
			own.SetName("solver")
			fmt.Println(own.Name())
		}
		return own.Free()
	})
	// Output:
	// world/dup
	// solver
}

// SplitHost makes a communicator of the ranks of one machine.
func ExampleComm_SplitHost() {
	_ = comm.RunLocal(3, func(world *comm.Comm) error {
		host, err := world.SplitHost(world.Rank())
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(host.Size(), "ranks on this machine")
		}
		return host.Free()
	})
	// Output: 3 ranks on this machine
}

// Stats and Rails tell what the message layer of a rank did, and the state of its rails.
func ExampleComm_Stats() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 0 {
			return comm.Send(world, []int{1}, 1, 0)
		}
		if _, err := comm.Recv(world, []int{0}, 0, 0); err != nil {
			return err
		}
		fmt.Println(world.Stats().Received, "message received")
		for _, rail := range world.Rails() {
			fmt.Println("to rank", rail.Peer, rail.State)
		}
		return nil
	})
	// Output:
	// 1 message received
	// to rank 0 up
}

// Wtime measures time; TagUB is the largest tag.
func ExampleComm_Wtime() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		begin := world.Wtime()
		fmt.Println(world.Wtime() >= begin, world.TagUB() >= 1<<15)
		return nil
	})
	// Output: true true
}

// Settings are those that mpirun-go info lists. The fabric between local ranks may have faults.
func ExampleWithSetting() {
	var fabric *loop.Fabric
	err := comm.RunLocal(2, func(world *comm.Comm) error { return world.Barrier() },
		comm.WithSetting("pml.eager.bytes", "1K"),
		comm.WithFabric(loop.Config{Rails: 2}),
		comm.OnFabric(func(f *loop.Fabric) { fabric = f }),
	)
	fmt.Println(fabric.Rails(), "rails,", err)
	err = comm.RunLocal(1, nil, comm.WithSetting("no.such.setting", "1"))
	fmt.Println(err != nil, errors.Is(err, comm.ErrNotSupported))
	// Output:
	// 2 rails, <nil>
	// true false
}
