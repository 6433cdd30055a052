package pml

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/request"
)

func TestPoolKeepsNoMoreThanItsBound(t *testing.T) {
	var q pool[[1 << 10]byte]
	require.Nil(t, q.get())
	require.Equal(t, 2<<10, q.most())
	for range q.most() {
		require.True(t, q.put(new([1 << 10]byte)))
	}
	require.False(t, q.put(new([1 << 10]byte)))
	require.Equal(t, q.most(), len(q.free))
	last := q.free[len(q.free)-1]
	require.Same(t, last, q.get())
	require.Equal(t, q.most()-1, len(q.free))
}

// TestPoolsShrinkAfterBurst: pools do not keep the memory of many simultaneous operations.
func TestPoolsShrinkAfterBurst(t *testing.T) {
	const burst = 20_000
	w, c := newWire(t, 2)
	a, b := w.pmls[0], w.pmls[1]
	bound := map[any]bool{}
	a.eng.OnBound(func(obj any) { bound[obj] = true }, func(obj any) { delete(bound, obj) })
	recvs, sends := make([]*RecvRequest, burst), make([]*SendRequest, burst)
	for i := range burst {
		recvs[i] = b.Irecv(c[1], make([]byte, 8), 1, 0, i, "irecv")
	}
	for i := range burst {
		sends[i] = a.Isend(c[0], make([]byte, 8), 1, i, Synchronous, "issend")
	}
	require.Equal(t, burst, len(bound))
	w.settle()
	for i := range burst {
		require.Equal(t, request.Complete, sends[i].State())
		requireSuccess(t, sends[i], recvs[i])
	}
	require.Equal(t, len(a.freeSends.free), len(bound), "requests that no pool keeps are still bound to the engine")
	probes := make([]*ProbeRequest, a.freeProbe.most()+10)
	for i := range probes {
		probes[i] = a.Probe(c[0], 1, i, false, "probe")
	}
	for _, r := range probes {
		r.Cancel()
		st := requireSuccess(t, r)
		require.True(t, st.Cancelled)
	}

	assert.Equal(t, a.freeProbe.most(), len(a.freeProbe.free))
	assert.LessOrEqual(t, len(a.freeSends.free), a.freeSends.most())
	assert.LessOrEqual(t, len(b.freeRecvs.free), b.freeRecvs.most())
	for _, p := range w.pmls {
		assert.LessOrEqual(t, cap(p.sends.entries), minSlots)
		assert.LessOrEqual(t, cap(p.sends.free), minSlots)
		assert.LessOrEqual(t, cap(p.recvs.entries), minSlots)
	}
}

// TestHandleTableAgainstMap compares the table with a map, by random operations. The table does not
// find what was removed, and it shrinks even if some handles stay in use.
func TestHandleTableAgainstMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10 {
		var table handleTable[int]
		live := map[handle]*int{}
		var all, gone []handle
		add := func() {
			item := new(int)
			h := table.add(item)
			if live[h] != nil {
				t.Fatalf("%x is given out twice", h)
			}
			live[h] = item
			all = append(all, h)
		}
		remove := func(i int) {
			h := all[i]
			all[i] = all[len(all)-1]
			all = all[:len(all)-1]
			table.remove(h)
			table.remove(h) // has no effect
			delete(live, h)
			gone = append(gone, h)
		}
		check := func() {
			require.Equal(t, len(live), table.inUse())
			for h, item := range live {
				if table.get(h) != item {
					t.Fatalf("%x names something else", h)
				}
			}
			for _, h := range gone {
				if table.get(h) != nil {
					t.Fatalf("%x is found after it was removed", h)
				}
			}
			n := 0
			table.each(func(*int) { n++ })
			require.Equal(t, len(live), n)
		}
		most := minSlots + rng.IntN(4*minSlots)
		for len(all) < most {
			if add(); rng.IntN(4) == 0 {
				remove(rng.IntN(len(all)))
			}
		}
		check()
		few := rng.IntN(3)
		for len(all) > few {
			remove(rng.IntN(len(all)))
		}
		check()
		for range 2 * most { // the handles that stay move to the front
			add()
			remove(rng.IntN(len(all)))
		}
		check()
		require.Less(t, len(table.entries), 2*minSlots)
		require.Less(t, cap(table.free), 4*minSlots)
	}
}

// TestHandleTableShrinksDuringEach removes each handle from inside each.
func TestHandleTableShrinksDuringEach(t *testing.T) {
	var table handleTable[handle]
	for range 3 * minSlots {
		h := new(handle)
		*h = table.add(h)
	}
	n := 0
	table.each(func(h *handle) {
		table.remove(*h)
		n++
	})
	require.Equal(t, 3*minSlots, n)
	require.Zero(t, table.inUse())
	require.Equal(t, minSlots, len(table.entries))
}
