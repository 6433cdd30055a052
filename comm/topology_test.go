package comm_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mpigo/mpigo/comm"
)

// dimsOf is Dims of a copy.
func dimsOf(ranks int, dims ...int) ([]int, error) {
	dims = slices.Clone(dims)
	err := comm.Dims(ranks, dims)
	return dims, err
}

// TestDimsDividesEvenly has the cases of MPICH's dims0 to dims4, some of dims5's, and others.
func TestDimsDividesEvenly(t *testing.T) {
	require.NoError(t, comm.Dims(1, nil))
	for _, c := range []struct {
		ranks      int
		dims, want []int
	}{
		{1, []int{0, 0, 0}, []int{1, 1, 1}},
		{16, []int{0, 0, 0}, []int{4, 2, 2}},
		{6, []int{0, 0}, []int{3, 2}},
		{7, []int{0, 0}, []int{7, 1}},
		{6, []int{0, 3, 0}, []int{2, 3, 1}},
		{11, []int{0, 0}, []int{11, 1}},
		{14, []int{0, 0}, []int{7, 2}},
		{64, []int{0, 0, 0, 0}, []int{4, 4, 2, 2}},
		{385, []int{0, 0, 0, 0}, []int{11, 7, 5, 1}},
		{2310, []int{0, 0}, []int{55, 42}},
		{13860, []int{0, 0}, []int{126, 110}},
		{1_000_000_000, []int{0, 0, 0}, []int{1000, 1000, 1000}},
		{8, []int{0, 8}, []int{1, 8}},
		{8, []int{1, 8}, []int{1, 8}},
		{32, []int{0, 16, 0, 2}, []int{1, 16, 1, 2}},
		{32, []int{1, 16, 1, 2}, []int{1, 16, 1, 2}},
		{72, []int{0, 0}, []int{9, 8}},
		{22896, []int{0, 0}, []int{159, 144}},
		{5733, []int{0, 0}, []int{91, 63}},
		{1 << 30, make([]int, 20), append(slices.Repeat([]int{4}, 10), slices.Repeat([]int{2}, 10)...)},
		{math.MaxInt32, []int{0, 0}, []int{math.MaxInt32, 1}},
	} {
		got, err := dimsOf(c.ranks, c.dims...)
		require.NoError(t, err)
		assert.Equal(t, c.want, got, "%d ranks in %v", c.ranks, c.dims)
	}
	for ranks := 2; ranks <= 4096; ranks *= 2 {
		for n := 3; n <= 4; n++ {
			got := must(dimsOf(ranks, make([]int, n)...))
			for i := range n - 1 {
				assert.LessOrEqual(t, got[i]/2, got[i+1], "%d ranks: %v", ranks, got)
			}
		}
	}
}

func TestDimsRefusesWhatCannotBe(t *testing.T) {
	for _, c := range [][]int{{0}, {-4, 2}, {6, -3}, {6, 4, 0}, {7, 2, 2}, {6, 0, -1}, {4, 8}, {4, math.MaxInt, 2, 0}} {
		got, err := dimsOf(c[0], c[1:]...)
		assert.ErrorIs(t, err, comm.ErrCount, c)
		assert.Equal(t, c[1:], append([]int{}, got...), "unchanged")
	}
	_, err := dimsOf(6, 4, 0)
	assert.EqualError(t, err, "dims: invalid count: the product of the given dimensions does not divide 6")
}

// TestDimsAgreesWithSearch: among all divisions, the first dimension is the least, then the second,
// and so on.
func TestDimsAgreesWithSearch(t *testing.T) {
	var best []int
	var search func(n, limit int, before []int, k int)
	search = func(n, limit int, before []int, k int) {
		if k == 1 {
			if all := append(slices.Clone(before), n); n <= limit && (best == nil || slices.Compare(all, best) < 0) {
				best = all
			}
			return
		}
		for d := 1; d <= min(n, limit); d++ {
			if n%d == 0 {
				search(n/d, d, append(slices.Clone(before), d), k-1)
			}
		}
	}
	for k := 1; k <= 4; k++ {
		for n := 1; n <= 400; n++ {
			best = nil
			search(n, n, nil, k)
			require.Equal(t, best, must(dimsOf(n, make([]int, k)...)), "%d in %d", n, k)
		}
	}
}

