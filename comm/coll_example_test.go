package comm_test

import (
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/comm"
)

// No rank returns from Barrier before all have called it.
func ExampleComm_Barrier() {
	_ = comm.RunLocal(3, func(world *comm.Comm) error {
		if world.Rank() != 0 {
			fmt.Println("ready")
		}
		if err := world.Barrier(); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println("go")
		}
		return nil
	})
	// Output:
	// ready
	// ready
	// go
}

// The root gets the parts of all ranks, in the order of ranks.
func ExampleGather() {
	_ = comm.RunLocal(3, func(world *comm.Comm) error {
		var all []int
		if world.Rank() == 0 {
			all = make([]int, world.Size())
		}
		err := comm.Gather(world, []int{10 * world.Rank()}, all, 0)
		if world.Rank() == 0 {
			fmt.Println(all)
		}
		return err
	})
	// Output: [0 10 20]
}

// Rank r gets r+1 elements.
func ExampleScatterv() {
	_ = comm.RunLocal(3, func(world *comm.Comm) error {
		counts := []int{1, 2, 3}
		var in []int
		if world.Rank() == 0 {
			in = []int{1, 2, 2, 3, 3, 3}
		}
		out := make([]int, counts[world.Rank()])
		err := comm.Scatterv(world, in, out, counts, nil, 0)
		if world.Rank() == 2 {
			fmt.Println(out)
		}
		return err
	})
	// Output: [3 3 3]
}

// Rank r contributes r+1 elements.
func ExampleAllgatherv() {
	_ = comm.RunLocal(3, func(world *comm.Comm) error {
		counts := []int{1, 2, 3}
		in := slices.Repeat([]int{world.Rank()}, counts[world.Rank()])
		out := make([]int, 6)
		err := comm.Allgatherv(world, in, out, counts, nil)
		if world.Rank() == 0 {
			fmt.Println(out)
		}
		return err
	})
	// Output: [0 1 1 2 2 2]
}

// Each rank gets one element of the sum.
func ExampleReduceScatterBlock() {
	_ = comm.RunLocal(3, func(world *comm.Comm) error {
		out := []int{0}
		if err := comm.ReduceScatterBlock(world, []int{1, 10, 100}, out, comm.Sum); err != nil {
			return err
		}
		all := make([]int, 3)
		err := comm.Allgather(world, out, all)
		if world.Rank() == 0 {
			fmt.Println(all)
		}
		return err
	})
	// Output: [3 30 300]
}

// Exscan returns where each rank's part begins, if the parts lie one after the other.
func ExampleExscan() {
	_ = comm.RunLocal(3, func(world *comm.Comm) error {
		length, begin := world.Rank()+2, []int{0} // rank 0 keeps the 0
		if err := comm.Exscan(world, []int{length}, begin, comm.Sum); err != nil {
			return err
		}
		all := make([]int, 3)
		err := comm.Allgather(world, begin, all)
		if world.Rank() == 0 {
			fmt.Println(all)
		}
		return err
	})
	// Output: [0 2 5]
}

// An operation that does not commute needs the order of ranks. This one joins digits.
func ExampleInRankOrder() {
	_ = comm.RunLocal(4, func(world *comm.Comm) error {
		join := func(in, inout []int) {
			for i := range in {
				digits := 1
				for digits <= inout[i] {
					digits *= 10
				}
				inout[i] += in[i] * digits
			}
		}
		out := []int{0}
		err := comm.Allreduce(world, []int{world.Rank() + 1}, out, join, comm.InRankOrder())
		if world.Rank() == 0 {
			fmt.Println(out[0])
		}
		return err
	})
	// Output: 1234
}

// Every rank gets the mean of the numbers of all ranks.
func ExampleAllreduce() {
	_ = comm.RunLocal(4, func(w *comm.Comm) error {
		mine, sum := []float64{float64(w.Rank())}, []float64{0}
		err := comm.Allreduce(w, mine, sum, comm.Sum)
		if w.Rank() == 0 {
			fmt.Println("mean", sum[0]/float64(w.Size()))
		}
		return err
	})
	// Output: mean 1.5
}

// A user-defined operation: multiplication of 2×2 matrices, which does not commute.
func ExampleReduce() {
	type matrix [2][2]int
	multiply := func(in, inout []matrix) {
		for i, b := range inout {
			a := in[i]
			inout[i] = matrix{
				{a[0][0]*b[0][0] + a[0][1]*b[1][0], a[0][0]*b[0][1] + a[0][1]*b[1][1]},
				{a[1][0]*b[0][0] + a[1][1]*b[1][0], a[1][0]*b[0][1] + a[1][1]*b[1][1]},
			}
		}
	}
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		mine := []matrix{{{1, w.Rank()}, {1, 0}}}
		product := make([]matrix, 1)
		err := comm.Reduce(w, mine, product, multiply, 0, comm.InRankOrder())
		if w.Rank() == 0 {
			fmt.Println(product[0])
		}
		return err
	})
	// Output: [[2 2] [2 2]]
}

