// Command endless passes messages round its ranks until somebody ends it. Each rank prints its process id.
package main

import (
	"fmt"
	"os"

	"github.com/mpigo/mpigo/comm"
)

func main() {
	comm.Run(func(world *comm.Comm) error {
		buf := make([]byte, 100_000)
		right := (world.Rank() + 1) % world.Size()
		left := (world.Rank() + world.Size() - 1) % world.Size()
		for i := 0; ; i++ {
			if i == 10 {
				fmt.Printf("rank %d pid %d\n", world.Rank(), os.Getpid())
			}
			if _, err := comm.SendrecvReplace(world, buf[:1+i*7919%len(buf)], right, 0, left, 0); err != nil {
				return err
			}
		}
	})
}