// checkCart compares a Cartesian communicator with a naive model, in which ranks list the
// coordinates in order.
func checkCart(t require.TestingT, c *comm.Comm, dims []int, periodic []bool) {
	gotDims, gotPeriodic := c.CartDims()
	require.Equal(t, dims, gotDims)
	require.Equal(t, periodic, gotPeriodic)
	places := [][]int{{}}
	for _, n := range dims {
		var next [][]int
		for _, p := range places {
			for x := range n {
				next = append(next, append(slices.Clone(p), x))
			}
		}
		places = next
	}
	require.Equal(t, len(places), c.Size())
	find := func(place []int) int {
		place = slices.Clone(place)
		for i, n := range dims {
			if periodic[i] {
				place[i] = (place[i]%n + n) % n
			}
		}
		if r := slices.IndexFunc(places, func(p []int) bool { return slices.Equal(p, place) }); r >= 0 {
			return r
		}
		return comm.ProcNull
	}
	var neighbors = []int{}
	for r, p := range places {
		require.Equal(t, p, must(c.CartCoords(r)))
		require.Equal(t, r, must(c.CartRank(p...)))
	}
	for dim := range dims {
		for _, disp := range []int{0, 1, -1, 2, -3, 7, math.MaxInt, math.MinInt} {
			move := func(by int) int {
				p := slices.Clone(places[c.Rank()])
				if periodic[dim] {
					by %= dims[dim]
				} else if by > 1000 || by < -1000 {
					return comm.ProcNull
				}
				p[dim] += by
				return find(p)
			}
			source, dest, err := c.CartShift(dim, disp)
			require.NoError(t, err)
			require.Equal(t, move(disp), dest, "shift by %d", disp)
			back := -disp
			if disp == math.MinInt {
				back = -(math.MinInt % dims[dim])
				if !periodic[dim] {
					back = math.MaxInt
				}
			}
			require.Equal(t, move(back), source, "shift by %d", disp)
			far := slices.Clone(places[c.Rank()])
			far[dim] = disp
			got, err := c.CartRank(far...)
			if want := find(far); want == comm.ProcNull {
				require.ErrorIs(t, err, comm.ErrRank)
			} else {
				require.Equal(t, want, got)
			}
			if disp == -1 || disp == 1 {
				neighbors = append(neighbors, dest)
			}
		}
	}
	for i := 0; i < len(neighbors); i += 2 { // the list above has 1 before −1
		neighbors[i], neighbors[i+1] = neighbors[i+1], neighbors[i]
	}
	sources, dests := c.Neighbors()
	require.Equal(t, neighbors, sources)
	require.Equal(t, neighbors, dests)
}

