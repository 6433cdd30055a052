package comm

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/observe"
	"github.com/mpigo/mpigo/internal/wireup"
)

func TestAnyCrowded(t *testing.T) {
	roomy, crowded := wireup.Card{}, wireup.Card{Oversubscribed: true}
	assert.False(t, anyCrowded([]wireup.Card{roomy, roomy}, false))
	assert.True(t, anyCrowded([]wireup.Card{roomy, roomy}, true))
	assert.True(t, anyCrowded([]wireup.Card{roomy, crowded}, false))
}

// A world of one reaches itself, and has nobody else to reach.
func TestWorldOfOne(t *testing.T) {
	w, err := join(nil, settings(t), observe.Hook{})
	require.NoError(t, err)
	assert.Equal(t, 0, w.Rank())
	assert.Equal(t, 1, w.Size())
	assert.Len(t, w.job.modules, 0, "the rail to itself is polled once it is used")
	for range 2 {
		require.NoError(t, Send(w, []int{42}, 0, 0))
		got := []int{0}
		_, err = Recv(w, got, 0, 0)
		require.NoError(t, err)
		assert.Equal(t, []int{42}, got)
		assert.Len(t, w.job.modules, 1)
	}
	require.NoError(t, w.Finalize())
	assert.ErrorIs(t, w.Finalize(), ErrFinalized)
}

// Without the self rail a rank cannot reach itself, and is told so.
func TestWorldWithoutSelf(t *testing.T) {
	w, err := join(nil, settings(t, "btl", "sm"), observe.Hook{})
	require.NoError(t, err)
	err = Send(w, []int{42}, 0, 0)
	assert.ErrorIs(t, err, ErrUnreachable)
	assert.ErrorContains(t, err, "btl=sm has no self")
	require.NoError(t, w.Finalize())
}

func TestOneLine(t *testing.T) {
	assert.Equal(t, "a; b; c", oneLine(errors.Join(errors.New("a"), errors.New("b\r\n\nc\n"))))
}
