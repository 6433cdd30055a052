package comm_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
)

func TestAttributesOfCommunicator(t *testing.T) {
	type name string
	first, second := comm.NewAttrKey[name](nil), comm.NewAttrKey[name](nil)
	list := comm.NewAttrKey[[]int](nil)
	run(t, 2, func(t rank, w *comm.Comm) {
		c := must(w.Dup())
		got, ok := comm.GetAttr(c, first)
		assert.False(t, ok)
		assert.Empty(t, got)
		require.NoError(t, comm.SetAttr(c, first, "a"))
		require.NoError(t, comm.SetAttr(c.WithContext(t.Context()), second, "b"))
		require.NoError(t, comm.SetAttr(c, list, []int{w.Rank()}))
		require.NoError(t, comm.SetAttr(c, first, "c"))
		got, ok = comm.GetAttr(c.WithContext(t.Context()), first)
		assert.Equal(t, []any{name("c"), true}, []any{got, ok})
		got, ok = comm.GetAttr(c, second)
		assert.Equal(t, []any{name("b"), true}, []any{got, ok})
		numbers, ok := comm.GetAttr(c, list)
		assert.Equal(t, []any{[]int{w.Rank()}, true}, []any{numbers, ok})
		_, ok = comm.GetAttr(w, first)
		assert.False(t, ok, "of another communicator")
		for range 2 {
			require.NoError(t, comm.DelAttr(c, first))
			_, ok = comm.GetAttr(c, first)
			assert.False(t, ok)
		}
		_, ok = comm.GetAttr(c, second)
		assert.True(t, ok)

		require.NoError(t, c.Free())
		_, ok = comm.GetAttr(c, second)
		assert.False(t, ok, "after Free")
		for _, bad := range []*comm.Comm{c, nil} {
			assert.ErrorIs(t, comm.SetAttr(bad, first, "x"), comm.ErrComm)
			assert.ErrorIs(t, comm.DelAttr(bad, first), comm.ErrComm)
			_, ok := comm.GetAttr(bad, first)
			assert.False(t, ok)
		}
		var none *comm.AttrKey[int]
		assert.ErrorIs(t, comm.SetAttr(w, none, 1), comm.ErrCount)
		assert.ErrorIs(t, comm.DelAttr(w, none), comm.ErrCount)
		_, ok = comm.GetAttr(w, none)
		assert.False(t, ok)
	})
}

// TestDupCopiesAttributes: Dup copies as the function of the key says. Other calls copy nothing.
func TestDupCopiesAttributes(t *testing.T) {
	kept := comm.NewAttrKey(func(n int) (int, bool) { return n + 1, true })
	dropped := comm.NewAttrKey(func(n int) (int, bool) { return 0, false })
	plain := comm.NewAttrKey[int](nil)
	run(t, 3, func(t rank, w *comm.Comm) {
		uses := comm.NewAttrKey(func(c *comm.Comm) (*comm.Comm, bool) {
			c.Name() // the function may use the library
			_, _, err := c.Iprobe(comm.AnySource, 5)
			return c, err == nil
		})
		for _, key := range []*comm.AttrKey[int]{kept, dropped, plain} {
			require.NoError(t, comm.SetAttr(w, key, 10*w.Rank()))
		}
		require.NoError(t, comm.SetAttr(w, uses, w))
		d := must(w.Dup())
		dd := must(d.Dup())
		for i, c := range []*comm.Comm{d, dd} {
			n, ok := comm.GetAttr(c, kept)
			assert.Equal(t, []any{10*w.Rank() + 1 + i, true}, []any{n, ok})
			got, ok := comm.GetAttr(c, uses)
			assert.True(t, ok && got == w)
			for _, key := range []*comm.AttrKey[int]{dropped, plain} {
				_, ok := comm.GetAttr(c, key)
				assert.False(t, ok)
			}
		}
		for _, c := range []*comm.Comm{must(w.Split(0, 0)), must(w.Create(w.Group())), must(w.Cart([]int{3}, []bool{true}))} {
			_, ok := comm.GetAttr(c, kept)
			assert.False(t, ok)
		}
	})
}

func TestAttributesFromSeveralGoroutines(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				key := comm.NewAttrKey[int](nil)
				for n := range 200 {
					assert.NoError(t, comm.SetAttr(w, key, i*n))
					got, ok := comm.GetAttr(w, key)
					assert.True(t, ok && got == i*n)
					if n%2 == 0 {
						assert.NoError(t, comm.DelAttr(w, key))
					}
				}
			})
		}
		all.Wait()
	})
}
