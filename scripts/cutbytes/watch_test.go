package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWatcherSeesEveryBlockAndCutsOnce(t *testing.T) {
	buf := make([]byte, 16*blockBytes)
	for i := range buf {
		buf[i] = value(i)
	}
	cuts := 0
	w := watch(buf, len(buf)/2, func() error { cuts++; return nil })
	w.running.Wait() // it ends when it has seen all blocks
	require.Equal(t, 1, cuts)
	require.NoError(t, w.err)
	require.GreaterOrEqual(t, w.cutBytes, int64(len(buf)/2))
	require.False(t, w.began.IsZero())
}
