package comm_test

import (
	"fmt"
	"log"

	"github.com/mpigo/mpigo/comm"
)

// The mean of a number that each rank has, known to all of them.
func ExampleAllreduce() {
	err := comm.RunLocal(4, func(w *comm.Comm) error {
		mine, sum := []float64{float64(w.Rank())}, []float64{0}
		if err := comm.Allreduce(w, mine, sum, comm.Sum); err != nil {
			return err
		}
		if w.Rank() == 0 {
			fmt.Println("mean", sum[0]/float64(w.Size()))
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: mean 1.5
}

// An operation of one's own: multiplication of 2×2 matrices, which does not commute.
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
	err := comm.RunLocal(3, func(w *comm.Comm) error {
		mine := []matrix{{{1, w.Rank()}, {1, 0}}}
		product := make([]matrix, 1)
		err := comm.Reduce(w, mine, product, multiply, 0, comm.InRankOrder())
		if w.Rank() == 0 {
			fmt.Println(product[0])
		}
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: [[2 2] [2 2]]
}

// The root has all the work, and gives each rank its share.
func ExampleScatter() {
	err := comm.RunLocal(3, func(w *comm.Comm) error {
		var all []int // is only looked at at the root
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
		if err := comm.Gather(w, share, all, 0); err != nil {
			return err
		}
		if w.Rank() == 0 {
			fmt.Println(all)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: [20 22 40 42 60 62]
}

// nil in: every rank's contribution is in its place in out already.
func ExampleAllgather() {
	err := comm.RunLocal(4, func(w *comm.Comm) error {
		ranks := make([]int, w.Size())
		ranks[w.Rank()] = w.Rank() * w.Rank()
		if err := comm.Allgather(w, nil, ranks); err != nil {
			return err
		}
		if w.Rank() == 3 {
			fmt.Println(ranks)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: [0 1 4 9]
}
