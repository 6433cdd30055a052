package comm_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

// TestFloodReceivedInReverseOrder: a program that is correct without buffering (MPI 4.1, section
// 3.5) works even if far more messages are in flight than a rank can keep. The rank receives the
// last message first. Collectives and other communicators work meanwhile.
func TestFloodReceivedInReverseOrder(t *testing.T) {
	const messages = 6000 // there is room for about 2000
	run(t, 3, func(t rank, w *comm.Comm) {
		other := must(w.Dup())
		next, prev := (w.Rank()+1)%3, (w.Rank()+2)%3
		sends, bufs := make([]request.Request, messages), make([]int, messages)
		for tag := range sends {
			bufs[tag] = 10*tag + w.Rank()
			sends[tag] = must(comm.Isend(w, bufs[tag:tag+1], next, tag))
		}
		require.NoError(t, w.Barrier())
		sum := []int{0}
		require.NoError(t, comm.Allreduce(other, []int{1}, sum, comm.Sum))
		assert.Equal(t, 3, sum[0])
		ringOf(t, other)
		got := []int{0}
		for tag := messages - 1; tag >= 0; tag-- {
			source := prev
			if tag%2 == 0 {
				source = comm.AnySource
			}
			must(comm.Recv(w, got, source, tag))
			assert.Equal(t, 10*tag+prev, got[0])
		}
		require.NoError(t, request.WaitAll(sends...))
		require.NoError(t, other.Free())
	}, comm.WithSetting("pml.unexpected.bytes", "0"))
}
