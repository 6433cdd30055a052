package pml

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDetach: after Detach the buffer is the caller's, and the message arrives as it was, from
// every state that a send can wait in.
func TestDetach(t *testing.T) {
	for _, n := range []int{20, 90, 5000} {
		for _, refuse := range []int{0, 1, 2, 3} {
			for _, steps := range []int{0, 1, 2, 3} {
				w, c := newWire(t, 2, nil)
				out := make([]byte, n)
				r := w.pmls[1].Irecv(c[1], out, 1, 0, 1, "recv")
				w.refuse = refuse
				buf := pattern(n, 1)
				s := w.pmls[0].Isend(c[0], buf, 1, 1, Standard, "send")
				for range min(steps, len(w.flying)) {
					w.step(0)
				}
				s.Detach()
				s.Abandon()
				clear(buf)
				w.settle()
				_, err := r.Take()
				require.NoError(t, err)
				require.Equal(t, pattern(n, 1), out, "%d bytes, %d refused, after %d steps", n, refuse, steps)
				require.Zero(t, w.pmls[0].Busy())
			}
		}
	}
}
