package comm_test

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/comm"
)

// Steps of a computation, each of which begins when all ranks have ended the one before.
func ExampleComm_BarrierInit() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		r, err := w.BarrierInit()
		steps := 0
		for err == nil && steps < 3 {
			if err = r.Start(); err == nil {
				_, err = r.Wait()
			}
			steps++
		}
		err = errors.Join(err, r.Free())
		if w.Rank() == 0 {
			fmt.Println(steps, "steps")
		}
		return err
	})
	// Output: 3 steps
}

// The root sends another step size in each step.
func ExampleBcastInit() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		size := []int{0}
		r, err := comm.BcastInit(w, size, 0)
		for step := 0; step < 3 && err == nil; step++ {
			if w.Rank() == 0 {
				size[0] = 100 >> step
			}
			if err = r.Start(); err == nil {
				_, err = r.Wait()
			}
		}
		err = errors.Join(err, r.Free())
		if w.Rank() == 2 {
			fmt.Println(size)
		}
		return err
	})
	// Output: [25]
}

func ExampleReduceInit() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		mine, sum := []int{0}, []int{0}
		r, err := comm.ReduceInit(w, mine, sum, comm.Sum, 0)
		for step := 0; step < 3 && err == nil; step++ {
			mine[0] = 10*step + w.Rank()
			if err = r.Start(); err == nil {
				_, err = r.Wait()
			}
		}
		err = errors.Join(err, r.Free())
		if w.Rank() == 0 {
			fmt.Println(sum)
		}
		return err
	})
	// Output: [63]
}

// An iteration ends when the largest error of all ranks is small.
func ExampleAllreduceInit() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		mine, largest := []float64{float64(w.Rank() + 1)}, []float64{1}
		r, err := comm.AllreduceInit(w, mine, largest, comm.Max)
		steps := 0
		for ; err == nil && largest[0] > 0.1; steps++ {
			mine[0] /= 2
			if err = r.Start(); err == nil {
				_, err = r.Wait()
			}
		}
		err = errors.Join(err, r.Free())
		if w.Rank() == 1 {
			fmt.Println(steps, "steps")
		}
		return err
	})
	// Output: 5 steps
}

func ExampleScanInit() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		mine, sum := []int{0}, []int{0}
		r, err := comm.ScanInit(w, mine, sum, comm.Sum)
		for step := 0; step < 3 && err == nil; step++ {
			mine[0] = step + w.Rank()
			if err = r.Start(); err == nil {
				_, err = r.Wait()
			}
		}
		err = errors.Join(err, r.Free())
		if w.Rank() == 2 {
			fmt.Println(sum)
		}
		return err
	})
	// Output: [9]
}

func ExampleExscanInit() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		mine, sum := []int{0}, []int{0}
		r, err := comm.ExscanInit(w, mine, sum, comm.Sum)
		for step := 0; step < 3 && err == nil; step++ {
			mine[0] = step + w.Rank()
			if err = r.Start(); err == nil {
				_, err = r.Wait()
			}
		}
		err = errors.Join(err, r.Free())
		if w.Rank() == 2 {
			fmt.Println(sum)
		}
		return err
	})
	// Output: [5]
}

func ExampleReduceScatterInit() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		counts := []int{1, 2, 3} // elements of each rank
		v, sum := make([]int, 6), make([]int, counts[w.Rank()])
		r, err := comm.ReduceScatterInit(w, v, sum, counts, comm.Sum)
		for step := 0; step < 3 && err == nil; step++ {
			for i := range v {
				v[i] = step * i
			}
			if err = r.Start(); err == nil {
				_, err = r.Wait()
			}
		}
		err = errors.Join(err, r.Free())
		if w.Rank() == 2 {
			fmt.Println(sum)
		}
		return err
	})
	// Output: [18 24 30]
}

func ExampleReduceScatterBlockInit() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		v, sum := make([]int, 3), []int{0}
		r, err := comm.ReduceScatterBlockInit(w, v, sum, comm.Sum)
		for step := 0; step < 3 && err == nil; step++ {
			for i := range v {
				v[i] = step * i
			}
			if err = r.Start(); err == nil {
				_, err = r.Wait()
			}
		}
		err = errors.Join(err, r.Free())
		if w.Rank() == 2 {
			fmt.Println(sum)
		}
		return err
	})
	// Output: [12]
}

