package comm_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/comm/internal/coll"
)

// collWraps are numbers of collectives, or of starts of a persistent one, shortly before a counter
// wraps or its sign changes: sequence numbers, the stamps in the counts of shared memory, and
// stamps. Never written.
var collWraps = []uint64{1<<27 - 20, 1<<31 - 20, 1<<32 - 20, 1<<43 - 20, 1<<44 - 20, 1<<32 - 5, 1<<44 - 5}

// wrapProgram makes random collectives from number count on, and then starts of a persistent one.
func wrapProgram(w *comm.Comm, count uint64) error {
	if err := shortProgram(w, count, 100, map[string]int{}); err != nil {
		return fmt.Errorf("collectives from %d on: %w", count, err)
	}
	in, out := []int{0}, []int{0}
	sum := must(comm.AllreduceInit(w, in, out, comm.Sum[int]))
	comm.StartStartsAt(w, count)
	if err := w.Barrier(); err != nil {
		return err
	}
	for i := range 60 {
		in[0] = i + w.Rank()
		if err := sum.Start(); err != nil {
			return err
		}
		if _, err := sum.Wait(); err != nil {
			return fmt.Errorf("start %d after %d: %w", i, count, err)
		}
		if n := w.Size(); out[0] != n*i+n*(n-1)/2 {
			return fmt.Errorf("start %d after %d: sum %d", i, count, out[0])
		}
	}
	return sum.Free()
}

// longLivedProgram makes collectives of c until their numbers are those of a persistent one.
func longLivedProgram(w, c *comm.Comm) error {
	in, out := []int{w.Rank()}, []int{0}
	sum := must(comm.AllreduceInit(c, in, out, comm.Sum[int]))
	comm.StartCollectivesAt(c, coll.SequenceNumbers-10)
	if err := w.Barrier(); err != nil {
		return err
	}
	for i := range 30 {
		if err := sum.Start(); err != nil {
			return err
		}
		all := []int{0}
		if err := comm.Allreduce(c, []int{1}, all, comm.Sum); err != nil || all[0] != w.Size() {
			return fmt.Errorf("allreduce %d: %d, %w", i, all[0], err)
		}
		if _, err := sum.Wait(); err != nil {
			return err
		}
		if n := w.Size(); out[0] != n*(n-1)/2 {
			return fmt.Errorf("start %d: sum %d", i, out[0])
		}
	}
	return sum.Free()
}

func wrapsProgram(w *comm.Comm) error {
	c, err := w.Dup()
	if err != nil {
		return err
	}
	if err := longLivedProgram(w, c); err != nil {
		return fmt.Errorf("persistent collective of long ago: %w", err)
	}
	if err := c.Free(); err != nil {
		return err
	}
	for i, count := range collWraps {
		c, err := w.Dup()
		if err != nil {
			return err
		}
		comm.StartCollectivesAt(c, count)
		if err := w.Barrier(); err != nil {
			return err
		}
		if err := wrapProgram(c, count); err != nil {
			return fmt.Errorf("count %d: %w", i, err)
		}
		if err := c.Free(); err != nil {
			return err
		}
	}
	return nil
}

// TestCollectivesWhenCountersWrap: ordinary collectives still work when their numbers wrap.
func TestCollectivesWhenCountersWrap(t *testing.T) {
	for _, ranks := range []int{2, 3, 5} {
		require.NoError(t, comm.RunLocal(ranks, wrapsProgram))
	}
}

// TestCollectivesOfProcessesWhenCountersWrap is the same between processes.
func TestCollectivesOfProcessesWhenCountersWrap(t *testing.T) {
	for _, ranks := range []int{2, 3} {
		for rank, got := range unmanaged(t, ranks, "coll wraps") {
			require.Zero(t, got.status, "rank %d of %d: %s", rank, ranks, got.stderr)
		}
	}
}
