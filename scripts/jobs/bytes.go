package main

import (
	"fmt"

	"github.com/mpigo/mpigo/comm"
)

// exchangeBytes exchanges messages of several sizes between all pairs of ranks and checks every
// byte.
func exchangeBytes(world *comm.Comm, _ []string) error {
	me, n := world.Rank(), world.Size()
	total := []int64{0}
	for _, size := range []int{0, 1, 100, 8 << 10, 64<<10 + 1, 1 << 20, 1_500_003} {
		out, in := make([]byte, size), make([]byte, size)
		for step := range n {
			to, from := (me+step)%n, (me+n-step)%n
			fillBytes(out, me, to)
			if _, err := comm.Sendrecv(world, out, to, step, in, from, step); err != nil {
				return err
			}
			if err := checkBytes(in, from, me); err != nil {
				return err
			}
			total[0] += int64(size)
		}
	}
	sum := []int64{0}
	if err := comm.Reduce(world, total, sum, comm.Sum, 0); err != nil {
		return err
	}
	if me == 0 {
		fmt.Printf("%d ranks, %d bytes, all correct\n", n, sum[0])
	}
	return nil
}

// sendLarge sends one message of more than 2 GiB from rank 0 to rank 1, which checks every byte.
func sendLarge(world *comm.Comm, _ []string) error {
	const size = 2<<30 + 4099 // more than an int32 holds, and no multiple of a page
	if world.Size() != 2 {
		return fmt.Errorf("large takes 2 ranks, not %d", world.Size())
	}
	buf := make([]byte, size)
	if world.Rank() == 0 {
		fillBytes(buf, 0, 1)
		return comm.Send(world, buf, 1, 7)
	}
	st, err := comm.Recv(world, buf, 0, 7)
	if err != nil {
		return err
	}
	if st.Bytes != size || st.Count != size {
		return fmt.Errorf("the status says %d bytes, %d elements", st.Bytes, st.Count)
	}
	if err := checkBytes(buf, 0, 1); err != nil {
		return err
	}
	fmt.Printf("%d bytes arrived unchanged\n", st.Bytes)
	return nil
}

func fillBytes(buf []byte, from, to int) {
	for i := range buf {
		buf[i] = pattern(from, to, i)
	}
}

func checkBytes(buf []byte, from, to int) error {
	for i, got := range buf {
		if want := pattern(from, to, i); got != want {
			return fmt.Errorf("byte %d of %d from rank %d is %d, not %d", i, len(buf), from, got, want)
		}
	}
	return nil
}

// pattern returns byte i of a message. It depends on the sender, the receiver and the place, also
// by large strides, so a displaced fragment shows.
func pattern(from, to, i int) byte {
	return byte(uint64(i)*0x9e3779b97f4a7c15>>56) + byte(from*31+to*101)
}
