// Command bytes exchanges messages of many sizes between all pairs of ranks, and looks at every byte that arrives.
package main

import (
	"fmt"

	"github.com/mpigo/mpigo/comm"
)

func main() {
	comm.Run(func(world *comm.Comm) error {
		me, n := world.Rank(), world.Size()
		total := []int64{0}
		for _, size := range []int{0, 1, 100, 8 << 10, 64<<10 + 1, 1 << 20, 1_500_003} {
			out, in := make([]byte, size), make([]byte, size)
			for step := range n { // to the rank so many places on, and from the one as many places back
				to, from := (me+step)%n, (me+n-step)%n
				for i := range out {
					out[i] = pattern(me, to, i)
				}
				if _, err := comm.Sendrecv(world, out, to, step, in, from, step); err != nil {
					return err
				}
				for i, got := range in {
					if want := pattern(from, me, i); got != want {
						return fmt.Errorf("byte %d of %d from rank %d is %d, not %d", i, size, from, got, want)
					}
				}
				total[0] += int64(size)
			}
		}
		sum := []int64{0}
		if err := comm.Reduce(world, total, sum, comm.Sum, 0); err != nil {
			return err
		}
		if me == 0 {
			fmt.Printf("%d ranks, %d bytes, all of them right\n", n, sum[0])
		}
		return nil
	})
}

// pattern differs from sender to sender, receiver to receiver, and byte to byte.
func pattern(from, to, i int) byte { return byte(i*7 + i>>8 + from*31 + to*101) }
