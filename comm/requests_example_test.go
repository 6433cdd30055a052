package comm_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/mpigo/mpigo/comm"
)

// A request is waited for once. The buffer is the program's again then.
func ExampleRequest() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		peer := 1 - world.Rank()
		in := make([]int, 1)
		recv, err := comm.Irecv(world, in, peer, 0)
		if err != nil {
			return err
		}
		send, err := comm.Isend(world, []int{10 * world.Rank()}, peer, 0)
		if err != nil {
			return err
		}
		// Compute here. Then:
		if _, err := recv.Wait(); err != nil {
			return err
		}
		if _, err := send.Wait(); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println("received", in[0])
		}
		return nil
	})
	// Output: received 10
}

// The status tells what has arrived. Afterwards every copy of the handle is null.
func ExampleRequest_Wait() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 1 {
			return comm.Send(world, []int{7, 8, 9}, 0, 5)
		}
		buf := make([]int, 10)
		req, err := comm.Irecv(world, buf, comm.AnySource, comm.AnyTag)
		if err != nil {
			return err
		}
		st, err := req.Wait()
		fmt.Println(buf[:st.Count], "from rank", st.Source, "tag", st.Tag, err)
		_, err = req.Wait()
		fmt.Println("null:", req.IsNull(), err)
		return nil
	})
	// Output:
	// [7 8 9] from rank 1 tag 5 <nil>
	// null: true <nil>
}

// The end of a context ends the wait, not the operation.
func ExampleRequest_WaitContext() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		buf := make([]int, 1)
		req, err := comm.Irecv(world, buf, 0, 3)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err = req.WaitContext(ctx)
		fmt.Println("canceled:", errors.Is(err, context.Canceled), "active:", req.IsActive())
		if err := comm.Send(world, []int{4}, 0, 3); err != nil {
			return err
		}
		_, err = req.Wait()
		fmt.Println(buf[0], err)
		return nil
	})
	// Output:
	// canceled: true active: true
	// 4 <nil>
}

// Test does not wait. A program may do something else between two tests.
func ExampleRequest_Test() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		req, err := comm.Irecv(world, make([]int, 1), 0, 0)
		if err != nil {
			return err
		}
		_, done, err := req.Test()
		fmt.Println(done, err)
		if err := comm.Send(world, []int{1}, 0, 0); err != nil {
			return err
		}
		for !done && err == nil {
			_, done, err = req.Test()
		}
		fmt.Println(done, err)
		return nil
	})
	// Output:
	// false <nil>
	// true <nil>
}

// A select waits for a message, or for something else.
func ExampleRequest_Done() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 1 {
			return comm.Send(world, []int{8}, 0, 0)
		}
		buf := make([]int, 1)
		req, err := comm.Irecv(world, buf, 1, 0)
		if err != nil {
			return err
		}
		interrupted := make(chan struct{}) // nothing closes it here
		select {
		case <-req.Done():
			_, err := req.Wait()
			fmt.Println(buf[0], err)
		case <-interrupted:
			fmt.Println(req.Cancel())
			_, err := req.Wait()
			return err
		}
		return nil
	})
	// Output: 8 <nil>
}

// GetStatus leaves the request as it is: the program must still wait for it, or free it.
func ExampleRequest_GetStatus() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		req, err := comm.Irecv(world, make([]byte, 8), 0, 0)
		if err != nil {
			return err
		}
		if err := comm.Send(world, []byte("five!"), 0, 0); err != nil {
			return err
		}
		for done := false; !done; {
			var st comm.Status
			if st, done, err = req.GetStatus(); err != nil {
				return err
			}
			if done {
				fmt.Println(st.Count, "bytes; null:", req.IsNull())
			}
		}
		_, err = req.Wait()
		fmt.Println("null:", req.IsNull(), err)
		return nil
	})
	// Output:
	// 5 bytes; null: false
	// null: true <nil>
}

