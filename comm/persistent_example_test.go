package comm_test

import (
	"errors"
	"fmt"

	"github.com/mpigo/mpigo/comm"
)

// Each start sends a copy.
func ExampleBsendInit() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		buf, got := []int{0}, []int{0}
		recv, err := comm.RecvInit(world, got, 0, 0)
		if err != nil {
			return err
		}
		send, err := comm.BsendInit(world, buf, 0, 0)
		if err != nil {
			return err
		}
		for i := range 3 {
			buf[0] = i * i
			if err := comm.StartAll(recv, send); err != nil {
				return err
			}
			if err := comm.WaitAll(recv, send); err != nil {
				return err
			}
			fmt.Println(got[0])
		}
		return errors.Join(recv.Free(), send.Free())
	})
	// Output:
	// 0
	// 1
	// 4
}

// StartAll starts the receive first, so it is posted when the ready send starts.
func ExampleRsendInit() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		buf, got := []int{0}, []int{0}
		recv, err := comm.RecvInit(world, got, 0, 0)
		if err != nil {
			return err
		}
		send, err := comm.RsendInit(world, buf, 0, 0)
		if err != nil {
			return err
		}
		for i := range 3 {
			buf[0] = i * i
			if err := comm.StartAll(recv, send); err != nil {
				return err
			}
			if err := comm.WaitAll(recv, send); err != nil {
				return err
			}
			fmt.Println(got[0])
		}
		return errors.Join(recv.Free(), send.Free())
	})
	// Output:
	// 0
	// 1
	// 4
}

// One request receives all messages of a rank.
func ExampleRecvInit() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 0 {
			return errors.Join(comm.Send(world, []int{3}, 1, 0), comm.Send(world, []int{4}, 1, 0))
		}
		buf := []int{0}
		recv, err := comm.RecvInit(world, buf, 0, 0)
		if err != nil {
			return err
		}
		for range 2 {
			if err := recv.Start(); err != nil {
				return err
			}
			if _, err := recv.Wait(); err != nil {
				return err
			}
			fmt.Println(buf[0])
		}
		return recv.Free()
	})
	// Output:
	// 3
	// 4
}