// TestCartAgreesWithModel: random grids, and all of their parts.
func TestCartAgreesWithModel(t *testing.T) {
	const n = 12
	run(t, n, func(t rank, w *comm.Comm) {
		for _, c := range []struct {
			dims     []int
			periodic []bool
		}{
			{[]int{}, []bool{}},
			{[]int{n}, []bool{true}},
			{[]int{n}, []bool{false}},
			{[]int{1}, []bool{true}},
			{[]int{2, 1, 3}, []bool{true, true, false}},
			{[]int{3, 4}, []bool{true, false}},
			{[]int{2, 2, 3}, []bool{false, true, true}},
			{[]int{5, 2}, []bool{false, false}},
			{[]int{1, 1, 1, 2}, []bool{true, false, true, false}},
		} {
			places := 1
			for _, n := range c.dims {
				places *= n
			}
			cart := must(w.Cart(c.dims, c.periodic))
			if w.Rank() >= places {
				assert.Nil(t, cart, "left over")
				dims, periodic := cart.CartDims()
				assert.Nil(t, dims)
				assert.Nil(t, periodic)
				continue
			}
			assert.Equal(t, w.Rank(), cart.Rank())
			checkCart(t, cart, c.dims, c.periodic)
			ringOf(t, cart)
			for bits := range 1 << len(c.dims) {
				var keep, periodic = make([]bool, len(c.dims)), []bool{}
				dims := []int{}
				for i := range keep {
					if keep[i] = bits>>i&1 != 0; keep[i] {
						dims, periodic = append(dims, c.dims[i]), append(periodic, c.periodic[i])
					}
				}
				sub := must(cart.CartSub(keep...))
				checkCart(t, sub, dims, periodic)
				ringOf(t, sub)
				// All members have the same coordinates in the other dimensions.
				for r, world := range sub.Group().Ranks() {
					coords, own := must(cart.CartCoords(world)), must(cart.CartCoords(cart.Rank()))
					var kept []int
					for i := range keep {
						if keep[i] {
							kept = append(kept, coords[i])
						} else {
							assert.Equal(t, own[i], coords[i])
						}
					}
					assert.Equal(t, r, must(sub.CartRank(kept...)))
				}
				require.NoError(t, sub.Free())
			}
			require.NoError(t, cart.Free())
			checkCart(t, cart, c.dims, c.periodic) // also after Free
		}
	})
}

// TestCartShiftOfRing has the cases of MPICH's cartshift.
func TestCartShiftOfRing(t *testing.T) {
	const n = 4
	run(t, n, func(t rank, w *comm.Comm) {
		me := w.Rank()
		for _, periodic := range []bool{true, false} {
			c := must(w.Cart([]int{n}, []bool{periodic}))
			at := func(r int) int {
				if periodic {
					return (r + n) % n
				}
				if r < 0 || r >= n {
					return comm.ProcNull
				}
				return r
			}
			for _, disp := range []int{1, 0, -1} {
				source, dest := must2(c.CartShift(0, disp))
				assert.Equal(t, []int{at(me - disp), at(me + disp)}, []int{source, dest})
			}
			in := []int{-5}
			source, dest := must2(c.CartShift(0, 1))
			must(comm.Sendrecv(c, []int{me}, dest, 0, in, source, 0))
			if source == comm.ProcNull {
				assert.Equal(t, -5, in[0])
			} else {
				assert.Equal(t, source, in[0])
			}
			require.NoError(t, c.Free())
		}
	})
}

// TestCartOfFewerRanks has the cases of MPICH's cartcreates, cartzero and cartsuball.
func TestCartOfFewerRanks(t *testing.T) {
	const n = 6
	run(t, n, func(t rank, w *comm.Comm) {
		isMine := func(c *comm.Comm, size int) {
			t.Helper()
			assert.Equal(t, w.Rank() < size, c != nil)
			if c != nil {
				assert.Equal(t, size, c.Size())
				require.NoError(t, c.Free())
			}
		}
		dims := []int{0, 0}
		require.NoError(t, comm.Dims(n-1, dims))
		isMine(must(w.Cart(dims, []bool{false, false})), n-1)
		isMine(must(w.Cart([]int{1, 1}, []bool{true, true})), 1)
		zero := must(w.Cart(nil, nil))
		if zero != nil {
			got, periodic := zero.CartDims()
			assert.Equal(t, []int{}, got)
			assert.Equal(t, []bool{}, periodic)
			assert.Equal(t, []int{}, must(zero.CartCoords(0)))
			assert.Equal(t, 0, must(zero.CartRank()))
			assert.ErrorIs(t, errOf2(zero.CartShift(0, 1)), comm.ErrCount)
			checkCart(t, must(zero.CartSub()), []int{}, []bool{})
		}
		isMine(zero, 1)
		// No dimension is kept.
		c := must(w.Cart([]int{n}, []bool{false}))
		alone := must(c.CartSub(false))
		assert.Equal(t, 1, alone.Size())
		checkCart(t, alone, []int{}, []bool{})
		require.NoError(t, errors.Join(alone.Barrier(), alone.Free(), c.Free()))
	})
}

