package comm_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/mpigo/mpigo/comm"
)

// Rank 0 sends a message to rank 1. A program that mpirun-go launches calls comm.Run instead of
// comm.RunLocal.
func Example() {
	err := comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 0 {
			return comm.Send(world, []float64{1.5, 2.5}, 1, 7)
		}
		buf := make([]float64, 10)
		st, err := comm.Recv(world, buf, comm.AnySource, comm.AnyTag)
		if err != nil {
			return err
		}
		fmt.Println("rank", st.Source, "sent", buf[:st.Count], "under tag", st.Tag)
		return nil
	})
	fmt.Println(err)
	// Output:
	// rank 0 sent [1.5 2.5] under tag 7
	// <nil>
}

// Every rank sends to its right and receives from its left, and can compute meanwhile.
func ExampleIsend() {
	_ = comm.RunLocal(3, func(world *comm.Comm) error {
		n := world.Size()
		right, left := (world.Rank()+1)%n, (world.Rank()+n-1)%n
		out, in := []int{world.Rank()}, []int{-1}
		recv, err := comm.Irecv(world, in, left, 0)
		if err != nil {
			return err
		}
		send, err := comm.Isend(world, out, right, 0)
		if err != nil {
			return err
		}
		// Compute, without touching out and in.
		if err := comm.WaitAll(send, recv); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println("from the left:", in[0])
		}
		return nil
	})
	// Output: from the left: 2
}

// Persistent requests are made once and started for each step. Here the ranks are a ring, and each
// adds what its left neighbour had in the step before.
func ExampleSendInit() {
	_ = comm.RunLocal(3, func(world *comm.Comm) error {
		n := world.Size()
		right, left := (world.Rank()+1)%n, (world.Rank()+n-1)%n
		border, halo := []int{world.Rank()}, make([]int, 1)
		const steps = 4
		compute := func() {}
		recv, err := comm.RecvInit(world, halo, left, 0)
		if err != nil {
			return err
		}
		send, err := comm.SendInit(world, border, right, 0)
		if err != nil {
			return err
		}
		for range steps {
			if err := comm.StartAll(recv, send); err != nil {
				return err
			}
			compute() // what needs no halo, while the messages move
			if err := comm.WaitAll(recv, send); err != nil {
				return err
			}
			border[0] += halo[0]
		}
		if world.Rank() == 0 {
			fmt.Println("rank 0 has", border[0])
		}
		return errors.Join(recv.Free(), send.Free())
	})
	// Output: rank 0 has 16
}

// A message of unknown length is probed first. Mprobe keeps other goroutines from
// receiving it in between.
func ExampleComm_Mprobe() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 0 {
			return comm.Send(world, []byte("as long as it takes"), 1, 0)
		}
		m, st, err := world.Mprobe(0, comm.AnyTag)
		if err != nil {
			return err
		}
		n, _ := comm.Count[byte](st)
		buf := make([]byte, n)
		if _, err := comm.Mrecv(m, buf); err != nil {
			return err
		}
		fmt.Printf("%d bytes: %s\n", n, buf)
		return nil
	})
	// Output: 19 bytes: as long as it takes
}

// Values of any type that encoding/gob supports, for control data.
func ExampleSendValue() {
	type job struct {
		Name  string
		Files []string
	}
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 0 {
			return comm.SendValue(world, job{"count", []string{"a.txt", "b.txt"}}, 1, 0)
		}
		j, st, err := comm.RecvValue[job](world, comm.AnySource, 0)
		if err != nil {
			return err
		}
		fmt.Printf("rank %d wants: %s %v\n", st.Source, j.Name, j.Files)
		return nil
	})
	// Output: rank 0 wants: count [a.txt b.txt]
}

// Even and odd ranks get communicators of their own, in reverse order.
func ExampleComm_Split() {
	_ = comm.RunLocal(5, func(world *comm.Comm) error {
		half, err := world.Split(world.Rank()%2, -world.Rank())
		if err != nil {
			return err
		}
		if world.Rank() == 4 {
			fmt.Printf("rank 4 of %d is rank %d of %d\n", world.Size(), half.Rank(), half.Size())
		}
		return half.Free()
	})
	// Output: rank 4 of 5 is rank 0 of 3
}

// A view whose calls give up when a context ends.
func ExampleComm_WithContext() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		_, err := comm.Recv(world.WithContext(ctx), make([]int, 1), comm.AnySource, 3)
		fmt.Println(errors.Is(err, context.DeadlineExceeded))
		return nil
	})
	// Output: true
}

// An error says which call has failed, at which line, and why: its text is "world: send
// (example_test.go:163, peer 0, tag 0): invalid type string: it holds a pointer". errors.Is finds
// its kind.
func ExampleError() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		err := comm.Send(world, []string{"no"}, 0, 0)
		var e *comm.Error
		if errors.Is(err, comm.ErrType) && errors.As(err, &e) {
			fmt.Println(e.Op, "on", e.Comm, "to", e.Peer)
			fmt.Println(strings.HasPrefix(e.Line, "example_test.go:"))
			fmt.Println(e.Err)
		}
		return nil
	})
	// Output:
	// send on world to 0
	// true
	// invalid type string: it holds a pointer
}

