package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

// TestAcknowledgementsWrapAround: each fragment is delivered once when the counts wrap.
func TestAcknowledgementsWrapAround(t *testing.T) {
	c := newCouple(t, Config{})
	a, b := c.ea.(*endpoint), c.eb.(*endpoint)
	const jump = 1<<32 - 20
	for _, e := range []*endpoint{a, b} {
		e.taken, e.ackSent, e.acked = e.taken+jump, e.ackSent+jump, e.acked+jump
	}
	delivered := 0
	ops := make([]btl.Op, 50)
	for i := range ops {
		ops[i] = btl.Op{Payload: make([]byte, 16+i), HdrLen: 0, Done: func(_ *btl.Op, err error) {
			require.NoError(t, err)
			delivered++
		}}
		e := []*endpoint{a, b}[i%2]
		require.NoError(t, e.Send(&ops[i]))
		if i%3 == 0 {
			c.until(t, "delivery", func() bool { return delivered == i+1 })
		}
	}
	c.until(t, "delivery", func() bool { return delivered == len(ops) })
	require.EqualValues(t, len(ops), c.va.arrived.Load()+c.vb.arrived.Load())
	require.Less(t, a.acked, uint32(jump), "it has wrapped")
	require.Less(t, b.taken, uint32(jump))
}