// The root gives each rank a share of the work.
func ExampleScatter() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		var all []int // only the root needs it
		if w.Rank() == 0 {
			all = []int{10, 11, 20, 21, 30, 31}
		}
		share := make([]int, 2)
		if err := comm.Scatter(w, all, share, 0); err != nil {
			return err
		}
		for i := range share {
			share[i] *= 2
		}
		err := comm.Gather(w, share, all, 0)
		if w.Rank() == 0 {
			fmt.Println(all)
		}
		return err
	})
	// Output: [20 22 40 42 60 62]
}

// in is nil: the contribution of every rank is already at its place in out.
func ExampleAllgather() {
	_ = comm.RunLocal(4, func(w *comm.Comm) error {
		ranks := make([]int, w.Size())
		ranks[w.Rank()] = w.Rank() * w.Rank()
		err := comm.Allgather(w, nil, ranks)
		if w.Rank() == 3 {
			fmt.Println(ranks)
		}
		return err
	})
	// Output: [0 1 4 9]
}

// The root's buffer goes to every rank.
func ExampleBcast() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		buf := make([]int, 2)
		if w.Rank() == 1 {
			buf[0], buf[1] = 7, 8
		}
		err := comm.Bcast(w, buf, 1)
		if w.Rank() == 2 {
			fmt.Println(buf)
		}
		return err
	})
	// Output: [7 8]
}

// Each rank knows the sum of the ranks up to it, and the sum of those before it.
func ExampleScan() {
	_ = comm.RunLocal(4, func(w *comm.Comm) error {
		mine, upTo, before := []int{w.Rank() + 1}, []int{0}, []int{0}
		if err := comm.Scan(w, mine, upTo, comm.Sum); err != nil {
			return err
		}
		err := comm.Exscan(w, mine, before, comm.Sum)
		if w.Rank() == 3 {
			fmt.Println(upTo[0], before[0])
		}
		return err
	})
	// Output: 10 6
}

// Each rank gets its part of the combined vector.
func ExampleReduceScatter() {
	_ = comm.RunLocal(2, func(w *comm.Comm) error {
		in := []int{1, 2, 3}
		out := make([]int, 1+w.Rank())
		if err := comm.ReduceScatter(w, in, out, []int{1, 2}, comm.Prod); err != nil {
			return err
		}
		block := []int{0}
		err := comm.ReduceScatterBlock(w, []int{5, 6}, block, comm.Sum)
		if w.Rank() == 1 {
			fmt.Println(out, block)
		}
		return err
	})
	// Output: [4 9] [12]
}

// Every rank has a part for every rank.
func ExampleAlltoall() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		in, out := make([]int, 3), make([]int, 3)
		for r := range in {
			in[r] = 10*w.Rank() + r
		}
		err := comm.Alltoall(w, in, out)
		if w.Rank() == 1 {
			fmt.Println(out)
		}
		return err
	})
	// Output: [1 11 21]
}

// Parts of different lengths: rank r has r+1 elements.
func ExampleGatherv() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		counts := []int{1, 2, 3}
		mine := make([]int, counts[w.Rank()])
		for i := range mine {
			mine[i] = w.Rank()
		}
		all := make([]int, 6)
		if err := comm.Gatherv(w, mine, all, counts, nil, 0); err != nil {
			return err
		}
		if w.Rank() == 0 {
			fmt.Println(all)
		}
		if err := comm.Scatterv(w, all, mine, counts, nil, 0); err != nil {
			return err
		}
		err := comm.Allgatherv(w, mine, all, counts, nil)
		if w.Rank() == 2 {
			fmt.Println(all)
		}
		return err
	})
	// Output:
	// [0 1 1 2 2 2]
	// [0 1 1 2 2 2]
}

// Every rank sends rank r a part of r elements.
func ExampleAlltoallv() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		in := []int{w.Rank(), w.Rank(), w.Rank()} // none for rank 0, one for rank 1, two for rank 2
		counts := []int{w.Rank(), w.Rank(), w.Rank()}
		out := make([]int, 3*w.Rank())
		err := comm.Alltoallv(w, in, []int{0, 1, 2}, nil, out, counts, nil)
		if w.Rank() == 2 {
			fmt.Println(out)
		}
		return err
	})
	// Output: [0 0 1 1 2 2]
}

// The operations of MPI. An operation is a function, which may also be called directly:
// inout[i] = in[i] ∘ inout[i].
func ExampleOp() {
	apply := func(name string, op comm.Op[int]) {
		inout := []int{5}
		op([]int{3}, inout)
		fmt.Println(name, inout[0])
	}
	apply("sum", comm.Sum)
	apply("prod", comm.Prod)
	apply("min", comm.Min)
	apply("max", comm.Max)
	apply("logical and", comm.Land)
	apply("logical or", comm.Lor)
	apply("logical xor", comm.Lxor)
	apply("bitwise and", comm.Band)
	apply("bitwise or", comm.Bor)
	apply("bitwise xor", comm.Bxor)
	// Output:
	// sum 8
	// prod 15
	// min 3
	// max 5
	// logical and 1
	// logical or 1
	// logical xor 0
	// bitwise and 1
	// bitwise or 7
	// bitwise xor 6
}
