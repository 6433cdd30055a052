package comm

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/race"
	"github.com/mpigo/mpigo/request"
)

// finish waits for a request that a call has returned, after a start if it is persistent.
func finish(r request.Request, err error) {
	check(err)
	if r.IsPersistent() {
		check(r.Start())
	}
	must(r.Wait())
	if r.IsPersistent() {
		check(r.Free())
	}
}

// forEachForm runs body at n ranks for each form of calls.
func forEachForm(t *testing.T, n int, body func(w *Comm, how coll.How)) {
	for _, how := range []coll.How{blocking, nonblocking, persistent} {
		t.Run(fmt.Sprint(how.Of(calls.Alltoall), " ", n), func(t *testing.T) {
			run(t, n, func(w *Comm) { body(w, how) })
		})
	}
}

// A block that is sent to the previous rank arrives from the next rank. This also holds in
// dimensions of one and two places, where both are one rank. No block arrives over an edge that is
// not periodic.
func TestNeighborsInGrids(t *testing.T) {
	long := 30_000
	if race.Brief() {
		long = 10_000
	}
	for _, grid := range []struct {
		dims     []int
		periodic []bool
	}{
		{[]int{1}, []bool{true}},
		{[]int{1}, []bool{false}},
		{[]int{2}, []bool{true}},
		{[]int{2, 1, 2}, []bool{true, true, true}},
		{[]int{2, 3}, []bool{true, false}},
		{[]int{1, 2, 4}, []bool{false, true, true}},
		{[]int{}, []bool{}},
	} {
		n := 1
		for _, d := range grid.dims {
			n *= d
		}
		forEachForm(t, n, func(w *Comm, how coll.How) {
			c := must(w.Cart(grid.dims, grid.periodic))
			sources, dests := c.Neighbors()
			require.Equal(t, sources, dests)
			blocks := len(sources)
			for _, count := range []int{0, 1, 3, long} {
				// Block s of rank r has the value 100·r + s; it lands in block s XOR 1.
				in, out := make([]int, blocks*count), make([]int, blocks*count)
				var want []int
				for s := range blocks {
					for i := range count {
						in[s*count+i] = 100*c.Rank() + s
						out[s*count+i] = -1
						if sources[s] == ProcNull {
							want = append(want, -1)
						} else {
							want = append(want, 100*sources[s]+s^1)
						}
					}
				}
				finish(c.neighborAlltoall(how, bytesOf(in), bytesOf(out), int(sizeOf[int]()), elemOf[int64]()))
				require.Equal(t, want, append([]int(nil), out...))

				mine, all := make([]int, count), make([]int, blocks*count)
				for i := range mine {
					mine[i] = c.Rank()
				}
				for i := range all {
					all[i], want[i] = -1, -1
					if s := sources[i/count]; s != ProcNull {
						want[i] = s
					}
				}
				finish(c.neighborAllgather(how, bytesOf(mine), bytesOf(all), int(sizeOf[int]()), elemOf[int64]()))
				require.Equal(t, want, append([]int(nil), all...))
			}
			check(c.Free())
		})
	}
}

// Each edge of a graph carries its own block: edges to one rank are in the order of the lists, and
// the numbers of edges differ between ranks.
func TestNeighborsInGraphs(t *testing.T) {
	// Rank 0 sends to everybody twice, to itself once, and gets nothing; the others pass a ring.
	const n = 4
	forEachForm(t, n, func(w *Comm, how coll.How) {
		me := w.Rank()
		var sources, dests []int
		if me == 0 {
			sources, dests = []int{0}, []int{1, 2, 0, 3, 3, 2, 1}
		} else {
			sources, dests = []int{0, 1 + me%3, 0}, []int{1 + (me+1)%3}
		}
		c := must(w.Graph(sources, dests))
		in := make([]int, len(dests))
		for i := range in {
			in[i] = 100*me + i
		}
		counts := func(list []int) []int {
			var out []int
			for range list {
				out = append(out, 1)
			}
			return out
		}
		out := make([]int, len(sources))
		size := int(sizeOf[int]())
		finish(c.neighborAlltoallv(how, bytesOf(in), layout{counts(dests), nil, size}, bytesOf(out), layout{counts(sources), nil, size}, elemOf[int64]()))
		want := map[int][]int{0: {2}, 1: {0, 200, 6}, 2: {1, 300, 5}, 3: {3, 100, 4}}[me]
		require.Equal(t, want, out)

		all := make([]int, 2*len(sources))
		finish(c.neighborAllgatherv(how, bytesOf([]int{me, -me}), bytesOf(all), layout{repeat(2, len(sources)), nil, size}, elemOf[int64]()))
		for i, s := range sources {
			require.Equal(t, []int{s, -s}, all[2*i:2*i+2])
		}
		check(c.Free())
	})
}

func repeat(v, n int) (out []int) {
	for range n {
		out = append(out, v)
	}
	return out
}

