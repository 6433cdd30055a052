package transport

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// everywhere is a network that connects all modules.
func everywhere(int, int) int { return 1 }

func pair(local, remote int) Pair      { return Pair{Local: local, Remote: remote} }
func spare(local, remote int) Pair     { return Pair{Local: local, Remote: remote, Level: 1} }
func extra(local, remote int) Pair     { return Pair{Local: local, Remote: remote, Extra: true} }
func alternate(local, remote int) Pair { return Pair{Local: local, Remote: remote, Alternate: true} }

func TestPairs(t *testing.T) {
	for what, c := range map[string]struct {
		locals, remotes int
		leads           func(local, remote int) int
		want            []Pair
	}{
		"one each": {1, 1, everywhere, []Pair{pair(0, 0)}},
		"two each": {2, 2, everywhere, []Pair{pair(0, 0), pair(1, 1), alternate(0, 1), alternate(1, 0)}},
		"three on two": {3, 2, everywhere, []Pair{
			pair(0, 0), pair(1, 1), extra(2, 0), alternate(0, 1), alternate(1, 0), alternate(2, 1),
		}},
		"one on two": {1, 2, everywhere, []Pair{pair(0, 0), extra(0, 1)}},
		"separate networks": {2, 2, func(i, j int) int {
			if i == j {
				return 1
			}
			return 0
		}, []Pair{pair(0, 0), pair(1, 1)}},
		"a better network": {2, 2, func(i, j int) int { return 1 + i*j }, []Pair{pair(1, 1), spare(0, 0), {Local: 1, Remote: 0, Extra: true, Level: 1}, {Local: 0, Remote: 1, Extra: true, Level: 1}}},
		"no network":       {2, 2, func(int, int) int { return 0 }, nil},
		"no module":        {0, 2, everywhere, nil},
	} {
		require.Equal(t, c.want, Pairs(c.locals, c.remotes, c.leads, true), what)
	}
}

// TestPairsOfBothRanks: both ranks find the same pairs, each once, and each module that leads
// anywhere has a pair that is not an alternate.
func TestPairsOfBothRanks(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 1))
		locals, remotes := rng.IntN(6), rng.IntN(6)
		table := make([][]int, locals)
		for i := range table {
			table[i] = make([]int, remotes)
			for j := range table[i] {
				table[i][j] = rng.IntN(3)
			}
		}
		here := Pairs(locals, remotes, func(i, j int) int { return table[i][j] }, true)
		there := Pairs(remotes, locals, func(j, i int) int { return table[i][j] }, false)
		require.Len(t, there, len(here))
		seen := map[[2]int]bool{}
		used := map[[2]int]bool{}
		for n, p := range here {
			require.Equal(t, Pair{p.Remote, p.Local, p.Extra, p.Alternate, p.Level}, there[n])
			require.False(t, seen[[2]int{p.Local, p.Remote}], "a pair twice")
			seen[[2]int{p.Local, p.Remote}] = true
			if !p.Alternate {
				used[[2]int{0, p.Local}], used[[2]int{1, p.Remote}] = true, true
			}
		}
		for p := range seen {
			require.True(t, used[[2]int{0, p[0]}] && used[[2]int{1, p[1]}], "seed %d: a module of %v has alternates only", seed, p)
		}
	}
}

// TestLimitOfBothRanks: for any modules of any transports, both ranks keep the same pairs, and no
// more than permitted. If there is room, no module is left without a pair.
func TestLimitOfBothRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(0, 40).Draw(t, "most")
		var here, there [][]Pair
		needed := 0
		for range rapid.IntRange(1, 3).Draw(t, "transports") {
			locals, remotes := rapid.IntRange(0, 20).Draw(t, "locals"), rapid.IntRange(0, 20).Draw(t, "remotes")
			highest := rapid.IntRange(0, 2).Draw(t, "highest")
			table := rapid.SliceOfN(rapid.IntRange(min(highest, 1), highest), locals*remotes, locals*remotes).Draw(t, "leads")
			leads := func(i, j int) int { return table[i*remotes+j] }
			a := Pairs(locals, remotes, leads, true)
			here, there = append(here, a), append(there, Pairs(remotes, locals, func(j, i int) int { return leads(i, j) }, false))
			needed += len(slices.DeleteFunc(slices.Clone(a), func(p Pair) bool { return p.Alternate }))
		}
		ours, theirs := Limit(here, most), Limit(there, most)
		total := 0
		for n, pairs := range ours {
			total += len(pairs)
			require.Len(t, theirs[n], len(pairs))
			for i, p := range pairs {
				require.Equal(t, Pair{p.Remote, p.Local, p.Extra, p.Alternate, p.Level}, theirs[n][i])
				require.Contains(t, here[n], p)
			}
			if needed <= most {
				require.Equal(t, ends(here[n]), ends(pairs), "a module without a pair")
			}
		}
		require.LessOrEqual(t, total, most)
		if all := len(slices.Concat(here...)); all <= most {
			require.Equal(t, all, total)
		}
	})
}

// ends returns the modules of both ranks that have pairs.
func ends(pairs []Pair) map[[2]int]bool {
	set := map[[2]int]bool{}
	for _, p := range pairs {
		set[[2]int{0, p.Local}], set[[2]int{1, p.Remote}] = true, true
	}
	return set
}

// TestLimitSpreadsAlternates: each module gets an alternate before one gets a second.
func TestLimitSpreadsAlternates(t *testing.T) {
	pairs := Limit([][]Pair{Pairs(6, 6, everywhere, true)}, 12)[0]
	locals, remotes := map[int]int{}, map[int]int{}
	for _, p := range pairs {
		locals[p.Local]++
		remotes[p.Remote]++
	}
	for n := range 6 {
		require.Equal(t, []int{2, 2}, []int{locals[n], remotes[n]})
	}
}
