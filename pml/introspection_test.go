package pml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/request"
)

// TestPendingReportsWhatGoesOnByItself: GoesOn is false for an operation that waits for a call of
// the peer.
func TestPendingReportsWhatGoesOnByItself(t *testing.T) {
	w, c := newWire(t, 2, withAsync(true), withGrace(sec))
	a := w.pmls[0]
	ops := map[string]*request.Object{
		"issend":    &a.Isend(c[0], make([]byte, 8), 1, 1, Synchronous, "issend").Object,
		"isend":     &a.Isend(c[0], make([]byte, 50), 1, 2, Standard, "isend").Object,
		"irecv":     &a.Irecv(c[0], make([]byte, 8), 1, 1, 3, "irecv").Object,
		"irecv any": &a.Irecv(c[0], make([]byte, 8), 1, request.AnySource, 4, "irecv any").Object,
		"probe":     &a.Probe(c[0], 1, 5, false, "probe").Object,
		"mprobe":    &a.Probe(c[0], request.AnySource, request.AnyTag, true, "mprobe").Object,
	}
	goesOn := func() map[string]bool {
		got := map[string]bool{}
		for _, p := range a.Pending() {
			require.Same(t, ops[p.Op], p.Request)
			got[p.Op] = p.GoesOn
		}
		return got
	}
	require.Equal(t, map[string]bool{
		"issend": false, "isend": true, "irecv": false, "irecv any": false, "probe": false, "mprobe": false,
	}, goesOn(), "with all rails up")

	// With all rails down every operation waits for the grace time, which ends by itself.
	w.modules[0].lose(1, pathErr)
	require.Equal(t, map[string]bool{
		"issend": true, "isend": true, "irecv": true, "irecv any": true, "probe": true, "mprobe": true,
	}, goesOn())
}

func TestContextsOmitsRemovedContexts(t *testing.T) {
	w, c := newWire(t, 2)
	p := w.pmls[0]
	require.Equal(t, []Caller{c[0].caller}, p.Contexts())
	more := p.AddContext(p.NewContextID(), c[0].group, 0, testCaller{})
	require.Len(t, p.Contexts(), 2)
	r := p.RecvInit(more, nil, 1, 1, 1, "recv init")
	p.RemoveContext(more)
	require.NotNil(t, p.contexts[more.id], "the context went although it has a persistent receive")
	require.Equal(t, []Caller{c[0].caller}, p.Contexts())
	r.Abandon()
}

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
	require.Equal(t, want, b.Unreceived())

	b.Irecv(c[1], make([]byte, 10), 1, 0, 2, "recv")
	b.RemoveContext(to)
	require.NoError(t, b.Close(nil))
	require.Equal(t, want[:2], b.Unreceived())
}
