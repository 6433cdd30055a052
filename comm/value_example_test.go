package comm_test

import (
	"fmt"

	"github.com/mpigo/mpigo/comm"
)

// The value may have any type that encoding/gob knows.
func ExampleRecvValue() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 0 {
			return comm.SendValue(world, map[string]int{"a": 1, "b": 2}, 1, 0)
		}
		m, st, err := comm.RecvValue[map[string]int](world, 0, 0)
		fmt.Println(m, "from", st.Source)
		return err
	})
	// Output: map[a:1 b:2] from 0
}
