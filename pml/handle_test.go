package pml

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHandlesWhenGenerationsWrap: no handle is 0, a removed handle stays invalid, and a long-lived
// request keeps its handle.
func TestHandlesWhenGenerationsWrap(t *testing.T) {
	table := handleTable[int]{gen: math.MaxUint32 - 5}
	old := new(int)
	kept := table.add(old)
	seen := map[handle]bool{kept: true}
	for range 20 {
		item := new(int)
		h := table.add(item)
		require.NotZero(t, h)
		require.NotZero(t, h.gen())
		require.False(t, seen[h])
		seen[h] = true
		require.Same(t, item, table.get(h))
		table.remove(h)
		require.Nil(t, table.get(h))
		require.Same(t, old, table.get(kept))
	}
}
