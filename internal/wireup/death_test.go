package wireup

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// These tests end one rank; no other rank may hang.

// waitState waits until the server has the rank in a state.
func waitState(t testing.TB, s *Server, rank int, want State) {
	t.Helper()
	require.Eventually(t, func() bool { return s.State(rank) == want }, 20*time.Second, 100*time.Microsecond)
}

func TestBarrierFailsWhenRankDies(t *testing.T) {
	const n = 4
	j := newJob(t, ServerConfig{Size: n}, socketPair)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for rank := 1; rank < n; rank++ {
		wg.Go(func() { errs[rank] = j.clients[rank].Barrier() })
	}
	for rank := 1; rank < n; rank++ {
		waitState(t, j.server, rank, StateInBarrier)
	}
	j.clients[0].Close()
	wg.Wait()
	assert.ErrorIs(t, <-j.served[0], ErrNotFinalized)
	assert.Equal(t, StateGone, j.server.State(0))
	for rank := 1; rank < n; rank++ {
		assert.EqualError(t, errs[rank], "wireup: rank 0 is gone: barrier cannot complete")
		assert.ErrorIs(t, errs[rank], ErrBarrier)
		err := <-j.served[rank]
		assert.ErrorIs(t, err, ErrBarrier)
		assert.ErrorContains(t, err, "rank 0 is gone")
		// Every later call returns the reason.
		assert.ErrorIs(t, j.clients[rank].Put("k", nil), ErrBarrier)
	}
}

func TestBarrierAfterRankLeftFails(t *testing.T) {
	for name, leave := range map[string]func(*Client) error{"has finalized": (*Client).Finalize, "is gone": (*Client).Close} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t, ServerConfig{Size: 2}, pipePair)
			require.NoError(t, leave(j.clients[0]))
			<-j.served[0]
			err := j.clients[1].Barrier()
			assert.ErrorIs(t, err, ErrBarrier)
			assert.ErrorContains(t, err, "rank 0 "+name)
			err = <-j.served[1]
			assert.ErrorIs(t, err, ErrBarrier)
			assert.ErrorContains(t, err, "rank 0 "+name)
		})
	}
}

// A process may end as soon as it has the answer to finalize, so the server must have recorded it
// before.
func TestFinalizeIsRecordedBeforeTheAnswer(t *testing.T) {
	for range 200 {
		j := newJob(t, ServerConfig{Size: 1}, pipePair)
		require.NoError(t, j.clients[0].Finalize())
		require.Equal(t, StateFinalized, j.server.State(0))
		require.NoError(t, <-j.served[0])
	}
}

// A rank whose program does not speak PMI never enters a barrier.
func TestBarrierWithRankWithoutPMIFails(t *testing.T) {
	s, err := NewServer(ServerConfig{Size: 2, JobID: "j"})
	require.NoError(t, err)
	ours, theirs := net.Pipe()
	theirs.Close()
	require.NoError(t, s.Serve(1, ours))
	assert.Equal(t, StateNeverInited, s.State(1))

	ours, theirs = net.Pipe()
	done := make(chan error, 1)
	go func() { done <- s.Serve(0, ours) }()
	c, err := NewClient(theirs, 0, 2)
	require.NoError(t, err)
	defer c.Close()
	var failure *BarrierError
	require.ErrorAs(t, c.Barrier(), &failure)
	assert.Equal(t, BarrierError{Rank: 1, State: StateNeverInited}, *failure)
	err = <-done
	assert.ErrorIs(t, err, ErrBarrier)
	assert.ErrorContains(t, err, "rank 1 ended without Init")
}

func TestBarrierFailsWhenRankInItDies(t *testing.T) {
	j := newJob(t, ServerConfig{Size: 3}, pipePair)
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for rank := range 2 {
		wg.Go(func() { errs[rank] = j.clients[rank].Barrier() })
		waitState(t, j.server, rank, StateInBarrier)
	}
	j.clients[0].Close()
	wg.Wait()
	assert.ErrorIs(t, errs[0], ErrClosed)
	assert.ErrorIs(t, <-j.served[0], ErrNotFinalized)
	assert.ErrorIs(t, errs[1], ErrBarrier)
	assert.ErrorIs(t, <-j.served[1], ErrBarrier)
	assert.Equal(t, StateInited, j.server.State(2))
}

