package comm_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/mpigo/mpigo/comm"
)

// Send returns when the slice may be used again.
func ExampleSend() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 0 {
			return comm.Send(world, []float64{1.5, 2.5}, 1, 7)
		}
		buf := make([]float64, 2)
		_, err := comm.Recv(world, buf, 0, 7)
		fmt.Println(buf)
		return err
	})
	// Output: [1.5 2.5]
}

// The status says where the message is from, and how long it is.
func ExampleRecv() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 0 {
			return comm.Send(world, []int{1, 2, 3}, 1, 7)
		}
		buf := make([]int, 10)
		st, err := comm.Recv(world, buf, comm.AnySource, comm.AnyTag)
		fmt.Println(buf[:st.Count], "from", st.Source, "tag", st.Tag)
		return err
	})
	// Output: [1 2 3] from 0 tag 7
}

// Bsend sends a copy, so it waits for nothing, not even for the receive that follows it.
func ExampleBsend() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		if err := comm.Bsend(world, make([]int, 1<<20), 0, 0); err != nil {
			return err
		}
		buf := make([]int, 1<<20)
		st, err := comm.Recv(world, buf, 0, 0)
		fmt.Println(st.Count, "elements")
		return err
	})
	// Output: 1048576 elements
}

// Rsend needs a posted receive. Here a barrier guarantees it.
func ExampleRsend() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 0 {
			if err := world.Barrier(); err != nil {
				return err
			}
			return comm.Rsend(world, []int{4}, 1, 0)
		}
		buf := []int{0}
		req, err := comm.Irecv(world, buf, 0, 0)
		if err != nil {
			return err
		}
		if err := world.Barrier(); err != nil {
			return err
		}
		_, err = req.Wait()
		fmt.Println(buf[0])
		return err
	})
	// Output: 4
}

// A receive that is posted early takes the message when it arrives. The rank computes meanwhile.
func ExampleIrecv() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 0 {
			return comm.Send(world, []int{40}, 1, 0)
		}
		buf := []int{0}
		req, err := comm.Irecv(world, buf, 0, 0)
		if err != nil {
			return err
		}
		here := 2 // anything that does not touch buf
		_, err = req.Wait()
		fmt.Println(here + buf[0])
		return err
	})
	// Output: 42
}

// The slice may be used again at once, because a copy is sent.
func ExampleIbsend() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		buf := []int{5}
		req, err := comm.Ibsend(world, buf, 0, 0)
		if err != nil {
			return err
		}
		buf[0] = 6
		if _, err := comm.Recv(world, buf, 0, 0); err != nil {
			return err
		}
		fmt.Println(buf[0])
		_, err = req.Wait()
		return err
	})
	// Output: 5
}

// The receive is posted before, as for Rsend.
func ExampleIrsend() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		buf := []int{0}
		recv, err := comm.Irecv(world, buf, 0, 0)
		if err != nil {
			return err
		}
		send, err := comm.Irsend(world, []int{8}, 0, 0)
		if err != nil {
			return err
		}
		err = comm.WaitAll(recv, send)
		fmt.Println(buf[0])
		return err
	})
	// Output: 8
}

// Each rank passes its value on to the right, in a ring.
func ExampleSendrecvReplace() {
	_ = comm.RunLocal(3, func(world *comm.Comm) error {
		n, buf := world.Size(), []int{10 * world.Rank()}
		_, err := comm.SendrecvReplace(world, buf, (world.Rank()+1)%n, 0, (world.Rank()+n-1)%n, 0)
		if world.Rank() == 0 {
			fmt.Println("rank 0 has got", buf[0])
		}
		return err
	})
	// Output: rank 0 has got 20
}

// Run joins the job, calls its function and leaves the job.
func ExampleRun() {
	comm.Run(func(world *comm.Comm) error {
		fmt.Println("rank", world.Rank(), "of", world.Size())
		return world.Barrier()
	})
}

// Abort ends the whole job, here because an input is missing.
func ExampleComm_Abort() {
	comm.Run(func(world *comm.Comm) error {
		if world.Rank() == 0 {
			world.Abort(2)
		}
		return world.Barrier()
	})
}

// Finalize is for programs that do without Run.
func ExampleComm_Finalize() {
	world, err := comm.Init()
	if err != nil {
		log.Fatal(err)
	}
	defer world.Finalize()
}

