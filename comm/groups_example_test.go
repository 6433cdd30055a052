package comm_test

import (
	"fmt"

	"github.com/mpigo/mpigo/comm"
)

// Groups are sets of ranks, with the order in which they are made.
func ExampleComm_Group() {
	_ = comm.RunLocal(6, func(w *comm.Comm) error {
		if w.Rank() > 0 {
			return nil
		}
		all := w.Group()
		even, err := all.Incl(4, 2, 0)
		if err != nil {
			return err
		}
		first, err := all.Excl(3, 4, 5)
		if err != nil {
			return err
		}
		fmt.Println(even.Union(first).Ranks(), even.Intersection(first).Ranks(), even.Difference(first).Ranks())
		fmt.Println(even.Size(), "members; rank 2 of the world is member", even.Rank(2))
		fmt.Println(even.Translate([]int{0, 1}, first), comm.Undefined)
		fmt.Println(even.Compare(first), even.Compare(even.Union(even)))
		return nil
	})
	// Output:
	// [4 2 0 1] [2 0] [4]
	// 3 members; rank 2 of the world is member 1
	// [-3 2] -3
	// unequal ident
}

func ExampleComm_Compare() {
	_ = comm.RunLocal(2, func(w *comm.Comm) error {
		dup, err := w.Dup()
		if err != nil {
			return err
		}
		back, err := w.Split(0, -w.Rank())
		if err != nil {
			return err
		}
		if w.Rank() == 0 {
			fmt.Println(w.Compare(w), w.Compare(dup), w.Compare(back))
		}
		return nil
	})
	// Output: ident congruent similar
}

// All ranks call Create. The ranks outside of the group get nil.
func ExampleComm_Create() {
	_ = comm.RunLocal(4, func(w *comm.Comm) error {
		g, err := w.Group().Incl(3, 1)
		if err != nil {
			return err
		}
		c, err := w.Create(g)
		if err != nil || c == nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println("rank", w.Rank(), "of the world is rank 0 of", c.Size())
		}
		return c.Free()
	})
	// Output: rank 3 of the world is rank 0 of 2
}

// Only the members call CreateGroup. Rank 0 takes no part.
func ExampleComm_CreateGroup() {
	_ = comm.RunLocal(4, func(w *comm.Comm) error {
		if w.Rank() == 0 {
			return nil
		}
		workers, err := w.Group().Excl(0)
		if err != nil {
			return err
		}
		c, err := w.CreateGroup(workers, 1)
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(c.Name(), "has", c.Size(), "ranks")
		}
		return c.Free()
	})
	// Output: world/group1 has 3 ranks
}

// Ranks that are bound to the same socket get a communicator.
func ExampleComm_SplitBy() {
	_ = comm.RunLocal(2, func(w *comm.Comm) error {
		c, err := w.SplitBy(comm.SplitSocket, w.Rank())
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(c.Size(), "ranks")
		}
		return c.Free()
	})
	// Output: 2 ranks
}

// A library keeps its state with the communicator that it was given. A duplicate gets a state of
// its own.
func ExampleSetAttr() {
	type state struct{ calls int }
	key := comm.NewAttrKey(func(s *state) (*state, bool) { return &state{}, true })
	call := func(c *comm.Comm) int {
		s, ok := comm.GetAttr(c, key)
		if !ok {
			s = &state{}
			if comm.SetAttr(c, key, s) != nil {
				return 0
			}
		}
		s.calls++
		return s.calls
	}
	_ = comm.RunLocal(1, func(w *comm.Comm) error {
		fmt.Println(call(w), call(w))
		d, err := w.Dup()
		if err != nil {
			return err
		}
		fmt.Println(call(d), call(w))
		if err := comm.DelAttr(w, key); err != nil {
			return err
		}
		fmt.Println(call(w))
		return d.Free()
	})
	// Output:
	// 1 2
	// 1 3
	// 1
}