// A persistent request is started for each iteration. Start of one that is active is refused.
func ExampleRequest_Start() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		buf := make([]int, 1)
		req, err := comm.RecvInit(world, buf, 0, 0)
		if err != nil {
			return err
		}
		for i := range 3 {
			if err := req.Start(); err != nil {
				return err
			}
			if i == 0 {
				fmt.Println(errors.Is(req.Start(), comm.ErrRequest)) // it is active
			}
			if err := comm.Send(world, []int{i}, 0, 0); err != nil {
				return err
			}
			if _, err := req.Wait(); err != nil {
				return err
			}
			fmt.Println("received", buf[0])
		}
		return req.Free()
	})
	// Output:
	// true
	// received 0
	// received 1
	// received 2
}

// A receive that no message will match is cancelled, and then waited for.
func ExampleRequest_Cancel() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		req, err := comm.Irecv(world, make([]int, 1), 0, 99)
		if err != nil {
			return err
		}
		fmt.Println(req.Cancel())
		st, err := req.Wait()
		fmt.Println("cancelled:", st.Cancelled, err)
		return nil
	})
	// Output:
	// <nil>
	// cancelled: true <nil>
}

// A send that is freed continues. The program cannot learn when it may use the buffer again. So a
// program frees requests of buffers that it no longer uses, and persistent requests.
func ExampleRequest_Free() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 1 {
			_, err := comm.Recv(world, make([]int, 1), 0, 0)
			return err
		}
		req, err := comm.Isend(world, []int{1}, 1, 0)
		if err != nil {
			return err
		}
		fmt.Println(req.Free(), "null:", req.IsNull())
		fmt.Println(req.Free())
		return nil
	})
	// Output:
	// <nil> null: true
	// free: invalid request: the handle is null
}

func ExampleRequest_IsNull() {
	var req comm.Request
	fmt.Println(req.IsNull())
	// Output: true
}

// A persistent request is inactive before its start, and again once it was waited for.
func ExampleRequest_IsActive() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		req, err := comm.SendInit(world, []int{1}, comm.ProcNull, 0)
		if err != nil {
			return err
		}
		fmt.Println(req.IsActive())
		fmt.Println(req.Start(), req.IsActive())
		_, err = req.Wait()
		fmt.Println(err, req.IsActive(), "null:", req.IsNull())
		return req.Free()
	})
	// Output:
	// false
	// <nil> true
	// <nil> false null: false
}

func ExampleRequest_IsPersistent() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		kept, err := comm.SendInit(world, []int{1}, comm.ProcNull, 0)
		if err != nil {
			return err
		}
		once, err := comm.Isend(world, []int{1}, comm.ProcNull, 0)
		if err != nil {
			return err
		}
		fmt.Println(kept.IsPersistent(), once.IsPersistent())
		return errors.Join(comm.WaitAll(once), kept.Free())
	})
	// Output: true false
}

// The status of a receive has the envelope and the length of the message.
func ExampleStatus() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 0 {
			return comm.Send(world, []int32{1, 2, 3}, 1, 42)
		}
		st, err := comm.Recv(world, make([]int32, 100), comm.AnySource, comm.AnyTag)
		if err != nil {
			return err
		}
		fmt.Printf("%d elements (%d bytes) from rank %d with tag %d\n", st.Count, st.Bytes, st.Source, st.Tag)
		return nil
	})
	// Output: 3 elements (12 bytes) from rank 0 with tag 42
}

// Rank 0 sends to all others at once.
func ExampleWaitAll() {
	_ = comm.RunLocal(4, func(world *comm.Comm) error {
		if world.Rank() > 0 {
			buf := make([]int, 1)
			if _, err := comm.Recv(world, buf, 0, 0); err != nil {
				return err
			}
			if buf[0] != 100*world.Rank() {
				return fmt.Errorf("received %d", buf[0])
			}
			return nil
		}
		var sends []comm.Request
		for dest := 1; dest < world.Size(); dest++ {
			req, err := comm.Isend(world, []int{100 * dest}, dest, 0)
			if err != nil {
				return err
			}
			sends = append(sends, req)
		}
		fmt.Println(comm.WaitAll(sends...), "null:", sends[0].IsNull())
		return nil
	})
	// Output: <nil> null: true
}