// The modes of a blocking send differ in when they return.
func ExampleSsend() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 1 {
			buf, sum := []int{0}, 0
			for range 3 {
				if _, err := comm.Recv(world, buf, 0, 0); err != nil {
					return err
				}
				sum += buf[0]
			}
			fmt.Println("sum", sum)
			return nil
		}
		return errors.Join(
			comm.Bsend(world, []int{1}, 1, 0), // at once: a copy is sent
			comm.Ssend(world, []int{2}, 1, 0), // when a receive has matched the message
			comm.Rsend(world, []int{3}, 1, 0), // the receive is known to be posted
		)
	})
	// Output: sum 6
}

// The modes of a nonblocking send differ in when the request completes.
func ExampleIssend() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 1 {
			for tag := range 3 {
				if _, err := comm.Recv(world, []int{0}, 0, tag); err != nil {
					return err
				}
			}
			return nil
		}
		var reqs [3]comm.Request
		var errs [3]error
		reqs[0], errs[0] = comm.Issend(world, []int{1}, 1, 0)
		reqs[1], errs[1] = comm.Ibsend(world, []int{2}, 1, 1)
		reqs[2], errs[2] = comm.Irsend(world, []int{3}, 1, 2)
		if err := errors.Join(errs[:]...); err != nil {
			return err
		}
		fmt.Println(comm.WaitAll(reqs[:]...))
		return nil
	})
	// Output: <nil>
}

// The modes of sends exist for persistent requests too.
func ExampleSsendInit() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 1 {
			for tag := range 3 {
				if _, err := comm.Recv(world, []int{0}, 0, tag); err != nil {
					return err
				}
			}
			return nil
		}
		buf := []int{7}
		var reqs [3]comm.Request
		var errs [3]error
		reqs[0], errs[0] = comm.SsendInit(world, buf, 1, 0)
		reqs[1], errs[1] = comm.BsendInit(world, buf, 1, 1)
		reqs[2], errs[2] = comm.RsendInit(world, buf, 1, 2)
		if err := errors.Join(errs[:]...); err != nil {
			return err
		}
		if err := errors.Join(comm.StartAll(reqs[:]...), comm.WaitAll(reqs[:]...)); err != nil {
			return err
		}
		fmt.Println("all started and complete")
		return errors.Join(reqs[0].Free(), reqs[1].Free(), reqs[2].Free())
	})
	// Output: all started and complete
}

// All ranks shift a value to the right. Sendrecv cannot deadlock.
func ExampleSendrecv() {
	_ = comm.RunLocal(3, func(world *comm.Comm) error {
		n := world.Size()
		right, left := (world.Rank()+1)%n, (world.Rank()+n-1)%n
		got := []int{0}
		if _, err := comm.Sendrecv(world, []int{world.Rank()}, right, 0, got, left, 0); err != nil {
			return err
		}
		// Back to where it came from, in the same buffer.
		if _, err := comm.SendrecvReplace(world, got, left, 1, right, 1); err != nil {
			return err
		}
		if world.Rank() == 2 {
			fmt.Println("rank 2 has", got[0], "again")
		}
		return nil
	})
	// Output: rank 2 has 2 again
}

// Probe waits for a message and returns its length. Iprobe does not wait.
func ExampleComm_Probe() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 0 {
			return comm.Send(world, []int32{1, 2, 3}, 1, 5)
		}
		st, err := world.Probe(comm.AnySource, comm.AnyTag)
		if err != nil {
			return err
		}
		n, _ := comm.Count[int32](st)
		_, found, err := world.Iprobe(0, 5)
		if err != nil {
			return err
		}
		fmt.Println(n, "elements under tag", st.Tag, "still there:", found)
		_, err = comm.Recv(world, make([]int32, n), st.Source, st.Tag)
		return err
	})
	// Output: 3 elements under tag 5 still there: true
}

// Improbe takes a message, if there is one, so that only Imrecv or Mrecv can receive it.
func ExampleComm_Improbe() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 0 {
			return comm.Send(world, []byte("hello"), 1, 0)
		}
		for {
			m, st, found, err := world.Improbe(0, 0)
			if err != nil {
				return err
			}
			if !found {
				continue // do something else
			}
			buf := make([]byte, st.Bytes)
			req, err := comm.Imrecv(m, buf)
			if err != nil {
				return err
			}
			_, err = req.Wait()
			fmt.Printf("%s\n", buf)
			return err
		}
	})
	// Output: hello
}

// Memory from Alloc is outside of Go's heap, where every transport can use it directly.
func ExampleAlloc() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		buf, err := comm.Alloc[float64](world, 1000)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			buf[999] = 1.5
		}
		err = comm.Bcast(world, buf, 0)
		if world.Rank() == 1 {
			fmt.Println(buf[999])
		}
		return errors.Join(err, comm.FreeAlloc(world, buf))
	})
	// Output: 1.5
}
