package pml

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUnreceivedListsMessagesByContextAndArrival(t *testing.T) {
	w, c := newWire(t, 3)
	b := w.pmls[1]
	require.Empty(t, b.Unreceived())
	id := w.pmls[2].NewContextID()
	pair := NewGroup([]int{2, 1})
	from := w.pmls[2].AddContext(id, pair, 0, testCaller{})
	to := b.AddContext(id, pair, 1, testCaller{})
	send := func(rank int, ctx *Context, n, dest, tag int) {
		w.pmls[rank].Isend(ctx, pattern(n, 1), dest, tag, Standard, "send")
		w.settle()
	}
	send(2, from, 5, 1, 1)
	send(2, c[2], 6, 1, 2)
	send(0, c[0], 1000, 1, 3)
	send(0, c[0], 7, 1, 2)
	want := []Unreceived{
		{Envelope{2, 2, 6}, WorldContext, testCaller{}},
		{Envelope{0, 3, 1000}, WorldContext, testCaller{}},
		{Envelope{0, 2, 7}, WorldContext, testCaller{}},
		{Envelope{0, 1, 5}, id, testCaller{}}, // rank 2 of the job is rank 0 of the group
	}
	assert.Equal(t, want, b.Unreceived())

	b.Irecv(c[1], make([]byte, 10), 1, 0, 2, "recv")
	b.RemoveContext(to)
	require.NoError(t, b.Close(nil))
	assert.Equal(t, want[:2], b.Unreceived())
}