// With statuses, the error of each request is known. Null requests get the empty status.
func ExampleWaitAllStatus() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		reqs := make([]comm.Request, 3) // the last one stays null
		for tag := range 2 {
			var err error
			if reqs[tag], err = comm.Irecv(world, make([]int, 1), 0, tag); err != nil {
				return err
			}
		}
		if err := comm.Send(world, []int{1}, 0, 0); err != nil {
			return err
		}
		if err := comm.Send(world, []int{1, 2}, 0, 1); err != nil { // too long for the receive
			return err
		}
		sts := make([]comm.Status, len(reqs))
		err := comm.WaitAllStatus(reqs, sts)
		fmt.Println(errors.Is(err, comm.ErrInStatus), errors.Is(err, comm.ErrTruncate))
		for i, st := range sts {
			fmt.Println("request", i, "source", st.Source, "error", errors.Is(st.Err, comm.ErrTruncate))
		}
		return nil
	})
	// Output:
	// true true
	// request 0 source 0 error false
	// request 1 source 0 error true
	// request 2 source -1 error false
}

// WaitAny ignores null requests, so a loop can pass the same list until it returns Undefined.
func ExampleWaitAny() {
	_ = comm.RunLocal(3, func(world *comm.Comm) error {
		if world.Rank() > 0 {
			return comm.Send(world, []int{world.Rank()}, 0, 0)
		}
		bufs := make([][1]int, world.Size())
		reqs := make([]comm.Request, world.Size())
		for source := 1; source < world.Size(); source++ {
			var err error
			if reqs[source], err = comm.Irecv(world, bufs[source][:], source, 0); err != nil {
				return err
			}
		}
		sum := 0
		for {
			i, _, err := comm.WaitAny(reqs...)
			if err != nil {
				return err
			}
			if i == comm.Undefined {
				break
			}
			sum += bufs[i][0]
		}
		fmt.Println("sum", sum)
		return nil
	})
	// Output: sum 3
}

// WaitSome returns all requests that are complete when its wait ends.
func ExampleWaitSome() {
	_ = comm.RunLocal(4, func(world *comm.Comm) error {
		if world.Rank() > 0 {
			return comm.Send(world, []int{world.Rank()}, 0, 0)
		}
		bufs := make([][1]int, world.Size())
		reqs := make([]comm.Request, world.Size())
		for source := 1; source < world.Size(); source++ {
			var err error
			if reqs[source], err = comm.Irecv(world, bufs[source][:], source, 0); err != nil {
				return err
			}
		}
		sum := 0
		indices, sts := make([]int, len(reqs)), make([]comm.Status, len(reqs))
		for {
			n, err := comm.WaitSome(reqs, indices, sts)
			if err != nil {
				return err
			}
			if n == comm.Undefined {
				break
			}
			for k, i := range indices[:n] {
				sum += bufs[i][0] * sts[k].Count
			}
		}
		fmt.Println("sum", sum)
		return nil
	})
	// Output: sum 6
}

// TestAll changes nothing until all requests are complete.
func ExampleTestAll() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		reqs := make([]comm.Request, 2)
		for tag := range reqs {
			var err error
			if reqs[tag], err = comm.Irecv(world, make([]int, 1), 0, tag); err != nil {
				return err
			}
		}
		for tag := range reqs {
			all, err := comm.TestAll(reqs, nil)
			fmt.Println(all, err, "null:", reqs[0].IsNull())
			if err := comm.Send(world, []int{1}, 0, tag); err != nil {
				return err
			}
		}
		for {
			all, err := comm.TestAll(reqs, nil)
			if err != nil {
				return err
			}
			if all {
				break
			}
		}
		fmt.Println("null:", reqs[0].IsNull())
		return nil
	})
	// Output:
	// false <nil> null: false
	// false <nil> null: false
	// null: true
}

