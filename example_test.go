package mpigo_test

import (
	"fmt"

	"github.com/mpigo/mpigo/comm"
)

// RunLocal runs the ranks as goroutines of one process. A program calls comm.Run instead, and
// mpirun-go starts its ranks.
func Example() {
	_ = comm.RunLocal(4, func(world *comm.Comm) error {
		part, sum := []float64{float64(world.Rank() + 1)}, []float64{0}
		if err := comm.Allreduce(world, part, sum, comm.Sum); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println("the sum over", world.Size(), "ranks is", sum[0])
		}
		return nil
	})
	// Output: the sum over 4 ranks is 10
}
