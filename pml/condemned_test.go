package pml

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLostPeerLearnsOfIt: a peer that is lost for what it sent has its endpoint failed, at the
// next turn, so that it does not wait for us; once.
func TestLostPeerLearnsOfIt(t *testing.T) {
	w, c := newWire(t, 2, nil)
	p := w.pmls[0]
	p.Isend(c[0], pattern(8, 1), 1, 1, Standard, "send").Abandon()
	p.Arrived(w.modules[0], 1, tagMatch, []byte("nonsense"))
	require.Error(t, p.Lost(c[0], 1))
	require.Empty(t, w.modules[0].failed, "not inside a call of the rail")
	p.Progress()
	p.Progress()
	require.Equal(t, []int{1}, w.modules[0].failed)
}
