package bml

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

// Pieces of a long message that wait for room go by another rail when everything else is handed
// out, and the message is whole.
func TestQueuedPiecesGoByAnotherRail(t *testing.T) {
	w, r, pr := newDeferredWire(t)
	in := pattern(2000, 3)
	w.ranks[1].message = make([]byte, len(in))
	m := r.sendLong(1, in)
	require.True(t, slicesHasRail(m.t.pieces, 0))
	w.rails[0][0].full = true // later operations wait
	for range 50 {
		w.pass(5 * msec)
		for len(w.flying) > 0 {
			w.step(0)
		}
		if m.isDone {
			break
		}
	}
	require.True(t, m.isDone)
	require.NoError(t, m.err)
	require.Zero(t, pr.rails[0].queue.Len())
	require.Equal(t, in, w.ranks[1].message)
	require.Zero(t, r.Stats().RailsFailed)
}

// slicesHasRail reports whether a piece goes by a rail.
func slicesHasRail(pieces []*Op, rail uint8) bool {
	for _, op := range pieces {
		if op.rail == rail {
			return true
		}
	}
	return false
}

// Operations that wait for room stay on their rail, in order, during other events.
func TestQueuedOperationsStayInOrder(t *testing.T) {
	w, r, pr := newDeferredWire(t)
	w.rails[0][0].full = true
	ops := []*Op{r.op("first"), r.op("second"), r.op("third")}
	for _, op := range ops {
		r.Send(pr, op)
	}
	w.pass(sec)
	require.Equal(t, len(ops), pr.rails[0].queue.Len())
	w.rails[0][0].full = false
	w.settle()
	require.Equal(t, []string{"first", "second", "third"}, w.ranks[1].got)
}

// Operations that wait on a rail that fails go by another rail, in order. None is lost if that rail
// has failed, too, or is the peer's last one.
func TestQueueLeavesRailThatFails(t *testing.T) {
	for _, isLast := range []bool{false, true} {
		w, r, pr := newDeferredWire(t)
		w.mended = false
		w.rails[0][0].full = true
		for _, payload := range []string{"a", "b", "c"} {
			r.send(1, payload)
		}
		require.Equal(t, 3, pr.rails[0].queue.Len())
		if isLast {
			w.rails[1][0].down[1] = btl.ErrInjected // not an error that the contract names
		}
		w.rails[0][0].lose(1, pathError(0))
		if isLast {
			require.False(t, pr.IsAlive())
			w.rails[1][0].drain(1)
		}
		w.settle()
		require.Len(t, r.sent, 3)
		for _, err := range r.sent {
			require.Equal(t, isLast, err != nil)
		}
		if !isLast {
			require.Equal(t, []string{"a", "b", "c"}, w.ranks[1].got)
		}
	}
}

// While an operation waits for room on the first rail, no fragment goes inline. Operations that
// wait on another rail do not prevent that.
func TestInlineWhileOperationsWaitForRoom(t *testing.T) {
	for rail := range 2 {
		w := newWire(t, 2, withRails(3), withGrace(10*sec), func(w *wire) {
			for i := range w.attrs {
				w.attrs[i].Caps |= btl.CapInline
				w.attrs[i].InlineBytes = 40
			}
		})
		resolve(w)
		r, pr := w.ranks[0], w.ranks[0].Peer(1)
		w.rails[rail][0].full = true
		bound := r.op("bound")
		bound.bound = true
		r.post(&pr.rails[rail], bound)
		w.pass(190 * msec)
		w.rails[2][0].fail(1, pathError(2))
		w.pass(20 * msec)
		require.Equal(t, rail == 1, pr.HasInline())
		require.NotZero(t, pr.rails[rail].queue.Len())
		w.rails[rail][0].full = false
		w.pass(msec)
		require.True(t, pr.HasInline())
	}
}

// TestOperationEndsWhileItsQueueIsEmptied: an operation that ends while those before it are handed
// on, because one of them was delivered at once, ends once, and is not handed on.
func TestOperationEndsWhileItsQueueIsEmptied(t *testing.T) {
	w, r, pr := newDeferredWire(t)
	w.rails[0][0].full = true
	ops := []*Op{r.op("first"), r.op("second"), r.op("third"), r.op("fourth")}
	ended := 0
	for _, op := range ops {
		r.Send(pr, op)
		op.Then = func(*Op, error) { ended++ }
	}
	var handedOn []int
	pr.empty(&pr.rails[0].queue, func(op *Op) {
		handedOn = append(handedOn, slices.Index(ops, op))
		push(&pr.rails[0].queue, op)
		if op == ops[0] {
			r.EndQueued(ops[1], nil)
			r.EndQueued(ops[3], nil)
			pr.empty(&pr.waiting, func(*Op) {})
			pr.empty(&pr.rails[0].queue, func(op *Op) { push(&pr.waiting, op) })
		}
	})
	require.Equal(t, []int{0, 2}, handedOn)
	require.Equal(t, 2, ended)
	require.Equal(t, []int{1, 1}, []int{pr.rails[0].queue.Len(), pr.waiting.Len()})
	require.Empty(t, pr.emptied)
}
