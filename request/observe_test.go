package request

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/progress"
)

// Waiters shows the calls that wait: for which operations, for how many of them, and whether their
// context may end.
func TestWaitersShowsEachKindOfCall(t *testing.T) {
	r := newRank()
	var ops [4]*op
	var reqs [4]Request
	for i := range ops {
		ops[i], reqs[i] = r.active("")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for name, c := range map[string]struct {
		call      func() error
		waited    int // number of operations that the call waits for
		need      int
		mayGiveUp bool
	}{
		"wait":              {func() error { _, err := reqs[0].Wait(); return err }, 1, 1, false},
		"wait with context": {func() error { _, err := reqs[0].WaitContext(ctx); return err }, 1, 1, true},
		"wait all":          {func() error { return WaitAll(reqs[:3]...) }, 3, 3, false},
		"wait any":          {func() error { _, _, err := WaitAny(reqs[:2]...); return err }, 2, 1, false},
		"wait some": {func() error {
			_, err := WaitSome(reqs[:2], make([]int, 2), nil)
			return err
		}, 2, 1, false},
	} {
		done := spawn(c.call)
		for i := range c.waited {
			r.waiting(t, ops[i], 1)
		}
		r.locked(func() {
			var w *progress.Waiter
			for i, o := range ops {
				ws := o.Waiters()
				if i >= c.waited {
					assert.Empty(t, ws, name)
					continue
				}
				require.Len(t, ws, 1, name)
				require.True(t, w == nil || ws[0] == w, "%s: several waiters for one call", name)
				w = ws[0]
			}
			assert.Equal(t, c.need, w.Need(), name)
			assert.Equal(t, c.mayGiveUp, w.MayGiveUp(), name)
		})
		for i := range c.waited {
			ops[i].complete(message, nil)
		}
		require.NoError(t, within(t, done, name))
		for i := range c.waited {
			_, err := reqs[i].Wait() // the call may not have observed it
			require.NoError(t, err)
			ops[i], reqs[i] = r.active("")
		}
	}
}
