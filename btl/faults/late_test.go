package faults

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

type endpoint struct {
	btl.Endpoint // not used
	state        btl.State
}

func (e *endpoint) State() btl.State { return e.state }

func TestSettle(t *testing.T) {
	e := new(endpoint)
	var late []Late[*endpoint]
	add := func(e *endpoint, turns int) *btl.Op {
		op := new(btl.Op)
		late = append(late, Late[*endpoint]{e, op, turns})
		return op
	}
	var done []*btl.Op
	settle := func() int {
		done = nil
		return Settle(&late, func(of *endpoint, op *btl.Op) {
			require.Same(t, e, of)
			done = append(done, op)
		})
	}
	require.Zero(t, settle())
	two, none, one, again := add(e, 2), add(e, 0), add(e, 1), add(e, 1)
	failed := &endpoint{state: btl.Failed}
	add(failed, 0)
	add(failed, 9)
	require.Equal(t, 1, settle())
	require.Equal(t, []*btl.Op{none}, done)
	require.Len(t, late, 3, "those of the endpoint that failed are forgotten")
	require.Equal(t, 2, settle())
	require.Equal(t, []*btl.Op{one, again}, done, "in the order in which they were added")
	require.Equal(t, 1, settle())
	require.Equal(t, []*btl.Op{two}, done)
	require.Empty(t, late)
}

// TestSettleFromInside: a completion may post, and may fail an endpoint.
func TestSettleFromInside(t *testing.T) {
	e, other := new(endpoint), new(endpoint)
	late := []Late[*endpoint]{{e, new(btl.Op), 0}, {other, new(btl.Op), 0}, {e, new(btl.Op), 1}}
	post := func(_ *endpoint, op *btl.Op) {
		other.state = btl.Failed
		late = append(late, Late[*endpoint]{e, op, 0}, Late[*endpoint]{e, op, 1})
	}
	require.Equal(t, 1, Settle(&late, post), "what is posted waits for the next turn")
	require.Len(t, late, 3)
	turns := []int{}
	for _, l := range late {
		require.Same(t, e, l.Endpoint)
		turns = append(turns, l.Turns)
	}
	require.Equal(t, []int{0, 0, 1}, turns)

	require.Equal(t, 1, Settle(&late, func(*endpoint, *btl.Op) { late = nil }))
	require.Empty(t, late)
}
