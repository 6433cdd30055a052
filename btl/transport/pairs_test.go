package transport

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// everywhere is a network that joins all rails.
func everywhere(int, int) int { return 1 }

func pair(local, remote int) Pair      { return Pair{Local: local, Remote: remote} }
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
		"a better network": {2, 2, func(i, j int) int { return 1 + i*j }, []Pair{pair(1, 1)}},
		"no network":       {2, 2, func(int, int) int { return 0 }, nil},
		"no rail":          {0, 2, everywhere, nil},
	} {
		require.Equal(t, c.want, Pairs(c.locals, c.remotes, c.leads, true), what)
	}
}

// TestPairsOfBothRanks: both ranks find the same pairs, each once, and each rail that leads
// anywhere has a pair that is no alternate.
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
			require.Equal(t, Pair{p.Remote, p.Local, p.Extra, p.Alternate}, there[n])
			require.False(t, seen[[2]int{p.Local, p.Remote}], "a pair twice")
			seen[[2]int{p.Local, p.Remote}] = true
			if !p.Alternate {
				used[[2]int{0, p.Local}], used[[2]int{1, p.Remote}] = true, true
			}
		}
		for p := range seen {
			require.True(t, used[[2]int{0, p[0]}] && used[[2]int{1, p[1]}], "seed %d: a rail of %v has alternates only", seed, p)
		}
	}
}
