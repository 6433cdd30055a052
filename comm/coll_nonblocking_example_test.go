package comm_test

import (
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/comm"
)

// Each rank computes until all ranks have finished their part.
func ExampleComm_Ibarrier() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		all, err := w.Ibarrier()
		for done := false; err == nil && !done; { // something useful goes here
			_, done, err = all.Test()
		}
		if w.Rank() == 0 {
			fmt.Println("all ranks are here")
		}
		return err
	})
	// Output: all ranks are here
}

// The settings travel while each rank does something else.
func ExampleIbcast() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		settings := []int{0, 0}
		if w.Rank() == 0 {
			settings = []int{640, 480}
		}
		r, err := comm.Ibcast(w, settings, 0)
		if err == nil { // something useful goes before that
			_, err = r.Wait()
		}
		if w.Rank() == 2 {
			fmt.Println(settings)
		}
		return err
	})
	// Output: [640 480]
}

func ExampleIreduce() {
	_ = comm.RunLocal(4, func(w *comm.Comm) error {
		mine, largest := []int{w.Rank() * w.Rank()}, []int{0}
		r, err := comm.Ireduce(w, mine, largest, comm.Max, 0)
		if err == nil {
			_, err = r.Wait()
		}
		if w.Rank() == 0 {
			fmt.Println(largest)
		}
		return err
	})
	// Output: [9]
}

// Two sums are under way at a time.
func ExampleIallreduce() {
	_ = comm.RunLocal(4, func(w *comm.Comm) error {
		sum, count := []float64{float64(w.Rank())}, []int{1}
		a, err := comm.Iallreduce(w, nil, sum, comm.Sum)
		if err != nil {
			return err
		}
		b, err := comm.Iallreduce(w, nil, count, comm.Sum)
		if err == nil {
			err = comm.WaitAll(a, b)
		}
		if w.Rank() == 3 {
			fmt.Println(sum[0] / float64(count[0]))
		}
		return err
	})
	// Output: 1.5
}

func ExampleIscan() {
	_ = comm.RunLocal(4, func(w *comm.Comm) error {
		length, end := []int{10 * (w.Rank() + 1)}, []int{0}
		r, err := comm.Iscan(w, length, end, comm.Sum)
		if err == nil {
			_, err = r.Wait()
		}
		if w.Rank() == 3 {
			fmt.Println("my part ends at", end[0])
		}
		return err
	})
	// Output: my part ends at 100
}

func ExampleIexscan() {
	_ = comm.RunLocal(4, func(w *comm.Comm) error {
		length, begin := []int{10 * (w.Rank() + 1)}, []int{0}
		r, err := comm.Iexscan(w, length, begin, comm.Sum)
		if err == nil {
			_, err = r.Wait()
		}
		if w.Rank() == 3 {
			fmt.Println("my part begins at", begin[0])
		}
		return err
	})
	// Output: my part begins at 60
}

func ExampleIreduceScatter() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		v := []int{1, 2, 3, 4, 5, 6}
		counts := []int{1, 2, 3} // elements of each rank
		sum := make([]int, counts[w.Rank()])
		r, err := comm.IreduceScatter(w, v, sum, counts, comm.Sum)
		if err == nil {
			_, err = r.Wait()
		}
		if w.Rank() == 2 {
			fmt.Println(sum)
		}
		return err
	})
	// Output: [12 15 18]
}

func ExampleIreduceScatterBlock() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		v, sum := []int{1, 2, 3, 4, 5, 6}, make([]int, 2)
		r, err := comm.IreduceScatterBlock(w, v, sum, comm.Sum)
		if err == nil {
			_, err = r.Wait()
		}
		if w.Rank() == 1 {
			fmt.Println(sum)
		}
		return err
	})
	// Output: [9 12]
}

func ExampleIgather() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		var all []int
		if w.Rank() == 0 {
			all = make([]int, w.Size())
		}
		r, err := comm.Igather(w, []int{10 * w.Rank()}, all, 0)
		if err == nil {
			_, err = r.Wait()
		}
		if w.Rank() == 0 {
			fmt.Println(all)
		}
		return err
	})
	// Output: [0 10 20]
}

func ExampleIgatherv() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		mine := slices.Repeat([]int{w.Rank()}, w.Rank()) // as many as the rank
		all, counts := make([]int, 3), []int{0, 1, 2}
		r, err := comm.Igatherv(w, mine, all, counts, nil, 0)
		if err == nil {
			_, err = r.Wait()
		}
		if w.Rank() == 0 {
			fmt.Println(all)
		}
		return err
	})
	// Output: [1 2 2]
}

func ExampleIscatter() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		all, mine := []int{10, 11, 12}, []int{0}
		r, err := comm.Iscatter(w, all, mine, 0)
		if err == nil {
			_, err = r.Wait()
		}
		if w.Rank() == 2 {
			fmt.Println(mine)
		}
		return err
	})
	// Output: [12]
}

func ExampleIscatterv() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		all, counts := []int{1, 2, 3, 4, 5, 6}, []int{1, 2, 3}
		mine := make([]int, counts[w.Rank()])
		r, err := comm.Iscatterv(w, all, mine, counts, nil, 0)
		if err == nil {
			_, err = r.Wait()
		}
		if w.Rank() == 1 {
			fmt.Println(mine)
		}
		return err
	})
	// Output: [2 3]
}

func ExampleIallgather() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		all := make([]int, w.Size())
		r, err := comm.Iallgather(w, []int{w.Rank() * w.Rank()}, all)
		if err == nil {
			_, err = r.Wait()
		}
		if w.Rank() == 1 {
			fmt.Println(all)
		}
		return err
	})
	// Output: [0 1 4]
}

func ExampleIallgatherv() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		mine := slices.Repeat([]int{w.Rank()}, w.Rank())
		all, counts := make([]int, 3), []int{0, 1, 2}
		r, err := comm.Iallgatherv(w, mine, all, counts, nil)
		if err == nil {
			_, err = r.Wait()
		}
		if w.Rank() == 1 {
			fmt.Println(all)
		}
		return err
	})
	// Output: [1 2 2]
}

func ExampleIalltoall() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		in, out := make([]int, 3), make([]int, 3)
		for to := range in {
			in[to] = 10*w.Rank() + to
		}
		r, err := comm.Ialltoall(w, in, out)
		if err == nil {
			_, err = r.Wait()
		}
		if w.Rank() == 2 {
			fmt.Println(out)
		}
		return err
	})
	// Output: [2 12 22]
}

// Each rank sends as many elements to a rank as the number of that rank.
func ExampleIalltoallv() {
	_ = comm.RunLocal(3, func(w *comm.Comm) error {
		in := slices.Repeat([]int{w.Rank()}, 3)
		out := make([]int, 3*w.Rank())
		received := slices.Repeat([]int{w.Rank()}, 3)
		r, err := comm.Ialltoallv(w, in, []int{0, 1, 2}, nil, out, received, nil)
		if err == nil {
			_, err = r.Wait()
		}
		if w.Rank() == 2 {
			fmt.Println(out)
		}
		return err
	})
	// Output: [0 0 1 1 2 2]
}
