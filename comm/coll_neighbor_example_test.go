package comm_test

import (
	"fmt"

	"github.com/mpigo/mpigo/comm"
)

// inRing runs body at the ranks of a ring of four, whose neighbours are the ranks before and after.
// Rank 0 prints what body returns.
func inRing(body func(ring *comm.Comm) ([]int, error)) {
	_ = comm.RunLocal(4, func(w *comm.Comm) error {
		ring, err := w.Cart([]int{4}, []bool{true})
		if err != nil {
			return err
		}
		got, err := body(ring)
		if ring.Rank() == 0 {
			fmt.Println(got)
		}
		return err
	})
}

// wait waits for a request that a call has returned.
func wait(r comm.Request, err error) error {
	if err == nil {
		_, err = r.Wait()
	}
	return err
}

// startAndWait starts a persistent request once.
func startAndWait(r comm.Request, err error) error {
	if err == nil {
		err = r.Start()
	}
	if err == nil {
		_, err = r.Wait()
	}
	if err == nil {
		err = r.Free()
	}
	return err
}

// Each rank gets the numbers of its neighbours.
func ExampleNeighborAllgather() {
	inRing(func(ring *comm.Comm) ([]int, error) {
		in, out := []int{10 * ring.Rank()}, make([]int, 2)
		return out, comm.NeighborAllgather(ring, in, out)
	})
	// Output: [30 10]
}

func ExampleIneighborAllgather() {
	inRing(func(ring *comm.Comm) ([]int, error) {
		in, out := []int{10 * ring.Rank()}, make([]int, 2)
		return out, wait(comm.IneighborAllgather(ring, in, out))
	})
	// Output: [30 10]
}

func ExampleNeighborAllgatherInit() {
	inRing(func(ring *comm.Comm) ([]int, error) {
		in, out := []int{10 * ring.Rank()}, make([]int, 2)
		return out, startAndWait(comm.NeighborAllgatherInit(ring, in, out))
	})
	// Output: [30 10]
}

// Each rank gets two numbers of each neighbour, and leaves a gap between them.
func ExampleNeighborAllgatherv() {
	inRing(func(ring *comm.Comm) ([]int, error) {
		in, out := []int{ring.Rank(), -ring.Rank()}, make([]int, 5)
		return out, comm.NeighborAllgatherv(ring, in, out, []int{2, 2}, []int{0, 3})
	})
	// Output: [3 -3 0 1 -1]
}

func ExampleIneighborAllgatherv() {
	inRing(func(ring *comm.Comm) ([]int, error) {
		in, out := []int{ring.Rank(), -ring.Rank()}, make([]int, 5)
		return out, wait(comm.IneighborAllgatherv(ring, in, out, []int{2, 2}, []int{0, 3}))
	})
	// Output: [3 -3 0 1 -1]
}

func ExampleNeighborAllgathervInit() {
	inRing(func(ring *comm.Comm) ([]int, error) {
		in, out := []int{ring.Rank(), -ring.Rank()}, make([]int, 5)
		return out, startAndWait(comm.NeighborAllgathervInit(ring, in, out, []int{2, 2}, []int{0, 3}))
	})
	// Output: [3 -3 0 1 -1]
}

// Each rank sends one number down and another one up. A number that is sent up arrives from below.
func ExampleNeighborAlltoall() {
	inRing(func(ring *comm.Comm) ([]int, error) {
		in, out := []int{10 * ring.Rank(), 10*ring.Rank() + 1}, make([]int, 2)
		return out, comm.NeighborAlltoall(ring, in, out)
	})
	// Output: [31 10]
}

func ExampleIneighborAlltoall() {
	inRing(func(ring *comm.Comm) ([]int, error) {
		in, out := []int{10 * ring.Rank(), 10*ring.Rank() + 1}, make([]int, 2)
		return out, wait(comm.IneighborAlltoall(ring, in, out))
	})
	// Output: [31 10]
}

func ExampleNeighborAlltoallInit() {
	inRing(func(ring *comm.Comm) ([]int, error) {
		in, out := []int{10 * ring.Rank(), 10*ring.Rank() + 1}, make([]int, 2)
		return out, startAndWait(comm.NeighborAlltoallInit(ring, in, out))
	})
	// Output: [31 10]
}

// Each rank sends one number down and two up.
func ExampleNeighborAlltoallv() {
	inRing(func(ring *comm.Comm) ([]int, error) {
		in, out := []int{10 * ring.Rank(), 1, 2}, make([]int, 3)
		return out, comm.NeighborAlltoallv(ring, in, []int{1, 2}, nil, out, []int{2, 1}, nil)
	})
	// Output: [1 2 10]
}

func ExampleIneighborAlltoallv() {
	inRing(func(ring *comm.Comm) ([]int, error) {
		in, out := []int{10 * ring.Rank(), 1, 2}, make([]int, 3)
		return out, wait(comm.IneighborAlltoallv(ring, in, []int{1, 2}, nil, out, []int{2, 1}, nil))
	})
	// Output: [1 2 10]
}

func ExampleNeighborAlltoallvInit() {
	inRing(func(ring *comm.Comm) ([]int, error) {
		in, out := []int{10 * ring.Rank(), 1, 2}, make([]int, 3)
		return out, startAndWait(comm.NeighborAlltoallvInit(ring, in, []int{1, 2}, nil, out, []int{2, 1}, nil))
	})
	// Output: [1 2 10]
}

// The duplicate is made while the rank does something else.
func ExampleComm_Idup() {
	_ = comm.RunLocal(2, func(w *comm.Comm) error {
		library, r, err := w.Idup()
		if err == nil { // something useful goes before that
			_, err = r.Wait()
		}
		if err != nil {
			return err
		}
		if w.Rank() == 0 {
			fmt.Println(library.Compare(w))
		}
		return library.Free()
	})
	// Output: congruent
}