// A ring in each dimension of a grid of 2 × 3 ranks.
func ExampleComm_Cart() {
	_ = comm.RunLocal(6, func(w *comm.Comm) error {
		dims := []int{2, 0} // two rows
		if err := comm.Dims(w.Size(), dims); err != nil {
			return err
		}
		grid, err := w.Cart(dims, []bool{false, true})
		if err != nil {
			return err
		}
		sum := make([]int, 1)
		for dim := range dims {
			source, dest, err := grid.CartShift(dim, 1)
			if err != nil {
				return err
			}
			in := []int{-1} // unchanged where there is no neighbour
			if _, err := comm.Sendrecv(grid, []int{grid.Rank()}, dest, 0, in, source, 0); err != nil {
				return err
			}
			sum[0] = 100*sum[0] + in[0]
		}
		if at, err := grid.CartCoords(grid.Rank()); err == nil && grid.Rank() == 3 {
			lengths, periodic := grid.CartDims()
			fmt.Println("rank 3 is at", at, "of", lengths, periodic, "and got", sum[0])
			rank, err := grid.CartRank(0, -1)
			fmt.Println("left of the first place is rank", rank, err)
			sources, _ := grid.Neighbors()
			fmt.Println("neighbours:", sources, "with ProcNull", comm.ProcNull)
		}
		return grid.Free()
	})
	// Output:
	// rank 3 is at [1 0] of [2 3] [false true] and got 5
	// left of the first place is rank 2 <nil>
	// neighbours: [0 -2 5 4] with ProcNull -2
}

// Sums over the rows of a grid.
func ExampleComm_CartSub() {
	_ = comm.RunLocal(6, func(w *comm.Comm) error {
		grid, err := w.Cart([]int{2, 3}, []bool{false, false})
		if err != nil {
			return err
		}
		row, err := grid.CartSub(false, true)
		if err != nil {
			return err
		}
		sum := []int{0}
		if err := comm.Allreduce(row, []int{w.Rank()}, sum, comm.Sum); err != nil {
			return err
		}
		if w.Rank() == 4 {
			fmt.Println("rank 4 is rank", row.Rank(), "of its row, with the sum", sum[0])
		}
		return row.Free()
	})
	// Output: rank 4 is rank 1 of its row, with the sum 12
}

// A binary tree: each rank knows its parent and its children.
func ExampleComm_Graph() {
	_ = comm.RunLocal(5, func(w *comm.Comm) error {
		var parents, children []int
		if w.Rank() > 0 {
			parents = append(parents, (w.Rank()-1)/2)
		}
		for child := 2*w.Rank() + 1; child <= 2*w.Rank()+2 && child < w.Size(); child++ {
			children = append(children, child)
		}
		tree, err := w.Graph(parents, children)
		if err != nil {
			return err
		}
		if w.Rank() == 1 {
			fmt.Println(tree.Neighbors())
		}
		return tree.Free()
	})
	// Output: [0] [3 4]
}

// Rank 0 alone knows the edges.
func ExampleComm_DistGraph() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		var edges map[int][]int
		if w.Rank() == 0 {
			edges = map[int][]int{0: {1, 2}, 1: {2}, 2: {0}}
		}
		c, err := w.DistGraph(edges)
		if err != nil {
			return err
		}
		if w.Rank() == 2 {
			sources, dests := c.Neighbors()
			fmt.Println("from", sources, "to", dests)
		}
		return c.Free()
	})
	// Output: from [0 1] to [0]
}

// The greatest value, and the rank that has it.
func ExampleMaxLoc() {
	_ = comm.RunLocal(4, func(w *comm.Comm) error {
		in := []comm.ValIndex[float64]{{Val: float64(w.Rank() % 2), Index: int64(w.Rank())}}
		most, least := make([]comm.ValIndex[float64], 1), make([]comm.ValIndex[float64], 1)
		if err := comm.Allreduce(w, in, most, comm.MaxLoc); err != nil {
			return err
		}
		if err := comm.Allreduce(w, in, least, comm.MinLoc); err != nil {
			return err
		}
		if w.Rank() == 0 {
			fmt.Println(most[0], least[0])
		}
		return nil
	})
	// Output: {1 1} {0 0}
}

// ReduceLocal combines slices as a reduction does, without other ranks.
func ExampleReduceLocal() {
	sum := []int{1, 2, 3}
	err := comm.ReduceLocal([]int{10, 20, 30}, sum, comm.Sum)
	fmt.Println(sum, err)
	// Output: [11 22 33] <nil>
}

// Each rank computes while a message goes round.
func ExampleIsendrecv() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		n := w.Size()
		out, in := []int{w.Rank()}, []int{-1}
		r, err := comm.Isendrecv(w, out, (w.Rank()+1)%n, 0, in, (w.Rank()+n-1)%n, 0)
		if err != nil {
			return err
		}
		// Compute, without touching out and in.
		st, err := r.Wait()
		if w.Rank() == 0 {
			fmt.Println("rank", st.Source, "sent", in[0])
		}
		return err
	})
	// Output: rank 2 sent 2
}