func TestCartRefusesBadArguments(t *testing.T) {
	const n = 4
	run(t, n, func(t rank, w *comm.Comm) {
		for _, c := range []struct {
			dims     []int
			periodic []bool
		}{
			{[]int{0}, []bool{false}},
			{[]int{-2, -2}, []bool{false, false}},
			{[]int{2, 3}, []bool{false, false}},
			{[]int{2, 2}, []bool{false}},
			{[]int{2}, nil},
			{nil, []bool{true}},
			{[]int{math.MaxInt, math.MaxInt, 4}, []bool{false, false, false}},
		} {
			got, err := w.Cart(c.dims, c.periodic)
			assert.Nil(t, got)
			assert.ErrorIs(t, err, comm.ErrCount, c)
			isErrorOf(t, err, "cart", comm.Undefined, comm.Undefined)
			// Only one rank.
			if w.Rank() != 2 {
				c.dims, c.periodic = []int{2, 2}, []bool{true, true}
			}
			assert.Error(t, errOf(w.Cart(c.dims, c.periodic)))
		}
		// Ranks differ.
		for _, differ := range []func(odd bool) ([]int, []bool){
			func(odd bool) ([]int, []bool) { return []int{map[bool]int{true: 3, false: 4}[odd]}, []bool{true} },
			func(odd bool) ([]int, []bool) { return []int{4}, []bool{odd} },
			func(odd bool) ([]int, []bool) {
				return [][]int{{2, 2}, {4}}[map[bool]int{true: 1}[odd]], []bool{true, true}[map[bool]int{true: 1}[odd]:]
			},
		} {
			for odd := range n {
				got, err := w.Cart(differ(w.Rank() == odd))
				assert.Nil(t, got)
				assert.ErrorIs(t, err, comm.ErrCount)
			}
		}
		for _, c := range []*comm.Comm{w, must(w.Graph(nil, nil)), nil} {
			assert.ErrorIs(t, errOf(c.CartCoords(0)), comm.ErrComm)
			assert.ErrorIs(t, errOf(c.CartRank(0)), comm.ErrComm)
			assert.ErrorIs(t, errOf2(c.CartShift(0, 0)), comm.ErrComm)
			assert.ErrorIs(t, errOf(c.CartSub()), comm.ErrComm)
			dims, periodic := c.CartDims()
			assert.Nil(t, dims)
			assert.Nil(t, periodic)
			if c != nil && c != w {
				require.NoError(t, c.Free())
			}
		}
		assert.ErrorIs(t, errOf((*comm.Comm)(nil).Cart(nil, nil)), comm.ErrComm)
		c := must(w.Cart([]int{2, 2}, []bool{true, false}))
		for _, r := range []int{-1, 4, comm.ProcNull} {
			assert.ErrorIs(t, errOf(c.CartCoords(r)), comm.ErrRank)
		}
		for _, coords := range [][]int{{0, 2}, {1, -1}, {5, 9}} {
			got, err := c.CartRank(coords...)
			assert.ErrorIs(t, err, comm.ErrRank)
			assert.Equal(t, comm.Undefined, got)
		}
		assert.Equal(t, 3, must(c.CartRank(-3, 1)))
		for _, coords := range [][]int{{}, {0}, {0, 0, 0}} {
			assert.ErrorIs(t, errOf(c.CartRank(coords...)), comm.ErrCount)
		}
		for _, dim := range []int{-1, 2} {
			assert.ErrorIs(t, errOf2(c.CartShift(dim, 1)), comm.ErrCount)
		}
		assert.ErrorIs(t, errOf(c.CartSub(true)), comm.ErrCount)
		assert.ErrorIs(t, errOf(c.CartSub(true, true, true)), comm.ErrCount)
		assert.ErrorIs(t, errOf(c.CartSub(true, c.Rank() == 1)), comm.ErrCount)
		keep := []bool{true, false}
		if c.Rank() == 3 {
			keep = keep[1:]
		}
		assert.Error(t, errOf(c.CartSub(keep...)), "one rank")
		require.NoError(t, errors.Join(c.Barrier(), c.Free(), w.Barrier()))
	})
}

