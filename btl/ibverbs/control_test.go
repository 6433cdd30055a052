package ibverbs

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

// TestManyNotesAtOnce: the passive end finds HELLO, the note of a ring and two of credits in one
// batch, because COMM_EST came first, and uses all credits up before it could give those notes back
// with a fragment. It gives them back all the same, or nobody could send any more.
func TestManyNotesAtOnce(t *testing.T) {
	w := newWorld(t, Config{RecvDepth: 8, SendDepth: 32, EagerPeers: 1, EagerAfter: 4})
	a, b := w.ranks[0], w.ranks[1]
	a.connect()
	w.deliver()
	for range 2 * lookEvery {
		b.m.Progress()
	}
	b.connect()
	for i := range 24 {
		require.NoError(t, b.send(fmt.Sprint(i)))
	}
	w.deliver()
	for range 2 * lookEvery {
		a.m.Progress() // HELLO
	}
	w.deliver()
	require.Equal(t, phaseAccepted, b.end().phase)
	b.m.readEvents()
	require.Equal(t, phaseReady, b.end().phase)
	for range 50 { // the peer looks often, so there is a note for every four fragments
		w.f.Advance()
		a.m.Progress()
	}
	require.Len(t, a.arrived, 8)
	w.until("all fragments", func() bool { return len(a.arrived) == 24 })
	w.until("completions", func() bool { return b.under == 0 })
	w.works()
}

// TestNotesWhileAQueueIsEmptied: all that a queue holds is taken at once when another endpoint on
// it has failed and not drained. Notes of credits that come meanwhile are given back as ever.
func TestNotesWhileAQueueIsEmptied(t *testing.T) {
	const all = 64
	w := newWorld(t, Config{RecvDepth: 8, SendDepth: 32})
	w.connect()
	a, b := w.ranks[0], w.ranks[1]
	sent, inside := 0, false
	var pump func()
	pump = func() {
		for sent < all {
			op := a.newOp()
			count := op.Done
			op.Done = func(op *btl.Op, err error) {
				require.NoError(t, err)
				count(op, err)
				if inside { // the peer is fast
					for range 50 {
						w.f.Advance()
						b.m.Progress()
					}
				}
				pump()
			}
			a.under++
			if a.ep.Send(op) != nil {
				a.under--
				return
			}
			sent++
		}
	}
	pump()
	for range 50 {
		w.f.Advance()
		b.m.Progress()
	}
	inside = true
	a.m.pollOut(a.end().group)
	inside = false
	require.Zero(t, a.end().repostingControl, "their receives are posted in between")
	w.until("all fragments", func() bool { pump(); return len(b.arrived) == all })
	w.until("completions", func() bool { return a.under == 0 })
}

// TestNotesOfRingsAtOnce: each end has sent the note of its ring, and two of credits, before it
// looks at the other's. One of them then uses up all credits before it could give these notes back
// with a fragment, and the other has nothing to send. It gives credits back all the same.
func TestNotesOfRingsAtOnce(t *testing.T) {
	const depth = 2 * pollBatch // so that two turns take what can come
	w := newWorld(t, withRings(Config{RecvDepth: depth, SendDepth: 4 * depth}))
	w.connect()
	a, b := w.ranks[0], w.ranks[1]
	flood := func(r *rankOf) {
		for i := range depth {
			require.NoError(t, r.send(fmt.Sprint(i)))
		}
	}
	deliver := func() {
		for w.f.Advance() {
		}
	}
	flood(b)
	deliver()
	for range 4 {
		b.m.Progress() // completions
	}
	require.Zero(t, b.under)
	flood(a)
	deliver()
	for _, r := range w.ranks {
		for range 2 {
			r.m.Progress()
		}
		require.Len(t, r.arrived, depth)
		require.NotNil(t, r.end().in)
	}
	deliver() // the notes of both are there

	from, err := b.m.Register(make([]byte, 8), btl.AccessLocal)
	require.NoError(t, err)
	to, err := a.m.Register(make([]byte, 8), btl.AccessRemoteWrite)
	require.NoError(t, err)
	op := b.newOp()
	op.Payload, op.Local, op.Remote = from.(*region).mem, from, to.Key()
	count := op.Done
	op.Done = func(op *btl.Op, err error) {
		count(op, err)
		require.Equal(t, depth, b.end().credits, "by notes in the same batch")
		flood(b)
	}
	b.under++
	require.NoError(t, b.end().Put(op))
	deliver()
	w.until("all fragments", func() bool { return len(a.arrived) == 2*depth && b.under == 0 })
	w.until("credits", func() bool { return b.end().credits > 0 })
	w.works()
}
