package comm_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mpigo/mpigo/comm"
)

// worldOf returns the group of n ranks.
func worldOf(t testing.TB, n int) (g comm.Group) {
	run(t, n, func(t rank, w *comm.Comm) {
		if w.Rank() == 0 {
			g = w.Group()
		}
	})
	return g
}

// upTo lists the numbers from first to last, by steps.
func upTo(first, last, step int) (list []int) {
	for i := first; i <= last && step > 0 || i >= last && step < 0; i += step {
		list = append(list, i)
	}
	return list
}

// TestGroupsOfWorld has the cases of MPICH's grouptest.
func TestGroupsOfWorld(t *testing.T) {
	const n = 8
	run(t, n, func(t rank, w *comm.Comm) {
		me, world := w.Rank(), w.Group()
		ranks := []int{me, 2, 7}
		if me == 2 {
			ranks[1] = 3
		}
		if me == 7 {
			ranks[2] = 6
		}
		g := must(world.Incl(ranks...))
		assert.Equal(t, 3, g.Size())
		assert.Equal(t, 0, g.Rank(me))
		assert.Equal(t, ranks, g.Translate([]int{0, 1, 2}, world))

		self := must(world.Incl(me))
		assert.Equal(t, []int{me}, self.Translate([]int{0}, world))
		for r, in := range world.Translate(upTo(0, n-1, 1), self) {
			if r == me {
				assert.Equal(t, 0, in)
			} else {
				assert.Equal(t, comm.Undefined, in)
			}
		}
		none := must(world.Excl(upTo(0, n-1, 1)...))
		assert.Equal(t, comm.Group{}, none, "everyone excluded")

		in, out := must(world.Incl(1, 3, 7)), must(world.Excl(1, 3, 7))
		assert.Equal(t, comm.Ident, world.Intersection(in).Compare(in))
		assert.Equal(t, comm.Ident, world.Intersection(out).Compare(out))
		assert.Equal(t, 0, in.Intersection(out).Size())
		assert.Equal(t, comm.Ident, world.Difference(in).Compare(out))
		assert.Equal(t, comm.Similar, in.Union(out).Compare(world))
		for _, list := range [][]int{upTo(1, n-1, 2), upTo(n-1, 1, -2)} {
			some, others := must(world.Incl(list...)), must(world.Excl(list...))
			assert.Equal(t, comm.Similar, some.Union(others).Compare(world))
			assert.Equal(t, append(slices.Clone(list), 0, 2, 4, 6), some.Union(others).Ranks())
			assert.Equal(t, comm.Unequal, comm.Group{}.Compare(some))
		}
	})
}

// TestEmptyGroups has the cases of MPICH's grouptest2: every call works with the empty group.
func TestEmptyGroups(t *testing.T) {
	var none comm.Group
	g := worldOf(t, 4)
	assert.Equal(t, 0, none.Size())
	assert.Empty(t, none.Ranks())
	assert.Equal(t, comm.Undefined, none.Rank(0))
	assert.Equal(t, comm.Ident, none.Compare(none))
	assert.Equal(t, comm.Unequal, none.Compare(g))
	assert.Equal(t, comm.Unequal, g.Compare(none))
	for _, same := range []comm.Group{none.Union(g), g.Union(none), g.Difference(none), must(g.Excl())} {
		assert.Equal(t, comm.Ident, g.Compare(same))
	}
	for _, empty := range []comm.Group{
		none.Union(none), none.Intersection(g), g.Intersection(none), none.Difference(g), g.Difference(g),
		must(g.Incl()), must(none.Incl()), must(none.Excl()), (*comm.Comm)(nil).Group(),
	} {
		assert.Equal(t, none, empty)
	}
	assert.Equal(t, []int{comm.Undefined, comm.ProcNull}, none.Translate([]int{0, comm.ProcNull}, g))
	assert.Equal(t, []int{comm.Undefined}, g.Translate([]int{1}, none))
	for _, call := range []func(...int) (comm.Group, error){none.Incl, none.Excl} {
		assert.ErrorIs(t, errOf(call(0)), comm.ErrRank)
	}
}

// TestTranslateRanks has the cases of MPICH's gtranks.
func TestTranslateRanks(t *testing.T) {
	const n = 5
	run(t, n, func(t rank, w *comm.Comm) {
		me, world := w.Rank(), w.Group()
		self := must(world.Incl(me))
		for r, got := range world.Translate(upTo(0, n-1, 1), self) {
			assert.Equal(t, r == me, got == 0)
			assert.Equal(t, r != me, got == comm.Undefined)
		}
		got := world.Translate([]int{comm.ProcNull, 1, me, comm.ProcNull}, self)
		assert.Equal(t, []int{comm.ProcNull, got[1], 0, comm.ProcNull}, got)

		ranks := []int{n - 2, 0}
		if me != 0 && me != n-2 {
			ranks = append(ranks, me)
		}
		some := must(world.Incl(ranks...))
		reverse := must(world.Incl(upTo(n-1, 0, -1)...))
		for i, r := range ranks {
			assert.Equal(t, []int{comm.ProcNull, r}, some.Translate([]int{comm.ProcNull, i}, world))
			assert.Equal(t, []int{n - 1 - r}, some.Translate([]int{i}, reverse))
		}
		assert.Equal(t, []int{comm.Undefined, comm.Undefined, comm.Undefined}, some.Translate([]int{-1, n, comm.Undefined}, world))
	})
}