func TestAbortDuringBarrier(t *testing.T) {
	got := make(chan Abort, 1)
	j := newJob(t, ServerConfig{Size: 3, OnAbort: func(a Abort) { got <- a }}, socketPair)
	var wg sync.WaitGroup
	// Abort does not wait for the barrier of another goroutine of the rank.
	wg.Go(func() { assert.ErrorIs(t, j.clients[1].Barrier(), ErrClosed) })
	wg.Go(func() { assert.ErrorContains(t, j.clients[0].Barrier(), "rank 1 has aborted the job") })
	waitState(t, j.server, 0, StateInBarrier)
	waitState(t, j.server, 1, StateInBarrier)
	require.NoError(t, j.clients[1].Abort(Abort{Code: -7, Message: "disk full: 100%+\n=;ä", Why: Returned}))
	assert.Equal(t, Abort{1, -7, "disk full: 100%+\n=;ä", Returned}, <-got)
	// Until the launcher has killed the process, the barrier goes on.
	assert.Equal(t, StateAborted, j.server.State(1))
	assert.Equal(t, StateInBarrier, j.server.State(0))
	require.NoError(t, j.clients[1].Abort(Abort{Code: 8, Message: "the server ignores a second abort"}))
	j.clients[1].Close() // as if the launcher had killed it
	wg.Wait()
	assert.ErrorIs(t, <-j.served[1], ErrAborted)
	assert.Equal(t, StateAborted, j.server.State(1))
	err := <-j.served[0]
	assert.ErrorIs(t, err, ErrBarrier)
	assert.ErrorContains(t, err, "rank 1 has aborted the job")
	assert.Empty(t, got)
}

func TestAbortWithoutOnAbortEndsServe(t *testing.T) {
	j := newJob(t, ServerConfig{Size: 2}, pipePair)
	require.NoError(t, j.clients[0].Abort(Abort{Code: 1}))
	assert.ErrorIs(t, <-j.served[0], ErrAborted)
	assert.ErrorIs(t, j.clients[0].Barrier(), ErrLost)
}

// Fail ends the connection of an aborted rank, whose Serve still returns ErrAborted.
func TestFailAfterAbortReturnsAbort(t *testing.T) {
	called := make(chan struct{})
	j := newJob(t, ServerConfig{Size: 1, OnAbort: func(Abort) { close(called) }}, pipePair)
	require.NoError(t, j.clients[0].Abort(Abort{Code: 1}))
	<-called
	j.server.Fail(nil)
	assert.ErrorIs(t, <-j.served[0], ErrAborted)
	assert.Equal(t, StateAborted, j.server.State(0))
}

func TestFailEndsAllButFinalizedRanks(t *testing.T) {
	j := newJob(t, ServerConfig{Size: 3}, pipePair)
	require.NoError(t, j.clients[2].Finalize())
	require.NoError(t, <-j.served[2])
	errBoom := errors.New("boom")
	j.server.Fail(errBoom)
	j.server.Fail(errors.New("second"))
	for rank := range 2 {
		assert.ErrorIs(t, <-j.served[rank], errBoom)
		assert.ErrorIs(t, j.clients[rank].Barrier(), ErrLost)
		assert.Equal(t, StateGone, j.server.State(rank))
	}
	assert.Equal(t, StateFinalized, j.server.State(2))
}

// If the launcher calls Fail with one rank's error, the states of the other ranks do not follow
// from that error.
func TestFailWithErrorOfOtherRankKeepsState(t *testing.T) {
	for _, cause := range []error{ErrAborted, ErrLost, ErrNotFinalized} {
		j := newJob(t, ServerConfig{Size: 1}, pipePair)
		j.server.Fail(cause)
		assert.ErrorIs(t, <-j.served[0], cause)
		assert.Equal(t, StateGone, j.server.State(0))
	}
}

func TestServeAfterFailReturnsItsError(t *testing.T) {
	s, err := NewServer(ServerConfig{Size: 1, JobID: "j"})
	require.NoError(t, err)
	s.Fail(nil)
	ours, theirs := net.Pipe()
	assert.ErrorIs(t, s.Serve(0, ours), ErrClosed)
	_, err = theirs.Read(make([]byte, 1))
	assert.Error(t, err)
}

func TestCloseEndsPendingCalls(t *testing.T) {
	j := newJob(t, ServerConfig{Size: 2}, socketPair)
	var wg sync.WaitGroup
	wg.Go(func() { assert.ErrorIs(t, j.clients[0].Barrier(), ErrClosed) })
	waitState(t, j.server, 0, StateInBarrier)
	wg.Go(func() { // waits until the barrier's exchange is over
		_, err := j.clients[0].Get("k")
		assert.ErrorIs(t, err, ErrClosed)
	})
	require.NoError(t, j.clients[0].Close())
	wg.Wait()
}