// A rank without destinations, or without sources, passes no elements on that side.
func TestNeighborsOnOneSide(t *testing.T) {
	run(t, 2, func(w *Comm) {
		sources, dests := []int{}, []int{1, 1}
		in, out := []int{7, 8}, []int{}
		if w.Rank() == 1 {
			sources, dests, in, out = []int{0, 0}, []int{}, []int{}, make([]int, 2)
		}
		c := must(w.Graph(sources, dests))
		check(NeighborAlltoall(c, in, out))
		if w.Rank() == 1 {
			assert.Equal(t, []int{7, 8}, out)
		}
		check(NeighborAllgather(c, in[:len(in)/2], out))
		if w.Rank() == 1 {
			assert.Equal(t, []int{7, 7}, out)
		}
		check(c.Free())
	})
}

// Bad arguments are errors.
func TestNeighborsWithBadArguments(t *testing.T) {
	run(t, 2, func(w *Comm) {
		assert.ErrorIs(t, NeighborAllgather(w, []int{1}, []int{1}), ErrComm, "no topology")
		for _, call := range []func(c *Comm) error{
			func(c *Comm) error { return NeighborAllgather(c, []int{1}, []int{1}) },
			func(c *Comm) error { return NeighborAlltoall(c, []int{1}, []int{1, 2}) },
			func(c *Comm) error { return NeighborAlltoall(c, []int{1, 2}, []int{1, 2, 3, 4}) },
			func(c *Comm) error { return NeighborAllgatherv(c, []int{1}, []int{1, 2}, []int{1}, nil) },
			func(c *Comm) error {
				return NeighborAlltoallv(c, []int{1, 2}, []int{1, 2}, nil, []int{1, 2}, []int{1, 1}, nil)
			},
		} {
			c := must(w.Cart([]int{2}, []bool{true}))
			assert.ErrorIs(t, call(c), ErrCount)
			check(c.Free())
		}
	})
}

// Communicators of several Idups exist when their requests are complete.
func TestIdup(t *testing.T) {
	run(t, 3, func(w *Comm) {
		key := NewAttrKey(func(v int) (int, bool) { return v + 1, true })
		check(SetAttr(w, key, w.Rank()))
		var comms []*Comm
		var reqs []request.Request
		for range 5 {
			c, r, err := w.Idup()
			check(err)
			comms, reqs = append(comms, c), append(reqs, r)
		}
		if w.Rank() == 0 {
			_, _, early, err := comms[4].Improbe(0, 0)
			assert.False(t, early)
			if err != nil { // it exists already if the other ranks were fast
				assert.ErrorIs(t, err, ErrComm)
			}
		}
		check(request.WaitAll(reqs...))
		for i, c := range comms {
			assert.Equal(t, Congruent, c.Compare(w))
			v, ok := GetAttr(c, key)
			assert.True(t, ok)
			assert.Equal(t, w.Rank()+1, v)
			sum := []int{i}
			check(Allreduce(c, nil, sum, Sum))
			assert.Equal(t, 3*i, sum[0])
			check(c.Free())
		}
	})
}

// TestIdupsOfOverlappingCommunicators has the cases of MPICH's comm_idup tests: communicators that
// have some ranks in common, and one whose ranks have another order, are duplicated twice at once,
// while messages and barriers are under way in them. Each rank completes them in another order.
func TestIdupsOfOverlappingCommunicators(t *testing.T) {
	const n = 4
	run(t, n, func(w *Comm) {
		me := w.Rank()
		color := func(in bool) int {
			if in {
				return 0
			}
			return Undefined
		}
		parents := []*Comm{must(w.Split(0, -me)), must(w.Split(color(me < 3), 0)), must(w.Split(color(me > 0), 0)), w}
		var copies []*Comm
		var reqs []request.Request
		in := make([]int, len(parents))
		for i, p := range parents {
			if p == nil {
				continue
			}
			next, before := (p.Rank()+1)%p.Size(), (p.Rank()+p.Size()-1)%p.Size()
			recv := must(Irecv(p, in[i:i+1], before, 0))
			for range 2 {
				c, r, err := p.Idup()
				check(err)
				copies, reqs = append(copies, c), append(reqs, r)
				reqs = append(reqs, must(p.Ibarrier()))
			}
			reqs = append(reqs, recv, must(Isend(p, []int{10*i + p.Rank()}, next, 0)))
		}
		for k := range reqs {
			must(reqs[(k*7+me*3)%len(reqs)].Wait())
		}
		check(request.WaitAll(reqs...))
		for i, p := range parents {
			if p != nil && in[i] != 10*i+(p.Rank()+p.Size()-1)%p.Size() {
				failf("message in parent %d: %d", i, in[i])
			}
		}
		for k, c := range copies {
			ranks := []int{c.Rank()}
			check(errors.Join(Allreduce(c, nil, ranks, Sum), same(fmt.Sprint("copy ", k), []int{c.Size() * (c.Size() - 1) / 2}, ranks)))
			check(c.Free())
		}
	})
}
