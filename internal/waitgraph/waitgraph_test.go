package waitgraph

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// on is a rank with one goroutine, which waits for a call of another rank, or of any of several.
func on(by ...int) Rank { return Rank{Waits: []Wait{{Need: 1, Ops: []Op{{By: by}}}}} }

// several is a rank that waits for need of several operations.
func several(need int, by ...int) Rank {
	w := Wait{Need: need}
	for _, r := range by {
		w.Ops = append(w.Ops, Op{By: []int{r}})
	}
	return Rank{Waits: []Wait{w}}
}

func TestFind(t *testing.T) {
	runs, ended := Rank{Runs: true}, Rank{Ended: true}
	for name, c := range map[string]struct {
		ranks []Rank
		want  Deadlock
	}{
		"no ranks":                    {nil, Deadlock{}},
		"a chain to a rank that runs": {[]Rank{on(1), on(2), runs}, Deadlock{}},
		"a chain to a rank that has ended": {
			[]Rank{on(1), on(2), ended}, Deadlock{Ranks: []int{0, 1}},
		},
		"itself":   {[]Rank{on(0)}, Deadlock{[]int{0}, []int{0}}},
		"two":      {[]Rank{on(1), on(0), runs}, Deadlock{[]int{0, 1}, []int{0, 1}}},
		"three":    {[]Rank{on(1), on(2), on(0)}, Deadlock{[]int{0, 1, 2}, []int{0, 1, 2}}},
		"a stem":   {[]Rank{on(1), on(2), on(1)}, Deadlock{[]int{0, 1, 2}, []int{1, 2}}},
		"nowhere":  {[]Rank{{Waits: []Wait{{Need: 1}}}}, Deadlock{Ranks: []int{0}}},
		"no waits": {[]Rank{{}}, Deadlock{Ranks: []int{0}}},

		"any source, and one runs": {[]Rank{on(0, 1, 2), on(0), runs}, Deadlock{}},
		"any source, and the other rank ended": {
			[]Rank{on(0, 1, 2), on(0), ended}, Deadlock{[]int{0, 1}, []int{0, 1}},
		},
		"wait any": {[]Rank{several(1, 1, 2), on(0), runs}, Deadlock{}},
		"wait all": {[]Rank{several(2, 1, 2), on(0), runs}, Deadlock{[]int{0, 1}, []int{0, 1}}},
		"two of three": {
			[]Rank{several(2, 1, 2, 3), on(0), runs, runs}, Deadlock{},
		},
		"knot of wait any": {
			[]Rank{several(1, 1, 2), several(1, 0, 2), several(1, 0, 1)},
			Deadlock{[]int{0, 1, 2}, []int{0, 1}},
		},
		"a cycle that a third rank breaks": {
			[]Rank{several(1, 1, 2), on(0), on(3), runs}, Deadlock{},
		},

		"another goroutine runs": {
			[]Rank{{Runs: true, Waits: on(1).Waits}, on(0)}, Deadlock{},
		},
		"another goroutine is released": {
			[]Rank{{Waits: append(on(1).Waits, on(2).Waits...)}, on(0), runs}, Deadlock{},
		},
		"all goroutines wait": {
			[]Rank{{Waits: append(on(1).Waits, on(0).Waits...)}, on(0)}, Deadlock{[]int{0, 1}, []int{0}},
		},
		"an operation that completes by itself": {
			[]Rank{{Waits: []Wait{{Need: 1, Ops: []Op{{By: []int{1}, Itself: true}}}}}, on(0)}, Deadlock{},
		},
		"a call that another rank may end": {
			[]Rank{{Waits: []Wait{{Need: 1, Ops: on(1).Waits[0].Ops, EndedBy: []int{0, 1, 2}}}}, on(0), runs}, Deadlock{},
		},
		"a call that only ranks that wait for it may end": {
			[]Rank{{Waits: []Wait{{Need: 1, Ops: on(1).Waits[0].Ops, EndedBy: []int{0, 1, 2}}}}, on(0), ended},
			Deadlock{[]int{0, 1}, []int{0, 1}},
		},
		"a call that an unknown rank may end": {
			[]Rank{{Waits: []Wait{{Need: 1, Ops: on(1).Waits[0].Ops, EndedBy: []int{7}}}}, on(0)}, Deadlock{},
		},
		"no operation needed":    {[]Rank{several(0, 1), on(0)}, Deadlock{}},
		"a rank that is unknown": {[]Rank{on(1), on(7)}, Deadlock{}},
	} {
		assert.Equal(t, c.want, Find(c.ranks), name)
	}
}

