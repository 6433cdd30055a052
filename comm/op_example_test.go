package comm_test

import (
	"fmt"

	"github.com/mpigo/mpigo/comm"
)

// 1+2+3+4
func ExampleSum() {
	_ = comm.RunLocal(4, func(world *comm.Comm) error {
		out := make([]int, 1)
		err := comm.Allreduce(world, []int{world.Rank() + 1}, out, comm.Sum)
		if world.Rank() == 0 {
			fmt.Println(out[0])
		}
		return err
	})
	// Output: 10
}

// 1·2·3·4
func ExampleProd() {
	_ = comm.RunLocal(4, func(world *comm.Comm) error {
		out := make([]int, 1)
		err := comm.Allreduce(world, []int{world.Rank() + 1}, out, comm.Prod)
		if world.Rank() == 0 {
			fmt.Println(out[0])
		}
		return err
	})
	// Output: 24
}

// The least of 5, 4, 3 and 2.
func ExampleMin() {
	_ = comm.RunLocal(4, func(world *comm.Comm) error {
		out := make([]int, 1)
		err := comm.Allreduce(world, []int{5 - world.Rank()}, out, comm.Min)
		if world.Rank() == 0 {
			fmt.Println(out[0])
		}
		return err
	})
	// Output: 2
}

// The greatest of 0.0, 0.5, 1.0 and 1.5.
func ExampleMax() {
	_ = comm.RunLocal(4, func(world *comm.Comm) error {
		out := make([]float64, 1)
		err := comm.Allreduce(world, []float64{0.5 * float64(world.Rank())}, out, comm.Max)
		if world.Rank() == 0 {
			fmt.Println(out[0])
		}
		return err
	})
	// Output: 1.5
}

// Have all ranks converged? Rank 3 has not.
func ExampleLand() {
	_ = comm.RunLocal(4, func(world *comm.Comm) error {
		out := make([]bool, 1)
		err := comm.Allreduce(world, []bool{world.Rank() != 3}, out, comm.Land)
		if world.Rank() == 0 {
			fmt.Println(out[0])
		}
		return err
	})
	// Output: false
}

// Has any rank failed? Rank 3 has.
func ExampleLor() {
	_ = comm.RunLocal(4, func(world *comm.Comm) error {
		out := make([]bool, 1)
		err := comm.Allreduce(world, []bool{world.Rank() == 3}, out, comm.Lor)
		if world.Rank() == 0 {
			fmt.Println(out[0])
		}
		return err
	})
	// Output: true
}

// Whether an odd number of ranks says true.
func ExampleLxor() {
	_ = comm.RunLocal(4, func(world *comm.Comm) error {
		out := make([]bool, 1)
		err := comm.Allreduce(world, []bool{world.Rank() != 3}, out, comm.Lxor)
		if world.Rank() == 0 {
			fmt.Println(out[0])
		}
		return err
	})
	// Output: true
}

// The bits that all ranks have.
func ExampleBand() {
	_ = comm.RunLocal(4, func(world *comm.Comm) error {
		out := make([]uint8, 1)
		err := comm.Allreduce(world, []uint8{0b1000 | 1<<world.Rank()}, out, comm.Band)
		if world.Rank() == 0 {
			fmt.Println(out[0])
		}
		return err
	})
	// Output: 8
}

// The bits that any rank has.
func ExampleBor() {
	_ = comm.RunLocal(4, func(world *comm.Comm) error {
		out := make([]uint8, 1)
		err := comm.Allreduce(world, []uint8{1 << world.Rank()}, out, comm.Bor)
		if world.Rank() == 0 {
			fmt.Println(out[0])
		}
		return err
	})
	// Output: 15
}

// The bits that an odd number of ranks has.
func ExampleBxor() {
	_ = comm.RunLocal(4, func(world *comm.Comm) error {
		out := make([]uint8, 1)
		err := comm.Allreduce(world, []uint8{0b1000 | 1<<world.Rank()}, out, comm.Bxor)
		if world.Rank() == 0 {
			fmt.Println(out[0])
		}
		return err
	})
	// Output: 7
}

// Which rank has the least value?
func ExampleMinLoc() {
	_ = comm.RunLocal(3, func(world *comm.Comm) error {
		value := []float64{2.5, 0.5, 1.5}[world.Rank()]
		least := make([]comm.ValIndex[float64], 1)
		err := comm.Allreduce(world, []comm.ValIndex[float64]{{Val: value, Index: int64(world.Rank())}}, least, comm.MinLoc)
		if world.Rank() == 0 {
			fmt.Println(least[0].Val, "at rank", least[0].Index)
		}
		return err
	})
	// Output: 0.5 at rank 1
}
