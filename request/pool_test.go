package request

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// atOnce makes a request that is complete at once, from a pool.
func (r *rank) atOnce(pool *Pool) Request {
	r.Lock()
	defer r.Unlock()
	o := pool.Get()
	if o == nil {
		x := &op{rank: r, name: "x"}
		x.BindTo(pool, r.Engine, x)
		o = &x.Object
	}
	return o.CompleteAtOnce()
}

// Every call treats a request that was complete at once like any other with the empty status, even
// if it is in the list several times. The object goes back to its pool once, when it is observed or
// freed, and then serves the next request.
func TestCallsOverRequestThatIsCompleteAtOnce(t *testing.T) {
	for name, call := range byName {
		for times := 1; times <= 3; times++ {
			var pool Pool
			r := newRank()
			h := r.atOnce(&pool)
			usual, like := r.active("x")
			usual.complete(Empty(), nil)
			list := func(h Request) []Request { return []Request{h, h, h}[:times] }
			assert.Equal(t, call(t, r, list(like)), call(t, r, list(h)), "%s, %d times", name, times)
			after := stateOf(t, h)
			assert.Equal(t, stateOf(t, like), after, name)
			assert.NotContains(t, r.calls, "start x")
			if after != "null" {
				require.Empty(t, pool.free, name)
				continue
			}
			require.Equal(t, []*Object{h.o}, pool.free, "%s, %d times", name, times)
			again := r.atOnce(&pool)
			assert.Same(t, h.o, again.o)
			assert.True(t, h.IsNull())
			assert.Equal(t, "empty", outcomeText(again.Wait()))
		}
	}
}

// Requests keep their order of completion, also those that were complete at once.
func TestRequestsThatAreCompleteAtOnceInOrder(t *testing.T) {
	var pool Pool
	r := newRank()
	first := r.atOnce(&pool)
	o, second := r.active("")
	o.complete(message, nil)
	third := r.atOnce(&pool)
	reqs := []Request{third, second, first}
	for _, want := range []int{2, 1, 0, Undefined} {
		i, _, err := WaitAny(reqs...)
		require.NoError(t, err)
		require.Equal(t, want, i)
	}
}

// A pool keeps a bounded number of objects. The others are not used any more.
func TestPoolIsBounded(t *testing.T) {
	bound := map[any]bool{}
	r := newRank()
	r.OnBound(func(obj any) { bound[obj] = true }, func(obj any) { delete(bound, obj) })
	var pool Pool
	reqs := make([]Request, maxPooled+10)
	for i := range reqs {
		reqs[i] = r.atOnce(&pool)
	}
	require.Len(t, bound, len(reqs))
	require.NoError(t, WaitAll(reqs...))
	require.Len(t, pool.free, maxPooled)
	require.Len(t, bound, maxPooled)
	for range maxPooled {
		require.True(t, bound[r.atOnce(&pool).o])
	}
}

// Only an idle object can be complete at once.
func TestCompleteAtOnceOfObjectInUsePanics(t *testing.T) {
	var pool Pool
	r := newRank()
	h := r.atOnce(&pool)
	require.PanicsWithValue(t, "request: illegal transition complete → complete", func() { h.o.CompleteAtOnce() })
}