// TestAny takes one of the requests that are complete. When none is active any more, its flag is
// true and its index is Undefined.
func ExampleTestAny() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		reqs := make([]comm.Request, 2)
		for tag := range reqs {
			var err error
			if reqs[tag], err = comm.Irecv(world, make([]int, 1), 0, tag); err != nil {
				return err
			}
		}
		_, _, flag, err := comm.TestAny(reqs...)
		fmt.Println(flag, err)
		for tag := len(reqs) - 1; tag >= 0; tag-- {
			if err := comm.Send(world, []int{1}, 0, tag); err != nil {
				return err
			}
		}
		for {
			i, st, flag, err := comm.TestAny(reqs...)
			switch {
			case err != nil:
				return err
			case !flag:
				continue // compute here
			case i == comm.Undefined:
				return nil
			}
			fmt.Println("request", i, "tag", st.Tag)
		}
	})
	// Output:
	// false <nil>
	// request 1 tag 1
	// request 0 tag 0
}

// TestSome is WaitSome that does not wait: it may find none.
func ExampleTestSome() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		reqs := make([]comm.Request, 2)
		for tag := range reqs {
			var err error
			if reqs[tag], err = comm.Irecv(world, make([]int, 1), 0, tag); err != nil {
				return err
			}
		}
		indices := make([]int, len(reqs))
		n, err := comm.TestSome(reqs, indices, nil)
		fmt.Println(n, err)
		if err := comm.Send(world, []int{1}, 0, 1); err != nil {
			return err
		}
		for n == 0 && err == nil {
			n, err = comm.TestSome(reqs, indices, nil)
		}
		fmt.Println(n, err, indices[:n])
		_ = reqs[0].Cancel()
		return comm.WaitAll(reqs...)
	})
	// Output:
	// 0 <nil>
	// 1 <nil> [1]
}

// StartAll starts all requests or none.
func ExampleStartAll() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		peer := 1 - world.Rank()
		out, in := make([]int, 1), make([]int, 1)
		send, err := comm.SendInit(world, out, peer, 0)
		if err != nil {
			return err
		}
		recv, err := comm.RecvInit(world, in, peer, 0)
		if err != nil {
			return err
		}
		for i := range 3 {
			out[0] = 10*world.Rank() + i
			if err := comm.StartAll(recv, send); err != nil {
				return err
			}
			if err := comm.WaitAll(recv, send); err != nil {
				return err
			}
			if world.Rank() == 0 {
				fmt.Println("received", in[0])
			}
		}
		if err := comm.StartAll(recv, comm.Request{}); world.Rank() == 0 {
			fmt.Println(err, "- active:", recv.IsActive())
		}
		return errors.Join(recv.Free(), send.Free())
	})
	// Output:
	// received 10
	// received 11
	// received 12
	// request 1: start: invalid request: the handle is null - active: false
}

// The messages are added up in the order in which they arrive.
func ExampleCompleted() {
	_ = comm.RunLocal(4, func(world *comm.Comm) error {
		if world.Rank() > 0 {
			return comm.Send(world, []int{world.Rank()}, 0, 0)
		}
		bufs := make([][1]int, world.Size())
		reqs := make([]comm.Request, world.Size()) // the first one is null
		for source := 1; source < world.Size(); source++ {
			var err error
			if reqs[source], err = comm.Irecv(world, bufs[source][:], source, 0); err != nil {
				return err
			}
		}
		sum := 0
		for i, st := range comm.Completed(context.Background(), reqs...) {
			if st.Err != nil {
				return st.Err
			}
			sum += bufs[i][0]
		}
		fmt.Println("sum", sum)
		return nil
	})
	// Output: sum 6
}

// A probe knows the bytes of a message. How many elements they are depends on the type.
func ExampleCount() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 0 {
			return comm.Send(world, []int32{1, 2, 3}, 1, 0)
		}
		st, err := world.Probe(0, 0)
		if err != nil {
			return err
		}
		fmt.Println(comm.Count[float64](st))
		n, whole := comm.Count[int32](st)
		fmt.Println(n, whole)
		_, err = comm.Recv(world, make([]int32, n), 0, 0)
		return err
	})
	// Output:
	// 1 false
	// 3 true
}