func ExampleGatherInit() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		mine, all := []int{0}, make([]int, 3)
		r, err := comm.GatherInit(w, mine, all, 0)
		for step := 0; step < 3 && err == nil; step++ {
			mine[0] = 10*step + w.Rank()
			if err = r.Start(); err == nil {
				_, err = r.Wait()
			}
		}
		err = errors.Join(err, r.Free())
		if w.Rank() == 0 {
			fmt.Println(all)
		}
		return err
	})
	// Output: [20 21 22]
}

func ExampleGathervInit() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		mine, all := make([]int, w.Rank()), make([]int, 3)
		r, err := comm.GathervInit(w, mine, all, []int{0, 1, 2}, nil, 0)
		for step := 0; step < 3 && err == nil; step++ {
			for i := range mine {
				mine[i] = 10*step + w.Rank()
			}
			if err = r.Start(); err == nil {
				_, err = r.Wait()
			}
		}
		err = errors.Join(err, r.Free())
		if w.Rank() == 0 {
			fmt.Println(all)
		}
		return err
	})
	// Output: [21 22 22]
}

func ExampleScatterInit() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		all, mine := make([]int, 3), []int{0}
		r, err := comm.ScatterInit(w, all, mine, 0)
		for step := 0; step < 3 && err == nil; step++ {
			for i := range all { // which only the root sends
				all[i] = 10*step + i
			}
			if err = r.Start(); err == nil {
				_, err = r.Wait()
			}
		}
		err = errors.Join(err, r.Free())
		if w.Rank() == 2 {
			fmt.Println(mine)
		}
		return err
	})
	// Output: [22]
}

func ExampleScattervInit() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		counts := []int{1, 2, 3}
		all, mine := make([]int, 6), make([]int, counts[w.Rank()])
		r, err := comm.ScattervInit(w, all, mine, counts, nil, 0)
		for step := 0; step < 3 && err == nil; step++ {
			for i := range all {
				all[i] = 10*step + i
			}
			if err = r.Start(); err == nil {
				_, err = r.Wait()
			}
		}
		err = errors.Join(err, r.Free())
		if w.Rank() == 2 {
			fmt.Println(mine)
		}
		return err
	})
	// Output: [23 24 25]
}

func ExampleAllgatherInit() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		mine, all := []int{0}, make([]int, 3)
		r, err := comm.AllgatherInit(w, mine, all)
		for step := 0; step < 3 && err == nil; step++ {
			mine[0] = 10*step + w.Rank()
			if err = r.Start(); err == nil {
				_, err = r.Wait()
			}
		}
		err = errors.Join(err, r.Free())
		if w.Rank() == 1 {
			fmt.Println(all)
		}
		return err
	})
	// Output: [20 21 22]
}

func ExampleAllgathervInit() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		mine, all := make([]int, w.Rank()), make([]int, 3)
		r, err := comm.AllgathervInit(w, mine, all, []int{0, 1, 2}, nil)
		for step := 0; step < 3 && err == nil; step++ {
			for i := range mine {
				mine[i] = 10*step + w.Rank()
			}
			if err = r.Start(); err == nil {
				_, err = r.Wait()
			}
		}
		err = errors.Join(err, r.Free())
		if w.Rank() == 1 {
			fmt.Println(all)
		}
		return err
	})
	// Output: [21 22 22]
}

func ExampleAlltoallInit() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		in, out := make([]int, 3), make([]int, 3)
		r, err := comm.AlltoallInit(w, in, out)
		for step := 0; step < 3 && err == nil; step++ {
			for to := range in {
				in[to] = 100*step + 10*w.Rank() + to
			}
			if err = r.Start(); err == nil {
				_, err = r.Wait()
			}
		}
		err = errors.Join(err, r.Free())
		if w.Rank() == 2 {
			fmt.Println(out)
		}
		return err
	})
	// Output: [202 212 222]
}

func ExampleAlltoallvInit() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		in, out := make([]int, 3), make([]int, 3*w.Rank())
		received := slices.Repeat([]int{w.Rank()}, 3)
		r, err := comm.AlltoallvInit(w, in, []int{0, 1, 2}, nil, out, received, nil)
		for step := 0; step < 3 && err == nil; step++ {
			for i := range in {
				in[i] = 10*step + w.Rank()
			}
			if err = r.Start(); err == nil {
				_, err = r.Wait()
			}
		}
		err = errors.Join(err, r.Free())
		if w.Rank() == 2 {
			fmt.Println(out)
		}
		return err
	})
	// Output: [20 20 21 21 22 22]
}
