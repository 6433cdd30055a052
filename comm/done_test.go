package comm_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/comm"
)

// doneProgram has no call that waits: all progress is that of Done.
func doneProgram(w *comm.Comm) error {
	peer, in, out := 1-w.Rank(), make([]int, 200_000), make([]int, 200_000)
	for round := range 50 {
		in[0], out[len(out)-1] = 0, round
		r := must(comm.Irecv(w, in, peer, 0))
		s := must(comm.Isend(w, out, peer, 0))
		for left := 2; left > 0; left-- {
			select {
			case <-r.Done():
				must(r.Wait())
			case <-s.Done():
				must(s.Wait())
			}
			if r.IsNull() && s.IsNull() {
				break
			}
		}
		must(r.Wait())
		must(s.Wait())
		if in[len(in)-1] != round {
			return fmt.Errorf("round %d: %d", round, in[len(in)-1])
		}
	}
	if w.Rank() == 0 {
		fmt.Println("done")
	}
	return nil
}

// Requests of two processes are waited for by select alone.
func TestDoneBetweenProcesses(t *testing.T) {
	for _, transport := range []string{"sm", "tcp"} {
		got := launcher(t)(2, "done", "--btl", "self,"+transport)
		assert.Equal(t, outcome{0, "done\n", ""}, got, transport)
	}
}
