package comm_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/internal/race"
)

// Two transports carry long messages of two processes together.
func TestRailsOfTwoTransportsShareLongMessages(t *testing.T) {
	got := launcher(t)(2, "beside", "--btl", "self,tcp,sm", "--set", "tcp.include=127.0.0.1", "--set", "pml.notices=false",
		"--set", "pml.protocol=copy")
	assert.Equal(t, outcome{0, "tcp and sm carry long messages\n", ""}, got)
}

// besideProgram sends long messages until two transports have carried more than one.
func besideProgram(w *comm.Comm) error {
	length := 8 << 20
	if race.Brief() {
		length = 2 << 20
	}
	message := pattern(length, 1)
	for end := time.Now().Add(2 * time.Minute); ; {
		if w.Rank() == 1 {
			if got := recv[byte](w, len(message), 0, 0); !bytes.Equal(got, message) {
				return errors.New("arrived changed")
			}
			if more := recv[int](w, 1, 0, 1); more[0] == 0 {
				return nil
			}
			continue
		}
		check(comm.Send(w, message, 1, 0))
		carry := 0
		for _, r := range w.Rails() {
			if r.Peer == 1 && r.Bytes > int64(len(message)) {
				carry++
			}
		}
		if carry == 2 || time.Now().After(end) {
			check(comm.Send(w, []int{0}, 1, 1))
			if carry < 2 {
				return fmt.Errorf("%+v", w.Rails())
			}
			fmt.Println("tcp and sm carry long messages")
			return nil
		}
		check(comm.Send(w, []int{1}, 1, 1))
	}
}
