package pml

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestProtocolErrorFailsEndpointOnce: after a protocol error the next turn fails the endpoint to
// the peer, so that the peer does not wait for this rank.
func TestProtocolErrorFailsEndpointOnce(t *testing.T) {
	w, c := newWire(t, 2)
	p := w.pmls[0]
	p.Isend(c[0], pattern(8, 1), 1, 1, Standard, "send").Abandon()
	p.Arrived(w.modules[0], 1, tagMatch, []byte("no header"))
	require.Error(t, p.Lost(c[0], 1))
	require.Empty(t, w.modules[0].failed, "the endpoint failed from inside a call of the rail")
	p.Progress()
	p.Progress()
	require.Equal(t, []int{1}, w.modules[0].failed)
}