// TestTopologyOfDerivedCommunicators has the case of MPICH's topodup, and others: Dup copies the
// topology, and nothing else does.
func TestTopologyOfDerivedCommunicators(t *testing.T) {
	run(t, 4, func(t rank, w *comm.Comm) {
		me := w.Rank()
		cart := must(w.Cart([]int{2, 2}, []bool{true, false}))
		dup := must(cart.Dup())
		checkCart(t, dup, []int{2, 2}, []bool{true, false})
		sub := must(must(dup.CartSub(false, true)).Dup())
		checkCart(t, sub, []int{2}, []bool{false})
		graph := must(cart.Graph([]int{(me + 1) % 4}, []int{(me + 3) % 4}))
		again := must(graph.Dup())
		for _, g := range []*comm.Comm{graph, again} {
			dims, _ := g.CartDims()
			assert.Nil(t, dims, "a graph made from a grid has no grid")
			sources, dests := g.Neighbors()
			assert.Equal(t, []int{(me + 1) % 4}, sources)
			assert.Equal(t, []int{(me + 3) % 4}, dests)
			sources[0] = 77 // a copy
		}
		dist := must(cart.DistGraph(nil))
		for _, c := range []*comm.Comm{
			must(cart.Split(0, 0)), must(cart.SplitHost(0)), must(cart.SplitBy(comm.SplitCore, 0)),
			must(cart.Create(w.Group())), must(cart.CreateGroup(w.Group(), 0)), w, nil,
		} {
			dims, periodic := c.CartDims()
			assert.Nil(t, dims)
			assert.Nil(t, periodic)
			sources, dests := c.Neighbors()
			assert.Nil(t, sources)
			assert.Nil(t, dests)
		}
		dims, _ := dist.CartDims()
		assert.Nil(t, dims)
		sources, dests := dist.Neighbors()
		assert.Equal(t, [][]int{{}, {}}, [][]int{sources, dests})
	})
}

// TestGraphKeepsNeighbors has the cases of MPICH's distgraph1, dgraph_unwgt and graphcr1 and 2:
// complete, random and empty graphs, edges to oneself, and duplicates.
func TestGraphKeepsNeighbors(t *testing.T) {
	const n = 5
	run(t, n, func(t rank, w *comm.Comm) {
		me := w.Rank()
		for seed, has := range []func(from, to int) int{
			func(from, to int) int { return 1 },
			func(from, to int) int { return to % 2 },
			func(from, to int) int { return map[bool]int{true: 2}[from == to] },
			func(from, to int) int { return 0 },
			func(from, to int) int { return map[bool]int{true: 1}[to == (from+1)%n] },
			func(from, to int) int { return (from*7 + to*5) % 4 },
			func(from, to int) int { return (from*3 + to*11) % 3 },
		} {
			sources, dests := []int{}, []int{}
			edges := map[string]map[int][]int{"sources": {}, "dests": {}, "one": {}}
			for a := range n {
				for b := range n {
					for range has(a, b) {
						if b == me {
							sources = append(sources, a)
							edges["sources"][a] = append(edges["sources"][a], b)
						}
						if a == me {
							dests = append(dests, b)
							edges["dests"][a] = append(edges["dests"][a], b)
						}
						if me == 0 { // it passes the whole graph
							edges["one"][a] = append(edges["one"][a], b)
						}
					}
				}
			}
			for _, name := range []string{"sources", "dests", "one"} {
				c := must(w.DistGraph(edges[name]))
				gotSources, gotDests := c.Neighbors()
				assert.Equal(t, sources, gotSources, "%d %s", seed, name)
				assert.Equal(t, dests, gotDests, "%d %s", seed, name)
				ringOf(t, c)
				require.NoError(t, c.Free())
			}
			// The order is that of the arguments.
			slices.Reverse(sources)
			c := must(w.Graph(sources, dests))
			dup := must(c.Dup())
			gotSources, gotDests := dup.Neighbors()
			assert.Equal(t, sources, gotSources)
			assert.Equal(t, dests, gotDests)
			ringOf(t, dup)
			require.NoError(t, errors.Join(c.Free(), dup.Free()))
		}
	})
}

