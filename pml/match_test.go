package pml

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestQueueTableAgainstMap compares the table with a map of slices, by random operations.
func TestQueueTableAgainstMap(t *testing.T) {
	type element struct {
		node  node[int]
		value int
		key   matchKey
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var table queueTable[int]
		table.init()
		model := map[matchKey][]*element{}
		var all []*element
		keys := 1 + rng.IntN(3000)
		key := func() matchKey { return keyOf(rng.IntN(keys)-1, rng.IntN(4)-1) }
		for step := range 10_000 {
			growing := step/2000%2 == 0
			if len(all) == 0 || growing && rng.IntN(3) > 0 || !growing && rng.IntN(3) == 0 {
				e := &element{value: step, key: key()}
				table.push(e.key, &e.node, &e.value)
				model[e.key] = append(model[e.key], e)
				all = append(all, e)
			} else {
				i := rng.IntN(len(all))
				e := all[i]
				all[i] = all[len(all)-1]
				all = all[:len(all)-1]
				table.remove(&e.node)
				list := model[e.key]
				for j := range list {
					if list[j] == e {
						list = append(list[:j:j], list[j+1:]...)
						break
					}
				}
				if model[e.key] = list; len(list) == 0 {
					delete(model, e.key)
				}
			}
			k := key()
			got, want := table.first(k), model[k]
			require.Equal(t, len(want) == 0, got == nil)
			if got != nil {
				require.Equal(t, want[0].value, *got)
			}
			require.Equal(t, len(model), table.live)
		}
	}
}

// TestQueueTableSpreadsKeys: keys spread over the buckets, for any pattern of sources and tags.
func TestQueueTableSpreadsKeys(t *testing.T) {
	patterns := map[string]func(i int) matchKey{
		"sources":         func(i int) matchKey { return keyOf(i, 5) },
		"even sources":    func(i int) matchKey { return keyOf(2*i, 5) },
		"sources, any":    func(i int) matchKey { return keyOf(i, -1) },
		"tags":            func(i int) matchKey { return keyOf(3, i) },
		"every 1000th":    func(i int) matchKey { return keyOf(3, 1000*i) },
		"every 46368th":   func(i int) matchKey { return keyOf(3, 46368*i) },
		"every 2 to 20th": func(i int) matchKey { return keyOf(3, i<<20) },
		"both":            func(i int) matchKey { return keyOf(i, i) },
	}
	for name, pattern := range patterns {
		for _, n := range []int{16, 64, 256, 1024} {
			var table queueTable[int]
			table.init()
			nodes := make([]node[int], n)
			for i := range n {
				table.push(pattern(i), &nodes[i], new(int))
			}
			looks := 0 // comparisons to find each key once
			for _, q := range table.buckets {
				for depth := 1; q != nil; q = q.chain {
					looks += depth
					depth++
				}
			}
			require.Less(t, float64(looks)/float64(n), 2.5, "%s, %d keys", name, n)
		}
	}
}
