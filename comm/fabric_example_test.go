package comm_test

import (
	"fmt"

	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/comm"
)

// A test of the library describes each rail, and makes its devices fail. Programs use WithRails.
func ExampleWithFabric() {
	err := comm.RunLocal(2, func(world *comm.Comm) error { return world.Barrier() },
		comm.WithFabric(loop.Config{Rails: 2, Rail: []loop.RailConfig{{Name: "fast"}, {Name: "slow", LatencyNanos: 50_000}}}))
	fmt.Println(err)
	// Output: <nil>
}

// OnFabric hands out the fabric that joins the ranks, whose rails a test of the library can cut.
func ExampleOnFabric() {
	var fabric *loop.Fabric
	err := comm.RunLocal(2, func(world *comm.Comm) error { return world.Barrier() },
		comm.WithRails(2), comm.OnFabric(func(f *loop.Fabric) { fabric = f }))
	fmt.Println(fabric.Rails(), "rails,", err)
	// Output: 2 rails, <nil>
}