func TestGraphRefusesBadArguments(t *testing.T) {
	const n = 3
	run(t, n, func(t rank, w *comm.Comm) {
		for _, bad := range []int{-1, n, comm.ProcNull} {
			for odd := range n {
				var sources, dests []int
				edges, want := map[int][]int{0: {1}}, comm.ErrComm
				if w.Rank() == odd {
					sources, edges, want = []int{bad}, map[int][]int{0: {1}, 1: {bad}}, comm.ErrRank
				}
				assert.ErrorIs(t, errOf(w.Graph(sources, dests)), want)
				assert.ErrorIs(t, errOf(w.Graph(dests, sources)), want)
				assert.ErrorIs(t, errOf(w.DistGraph(edges)), want)
				if w.Rank() == odd {
					edges = map[int][]int{bad: {}}
				}
				assert.ErrorIs(t, errOf(w.DistGraph(edges)), want)
			}
		}
		_, err := w.Graph(nil, []int{0, 9})
		comm.EqualError(t, err, "world: graph: destination 1: invalid rank: 9 is not in 0…2")
		// One end of an edge does not name it, or not as often.
		for odd := range n {
			sources, dests := []int{(w.Rank() + 1) % n}, []int{(w.Rank() + 2) % n}
			if w.Rank() == odd {
				dests = append(dests, dests[0])
			}
			assert.ErrorIs(t, errOf(w.Graph(sources, dests)), comm.ErrCount)
			if w.Rank() == odd {
				dests = []int{(w.Rank() + 1) % n}
			}
			assert.ErrorIs(t, errOf(w.Graph(sources, dests)), comm.ErrCount)
			if w.Rank() == odd {
				sources, dests = nil, nil
			}
			assert.ErrorIs(t, errOf(w.Graph(sources, dests)), comm.ErrCount)
		}
		for _, c := range []*comm.Comm{nil} {
			assert.ErrorIs(t, errOf(c.Graph(nil, nil)), comm.ErrComm)
			assert.ErrorIs(t, errOf(c.DistGraph(nil)), comm.ErrComm)
		}
		require.NoError(t, w.Barrier())
	})
}

// TestDistGraphAgreesWithModel: random edges, named by random ranks.
func TestDistGraphAgreesWithModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(rt, "ranks")
		named := make([]map[int][]int, n)
		sources, dests := make([][]int, n), make([][]int, n)
		for r := range n {
			named[r], sources[r], dests[r] = map[int][]int{}, []int{}, []int{}
		}
		one := rapid.IntRange(0, n-1)
		for range rapid.IntRange(0, 20).Draw(rt, "edges") {
			by, from, to := one.Draw(rt, "by"), one.Draw(rt, "from"), one.Draw(rt, "to")
			named[by][from] = append(named[by][from], to)
			sources[to], dests[from] = append(sources[to], from), append(dests[from], to)
		}
		require.NoError(rt, comm.RunLocal(n, func(w *comm.Comm) error {
			c, err := w.DistGraph(named[w.Rank()])
			if err != nil {
				return err
			}
			again := must(w.DistGraph(named[w.Rank()]))
			in, out := c.Neighbors()
			in2, out2 := again.Neighbors()
			expect([][]int{in, out}, [][]int{in2, out2}, "the same at every call")
			slices.Sort(in)
			slices.Sort(out)
			wantIn, wantOut := slices.Sorted(slices.Values(sources[w.Rank()])), slices.Sorted(slices.Values(dests[w.Rank()]))
			if !slices.Equal(wantIn, in) || !slices.Equal(wantOut, out) {
				return fmt.Errorf("got %v %v, want %v %v", in, out, wantIn, wantOut)
			}
			return errors.Join(c.Free(), again.Free())
		}))
	})
}