// A library takes a communicator of its own, so that its messages never match the program's.
func ExampleComm_Dup() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		own, err := world.Dup()
		if err != nil {
			return err
		}
		if own.Rank() == 0 {
			fmt.Println(own.Name())
			own.SetName("solver")
			fmt.Println(own.Name())
		}
		return own.Free()
	})
	// Output:
	// world/dup
	// solver
}

// SplitHost makes a communicator of the ranks of one machine.
func ExampleComm_SplitHost() {
	_ = comm.RunLocal(3, func(world *comm.Comm) error {
		host, err := world.SplitHost(world.Rank())
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(host.Size(), "ranks on this machine")
		}
		return host.Free()
	})
	// Output: 3 ranks on this machine
}

// Stats returns counters of the message layer of a rank, and Rails the state of its rails.
func ExampleComm_Stats() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 0 {
			return comm.Send(world, []int{1}, 1, 0)
		}
		if _, err := comm.Recv(world, []int{0}, 0, 0); err != nil {
			return err
		}
		fmt.Println(world.Stats().Received, "message received")
		for _, rail := range world.Rails() {
			fmt.Println("to rank", rail.Peer, rail.State)
		}
		return nil
	})
	// Output:
	// 1 message received
	// to rank 0 up
}

// Wtime measures time; TagUB is the largest tag.
func ExampleComm_Wtime() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		begin := world.Wtime()
		fmt.Println(world.Wtime() >= begin, world.TagUB() >= 1<<15)
		return nil
	})
	// Output: true true
}

// Settings are those that mpirun-go info lists.
func ExampleWithSetting() {
	err := comm.RunLocal(2, func(world *comm.Comm) error { return world.Barrier() },
		comm.WithSetting("pml.eager.bytes", "1K"))
	fmt.Println(err)
	err = comm.RunLocal(1, nil, comm.WithSetting("no.such.setting", "1"))
	fmt.Println(err != nil, errors.Is(err, comm.ErrNotSupported))
	// Output:
	// <nil>
	// true false
}

// Rank 0 cuts one of two rails under a long message. The message arrives all the same.
func ExampleComm_CutRail() {
	err := comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 0 {
			send, err := comm.Isend(world, make([]byte, 10<<20), 1, 0)
			if err != nil {
				return err
			}
			if err := world.CutRail(1); err != nil {
				return err
			}
			if _, err := send.Wait(); err != nil {
				return err
			}
			return world.MendRail(1)
		}
		st, err := comm.Recv(world, make([]byte, 10<<20), 0, 0)
		if err != nil {
			return err
		}
		fmt.Println(st.Bytes, "bytes")
		return nil
	}, comm.WithRails(2), comm.WithSetting("pml.notices", "false"))
	fmt.Println(err)
	// Output:
	// 10485760 bytes
	// <nil>
}

// Ranks of RunLocal are joined by as many rails as a program asks for.
func ExampleWithRails() {
	err := comm.RunLocal(2, func(world *comm.Comm) error {
		if err := world.Barrier(); err != nil { // opens the rails
			return err
		}
		if world.Rank() == 0 {
			for _, rail := range world.Rails() {
				fmt.Println("to rank", rail.Peer, "by", rail.Rail, rail.State)
			}
		}
		return world.Barrier()
	}, comm.WithRails(3))
	fmt.Println(err)
	// Output:
	// to rank 1 by loop0 up
	// to rank 1 by loop1 up
	// to rank 1 by loop2 up
	// <nil>
}

// A program learns which rails have failed while it worked.
func ExampleComm_Events() {
	err := comm.RunLocal(2, func(world *comm.Comm) error {
		events := world.Events(context.Background())
		if err := world.Barrier(); err != nil { // opens the rails
			return err
		}
		if world.Rank() == 0 {
			if err := world.CutRail(1); err != nil {
				return err
			}
		}
		if err := world.Barrier(); err != nil { // notices the cut
			return err
		}
		if err := world.Finalize(); err != nil {
			return err
		}
		for e := range events { // usually in a goroutine, from the start
			if world.Rank() == 0 {
				fmt.Println(e.Kind, e.Rail, "to rank", e.Rank)
			}
		}
		return nil
	}, comm.WithRails(2), comm.WithSetting("pml.notices", "false"))
	fmt.Println(err)
	// Output:
	// RailFailed loop1 to rank 1
	// <nil>
}

// What the library would print on standard error becomes records of the program's logger.
func ExampleWithLogger() {
	logger := slog.New(slog.NewJSONHandler(os.Stdout, nil)).With("job", "weather")
	comm.Run(func(world *comm.Comm) error {
		return world.Barrier()
	}, comm.WithLogger(logger))
}
