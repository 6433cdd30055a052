package comm_test

import (
	"fmt"

	"github.com/mpigo/mpigo/comm"
)

// Dims finds the shape of a grid for a number of ranks. An entry that is not zero stays.
func ExampleDims() {
	dims := []int{0, 0}
	fmt.Println(comm.Dims(12, dims), dims)
	dims = []int{0, 2, 0}
	fmt.Println(comm.Dims(12, dims), dims)
	// Output:
	// <nil> [4 3]
	// <nil> [3 2 2]
}

// The communicator knows its shape.
func ExampleComm_CartDims() {
	_ = comm.RunLocal(6, func(world *comm.Comm) error {
		grid, err := world.Cart([]int{2, 3}, []bool{false, true})
		if err != nil {
			return err
		}
		if grid.Rank() == 0 {
			fmt.Println(grid.CartDims())
		}
		return err
	})
	// Output: [2 3] [false true]
}

// Ranks are in the order of rows.
func ExampleComm_CartCoords() {
	_ = comm.RunLocal(6, func(world *comm.Comm) error {
		grid, err := world.Cart([]int{2, 3}, []bool{false, true})
		if err != nil {
			return err
		}
		coords, err := grid.CartCoords(4)
		if grid.Rank() == 0 {
			fmt.Println(coords)
		}
		return err
	})
	// Output: [1 1]
}

// The second dimension is periodic, so column 4 is column 1.
func ExampleComm_CartRank() {
	_ = comm.RunLocal(6, func(world *comm.Comm) error {
		grid, err := world.Cart([]int{2, 3}, []bool{false, true})
		if err != nil {
			return err
		}
		rank, err := grid.CartRank(1, 4)
		if grid.Rank() == 0 {
			fmt.Println(rank)
		}
		return err
	})
	// Output: 4
}

// The ranks above and below, and to the left and right, of rank 0. Above the first row is nobody:
// sending to ProcNull does nothing.
func ExampleComm_CartShift() {
	_ = comm.RunLocal(6, func(world *comm.Comm) error {
		grid, err := world.Cart([]int{2, 3}, []bool{false, true})
		if err != nil {
			return err
		}
		if grid.Rank() == 0 {
			above, below, _ := grid.CartShift(0, 1)
			left, right, _ := grid.CartShift(1, 1)
			fmt.Println(above == comm.ProcNull, below, left, right)
		}
		return err
	})
	// Output: true 3 2 1
}

// Each rank receives from its left and sends to its right.
func ExampleComm_Neighbors() {
	_ = comm.RunLocal(3, func(world *comm.Comm) error {
		n, me := world.Size(), world.Rank()
		ring, err := world.Graph([]int{(me + n - 1) % n}, []int{(me + 1) % n})
		if err != nil {
			return err
		}
		if me == 0 {
			sources, dests := ring.Neighbors()
			fmt.Println(sources, dests)
		}
		return nil
	})
	// Output: [2] [1]
}
