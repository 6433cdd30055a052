package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

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

// inKernelOfPeer waits until the peer's kernel has all that an endpoint has sent.
func inKernelOfPeer(t *testing.T, e *endpoint) {
	t.Helper()
	until(t, "the peer's kernel", func() bool {
		left, err := unix.IoctlGetInt(e.fd, unix.SIOCOUTQ)
		require.NoError(t, err)
		return left == 0 && e.unsent.Empty() && e.current == nil && len(e.rest) == 0
	}, e.m)
}

// TestFragmentInKernelIsUnderWay: a fragment that the peer's kernel has is not delivered, and
// counts in the window, until the peer's module has handed it up. If the connection breaks before
// that, the operation ends with an error.
func TestFragmentInKernelIsUnderWay(t *testing.T) {
	for what, size := range map[string]int{"short": 16, "long": 32 << 10} {
		c := newCouple(t, Config{})
		a := c.ea.(*endpoint)
		op := post(t, a, make([]byte, size))
		inKernelOfPeer(t, a)
		for range 4 * quietTurns {
			c.a.Progress()
		}
		require.False(t, op.done, "%s: the peer has not seen it", what)
		require.NoError(t, op.err)
		require.Equal(t, []int{1, size}, []int{a.inFlight, a.bytes})
		require.Zero(t, c.vb.arrived.Load())
		c.until(t, "delivery", func() bool { return op.done })
		require.EqualValues(t, 1, c.vb.arrived.Load())
		require.Equal(t, []int{0, 0}, []int{a.inFlight, a.bytes})

		op = post(t, a, make([]byte, size))
		inKernelOfPeer(t, a)
		c.eb.Fail(btl.ErrInjected)
		c.until(t, "the end", func() bool { return op.done || op.err != nil })
		require.Error(t, op.err, what)
		require.EqualValues(t, 1, c.vb.arrived.Load())
	}
}