// naive returns the deadlocked ranks by the definition alone: as long as some rank can go on, it
// does.
func naive(ranks []Rank) []int {
	free := map[int]bool{}
	goesOn := func(r Rank) bool {
		if r.Ended {
			return false
		}
		for _, w := range r.Waits {
			done := 0
			for _, o := range w.Ops {
				if o.Itself || slices.ContainsFunc(o.By, func(by int) bool { return free[by] }) {
					done++
				}
			}
			if done >= w.Need || slices.ContainsFunc(w.EndedBy, func(by int) bool { return free[by] }) {
				return true
			}
		}
		return r.Runs
	}
	for again := true; again; {
		again = false
		for i, r := range ranks {
			if !free[i] && goesOn(r) {
				free[i], again = true, true
			}
		}
	}
	var stuck []int
	for i, r := range ranks {
		if !free[i] && !r.Ended {
			stuck = append(stuck, i)
		}
	}
	return stuck
}

// waitsFor reports whether a rank has an operation that could be completed only by deadlocked or
// ended ranks, the other rank among them.
func waitsFor(ranks []Rank, stuck []int, rank, other int) bool {
	for _, w := range ranks[rank].Waits {
		for _, o := range w.Ops {
			if !o.Itself && slices.Contains(o.By, other) && (other != rank || len(o.By) == 1) &&
				!slices.ContainsFunc(o.By, func(r int) bool { return !ranks[r].Ended && !slices.Contains(stuck, r) }) {
				return true
			}
		}
	}
	return false
}

// TestFindAgainstNaiveModel compares Find with the definition for random graphs. The cycle is one
// of deadlocked ranks, and no cycle is shorter.
func TestFindAgainstNaiveModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	outcomes := map[string]int{}
	for range 50_000 {
		ranks := make([]Rank, 1+rng.IntN(7))
		some := func() []int { return rng.Perm(len(ranks))[:1+rng.IntN(min(3, len(ranks)))] }
		for i := range ranks {
			r := &ranks[i]
			switch rng.IntN(8) {
			case 0:
				r.Ended = true
			case 1:
				r.Runs = true
			}
			for range 1 + rng.IntN(2)*rng.IntN(3) {
				var w Wait
				for range 1 + rng.IntN(3) {
					w.Ops = append(w.Ops, Op{By: some(), Itself: rng.IntN(20) == 0})
				}
				w.Need = 1 + rng.IntN(len(w.Ops))
				if rng.IntN(8) == 0 {
					w.EndedBy = some()
				}
				r.Waits = append(r.Waits, w)
			}
		}
		got, want := Find(ranks), naive(ranks)
		require.Equal(t, want, got.Ranks, "%+v", ranks)
		arcs := make([][]int, len(ranks))
		for _, i := range want {
			for _, j := range want {
				if waitsFor(ranks, want, i, j) {
					arcs[i] = append(arcs[i], j)
				}
			}
		}
		for i, rank := range got.Cycle {
			next := got.Cycle[(i+1)%len(got.Cycle)]
			require.Contains(t, arcs[rank], next, "%v of %+v", got.Cycle, ranks)
		}
		require.Len(t, got.Cycle, girth(arcs), "%+v", ranks)
		switch {
		case len(want) == 0:
			outcomes["none"]++
		case len(got.Cycle) == 0:
			outcomes["no cycle"]++
		default:
			outcomes["cycle"]++
		}
	}
	for _, outcome := range []string{"none", "no cycle", "cycle"} {
		assert.Greater(t, outcomes[outcome], 100, outcome)
	}
}

// girth returns the length of a shortest cycle, or 0 if there is none: the smallest number of steps
// after which a walk may return to its start.
func girth(arcs [][]int) int {
	// By the node where a walk began, the nodes where it may be.
	at := make([]map[int]bool, len(arcs))
	for i := range at {
		at[i] = map[int]bool{i: true}
	}
	for steps := 1; steps <= len(arcs); steps++ {
		for i := range at {
			next := map[int]bool{}
			for node := range at[i] {
				for _, n := range arcs[node] {
					next[n] = true
				}
			}
			if at[i] = next; next[i] {
				return steps
			}
		}
	}
	return 0
}