func TestInclAndExclRefuseBadRanks(t *testing.T) {
	g := must(worldOf(t, 4).Incl(3, 1))
	for _, call := range []func(...int) (comm.Group, error){g.Incl, g.Excl} {
		for _, ranks := range [][]int{{2}, {-1}, {0, 0}, {comm.ProcNull}, {1, 0, 1}} {
			got, err := call(ranks...)
			assert.ErrorIs(t, err, comm.ErrRank)
			assert.Equal(t, comm.Group{}, got)
		}
	}
	_, err := g.Incl(1, 2)
	comm.EqualError(t, err, "group: incl: invalid rank: 2 is not in 0…1")
	_, err = g.Excl(1, 1)
	comm.EqualError(t, err, "group: excl: invalid rank: 1 is in the list twice")
}

func TestCompareOfCommunicators(t *testing.T) {
	run(t, 3, func(t rank, w *comm.Comm) {
		dup, back := must(w.Dup()), must(w.Split(0, -w.Rank()))
		color := comm.Undefined
		if w.Rank() < 2 {
			color = 0
		}
		part := must(w.Split(color, 0))
		assert.Equal(t, comm.Ident, w.Compare(w.WithContext(t.Context())))
		assert.Equal(t, comm.Congruent, w.Compare(dup))
		assert.Equal(t, comm.Similar, w.Compare(back))
		assert.Equal(t, comm.Unequal, w.Compare(part))
		assert.Equal(t, comm.Unequal, w.Compare(nil))
		assert.Equal(t, comm.Ident, (*comm.Comm)(nil).Compare(nil))
		require.NoError(t, dup.Free())
		assert.Equal(t, comm.Congruent, w.Compare(dup), "after Free")
		assert.Equal(t, []int{2, 1, 0}, back.Group().Ranks())
		require.NoError(t, back.Free())
		if part != nil {
			require.NoError(t, part.Free())
		}
		for k, name := range []string{"ident", "congruent", "similar", "unequal", "comparison 4"} {
			assert.Equal(t, name, comm.Comparison(k).String())
		}
	})
}

// TestGroupsAgreeWithLists: groups do what lists of distinct numbers do.
func TestGroupsAgreeWithLists(t *testing.T) {
	const n = 7
	world := worldOf(t, n)
	rapid.Check(t, func(t *rapid.T) {
		list := func(name string) []int {
			return rapid.Permutation(upTo(0, n-1, 1)).Draw(t, name)[:rapid.IntRange(0, n).Draw(t, name+" size")]
		}
		a, b := list("a"), list("b")
		g, h := must(world.Incl(a...)), must(world.Incl(b...))
		filter := func(list []int, keep func(int) bool) []int {
			out := []int{}
			for _, x := range list {
				if keep(x) {
					out = append(out, x)
				}
			}
			return out
		}
		inA := func(x int) bool { return slices.Contains(a, x) }
		inB := func(x int) bool { return slices.Contains(b, x) }
		notInA := func(x int) bool { return !inA(x) }
		notInB := func(x int) bool { return !inB(x) }
		require.Equal(t, append(append([]int{}, a...), filter(b, notInA)...), g.Union(h).Ranks())
		require.Equal(t, filter(a, inB), g.Intersection(h).Ranks())
		require.Equal(t, filter(a, notInB), g.Difference(h).Ranks())
		for w := range n {
			want := slices.Index(a, w)
			if want < 0 {
				want = comm.Undefined
			}
			require.Equal(t, want, g.Rank(w))
		}
		for r, w := range a {
			want := slices.Index(b, w)
			if want < 0 {
				want = comm.Undefined
			}
			require.Equal(t, []int{want}, g.Translate([]int{r}, h))
		}
		want := comm.Unequal
		switch {
		case slices.Equal(a, b):
			want = comm.Ident
		case slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))):
			want = comm.Similar
		}
		require.Equal(t, want, g.Compare(h))
		if len(a) > 0 {
			out := rapid.SliceOfNDistinct(rapid.IntRange(0, len(a)-1), 0, len(a), rapid.ID).Draw(t, "out")
			kept := []int{}
			for r, w := range a {
				if !slices.Contains(out, r) {
					kept = append(kept, w)
				}
			}
			require.Equal(t, kept, must(g.Excl(out...)).Ranks())
		}
	})
}
