// Command big sends a message of more than 2 GiB from rank 0 to rank 1, which checks every byte.
package main

import (
	"encoding/binary"
	"fmt"

	"github.com/mpigo/mpigo/comm"
)

const bytes = 2<<30 + 4099

func main() {
	comm.Run(func(world *comm.Comm) error {
		if world.Size() != 2 {
			return fmt.Errorf("it takes two ranks, not %d", world.Size())
		}
		buf := make([]byte, bytes)
		if world.Rank() == 0 {
			fill(buf)
			return comm.Send(world, buf, 1, 7)
		}
		st, err := comm.Recv(world, buf, 0, 7)
		if err != nil {
			return err
		}
		if st.Bytes != bytes || st.Count != bytes {
			return fmt.Errorf("status of %d bytes, %d elements", st.Bytes, st.Count)
		}
		if i := check(buf); i >= 0 {
			return fmt.Errorf("byte %d differs", i)
		}
		fmt.Printf("%d bytes arrived equal\n", st.Bytes)
		return nil
	})
}

// word is what the i-th eight bytes hold.
func word(i int) uint64 { return uint64(i) * 0x9e3779b97f4a7c15 }

func fill(buf []byte) {
	n := len(buf) / 8
	for i := range n {
		binary.LittleEndian.PutUint64(buf[8*i:], word(i))
	}
	for i := 8 * n; i < len(buf); i++ {
		buf[i] = byte(i)
	}
}

// check is the index of a byte near the first that differs, −1 if none does.
func check(buf []byte) int {
	n := len(buf) / 8
	for i := range n {
		if binary.LittleEndian.Uint64(buf[8*i:]) != word(i) {
			return 8 * i
		}
	}
	for i := 8 * n; i < len(buf); i++ {
		if buf[i] != byte(i) {
			return i
		}
	}
	return -1
}
