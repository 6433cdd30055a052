package comm_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

// TestBurstOfRequestsGivesMemoryBack: the memory of a burst of requests is released after the
// burst.
func TestBurstOfRequestsGivesMemoryBack(t *testing.T) {
	const (
		burst = 100_000
		most  = 24 << 20 // a burst needs some 100 MiB
	)
	live := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // the second one empties sync.Pool
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var before uint64
	run(t, 2, func(t rank, w *comm.Comm) {
		exchange := func(n int) {
			buf := make([]byte, 8)
			reqs := make([]request.Request, n)
			for i := range reqs {
				var err error
				if w.Rank() == 0 {
					reqs[i], err = comm.Irecv(w, buf, 1, 0)
				} else {
					reqs[i], err = comm.Issend(w, buf, 0, 0)
				}
				require.NoError(t, err)
			}
			require.NoError(t, request.WaitAll(reqs...))
		}
		exchange(10)
		require.NoError(t, w.Barrier())
		if w.Rank() == 0 {
			before = live()
		}
		require.NoError(t, w.Barrier())
		exchange(burst)
		require.NoError(t, w.Barrier())
		if w.Rank() == 0 {
			assert.Less(t, int64(live()-before), int64(most))
		}
		require.NoError(t, w.Barrier())
	})
}
