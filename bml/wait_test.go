package bml

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Transfers that wait for room go on in turn, a piece each, until one finds none. The next delivery
// goes on with that one.
func TestWaitingTransfersTakeTurns(t *testing.T) {
	_, r, pr := newDeferredWire(t)
	var order []string
	room := 0
	add := func(name string) *Transfer {
		var tr *Transfer
		tr = r.Transfer(nil, pr, func() {
			order = append(order, name)
			if room > 0 {
				room--
				before := tr.left
				tr.take(10)
				pr.addLeft(tr.left, before)
			}
			tr.awaits(waitsForRoom)
		})
		tr.Begin(0, 1000)
		tr.awaits(waitsForRoom)
		return tr
	}
	add("a")
	b := add("b")
	add("c")
	for _, c := range []struct {
		room  int
		order []string
	}{
		{5, []string{"a", "b", "c"}}, // each of them once
		{1, []string{"a", "b"}},
		{1, []string{"c", "a"}},
		{0, []string{"b"}},
		{2, []string{"c", "a", "b"}},
	} {
		room, order = c.room, nil
		r.pull(pr)
		require.Equal(t, c.order, order)
		require.Len(t, pr.waitRoom, 3)
	}
	r.EndTransfer(b, false, false)
	room, order = 5, nil
	r.pull(pr)
	require.ElementsMatch(t, []string{"a", "c"}, order)
}

// A transfer may end others, or call pull, while it goes on.
func TestTransferEndsOthersWhileItGoesOn(t *testing.T) {
	for _, all := range []bool{false, true} {
		_, r, pr := newDeferredWire(t)
		var others []*Transfer
		resumed := 0
		var first *Transfer
		first = r.Transfer(nil, pr, func() {
			first.take(10)
			if !all {
				r.pull(pr) // does nothing
			}
			for _, o := range others {
				r.EndTransfer(o, false, false)
			}
			others = nil
		})
		first.Begin(0, 100)
		first.awaits(waitsForRoom)
		for range 3 {
			o := r.Transfer(nil, pr, func() { resumed++ })
			o.Begin(0, 100)
			o.awaits(waitsForRoom)
			others = append(others, o)
		}
		if all {
			r.resumeAll(pr, waitsForRoom)
		} else {
			r.pull(pr)
		}
		require.Zero(t, resumed)
		require.Empty(t, pr.waitRoom)
		require.Len(t, pr.transfers, 1)
		require.False(t, pr.isPulling)
	}
}

// A transfer is only in the list for what it waits for.
func TestTransferIsInOneList(t *testing.T) {
	_, r, pr := newDeferredWire(t)
	tr := r.Transfer(nil, pr, nil)
	for _, what := range []waitsFor{waitsForRoom, waitsForRoom, waitsForFence, waitsForFence, waitsForRoom, waitsForNothing, waitsForFence, waitsForNothing} {
		tr.awaits(what)
		in := func(l waitsFor) int {
			if what == l {
				return 1
			}
			return 0
		}
		require.Len(t, pr.waitRoom, in(waitsForRoom))
		require.Len(t, pr.waitFence, in(waitsForFence))
	}
}
