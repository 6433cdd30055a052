package comm_test

import (
	"fmt"

	"github.com/mpigo/mpigo/comm"
)

// Iprobe looks for a message without waiting. A rank can do other work between looks.
func ExampleComm_Iprobe() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 0 {
			return comm.Send(world, []int{1, 2}, 1, 5)
		}
		for {
			st, found, err := world.Iprobe(0, comm.AnyTag)
			if err != nil {
				return err
			}
			if found {
				n, _ := comm.Count[int](st)
				buf := make([]int, n)
				_, err = comm.Recv(world, buf, st.Source, st.Tag)
				fmt.Println(buf, "tag", st.Tag)
				return err
			}
		}
	})
	// Output: [1 2] tag 5
}

// The buffer is made when the length is known.
func ExampleMrecv() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		if err := comm.Bsend(world, []byte("hello"), 0, 1); err != nil {
			return err
		}
		msg, st, err := world.Mprobe(0, 1)
		if err != nil {
			return err
		}
		buf := make([]byte, st.Bytes)
		st, err = comm.Mrecv(msg, buf)
		fmt.Printf("%s from %d\n", buf, st.Source)
		return err
	})
	// Output: hello from 0
}

// Imrecv begins to receive a message that was found.
func ExampleImrecv() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		if err := comm.Bsend(world, []byte("hello"), 0, 1); err != nil {
			return err
		}
		msg, st, err := world.Mprobe(0, 1)
		if err != nil {
			return err
		}
		buf := make([]byte, st.Bytes)
		req, err := comm.Imrecv(msg, buf)
		if err != nil {
			return err
		}
		_, err = req.Wait()
		fmt.Printf("%s\n", buf)
		return err
	})
	// Output: hello
}
