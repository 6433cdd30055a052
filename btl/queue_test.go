package btl

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestQueue compares a queue with a slice.
func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue
		var want []*Op
		ops := make([]Op, 8)
		any := func(t *rapid.T) *Op { return &ops[rapid.IntRange(0, len(ops)-1).Draw(t, "op")] }
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				if op := any(t); !slices.Contains(want, op) {
					q.Push(op)
					want = append(want, op)
				}
			},
			"pop": func(t *rapid.T) {
				op := q.Pop()
				if len(want) == 0 {
					require.Nil(t, op)
					return
				}
				require.Same(t, want[0], op)
				require.Nil(t, op.Next)
				want = want[1:]
			},
			"remove": func(t *rapid.T) {
				op := any(t)
				q.Remove(op)
				require.Nil(t, op.Next)
				want = slices.DeleteFunc(slices.Clone(want), func(o *Op) bool { return o == op })
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(want), q.Len())
				var have []*Op
				for op := range q.All() {
					have = append(have, op)
				}
				require.Equal(t, len(want) == 0, q.Empty())
				require.True(t, slices.Equal(want, have))
			},
		})
	})
}
