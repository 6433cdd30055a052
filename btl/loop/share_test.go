package loop

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

func TestSharedMemory(t *testing.T) {
	a, b := pairOfSides(t, Config{})
	from, to := a.mod, b.mod
	mem, key, err := from.Share(1000)
	require.NoError(t, err)
	require.Len(t, mem, 1000)
	theirs, err := to.MapShared(0, key, 1000)
	require.NoError(t, err)
	theirs[999] = 5
	require.Equal(t, byte(5), mem[999])
	_, err = to.MapShared(0, key, 1001)
	require.ErrorIs(t, err, base.ErrKey, "too short")
	_, err = to.MapShared(0, btl.Key{}, 1)
	require.ErrorIs(t, err, base.ErrKey)
	from.Hide(mem)
	_, err = to.MapShared(0, key, 1)
	require.ErrorIs(t, err, base.ErrKey, "hidden")
	require.NoError(t, to.Unshare(theirs))
	require.NoError(t, from.Unshare(mem))
	require.NoError(t, from.Close())
	_, _, err = from.Share(1)
	require.ErrorIs(t, err, btl.ErrClosed)
}

// TestVirtualFabricSharesNoMemory: its ranks represent ranks on several hosts.
func TestVirtualFabricSharesNoMemory(t *testing.T) {
	f, err := NewFabric(Config{Ranks: 2, Virtual: true})
	require.NoError(t, err)
	m, err := f.Module(0, 0, &side{}, nil)
	require.NoError(t, err)
	_, _, err = m.(btl.Sharer).Share(1)
	require.ErrorIs(t, err, btl.ErrMemory)
}
