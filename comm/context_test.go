package comm_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

// until returns a view of w, and the function that cancels its context.
func until(w *comm.Comm) (view *comm.Comm, cancel context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	return w.WithContext(ctx), cancel
}

// endsInWait is a context that ends once a call waits. A call asks for its error before it posts
// anything, and again when the wait begins.
type endsInWait struct {
	context.Context
	asked  atomic.Int32
	cancel context.CancelFunc
}

func (c *endsInWait) Err() error {
	if c.asked.Add(1) == 2 {
		go c.cancel()
		return nil
	}
	return c.Context.Err()
}

// untilWait returns a view of w whose context ends while the first call through it waits.
func untilWait(w *comm.Comm) *comm.Comm {
	ctx, cancel := context.WithCancel(context.Background())
	return w.WithContext(&endsInWait{Context: ctx, cancel: cancel})
}

func TestViewIsTheSameCommunicator(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		view, cancel := until(w)
		defer cancel()
		assert.Equal(t, w.Rank(), view.Rank())
		assert.Equal(t, w.Size(), view.Size())
		view.SetName("both")
		assert.Equal(t, "both", w.Name())
		if w.Rank() == 0 {
			require.NoError(t, comm.Send(view, []int{1}, 1, 0))
			require.NoError(t, comm.Send(w, []int{2}, 1, 0))
			return
		}
		assert.Equal(t, []int{1}, recv[int](w, 1, 0, 0))
		assert.Equal(t, []int{2}, recv[int](view, 1, 0, 0))
		var background context.Context
		require.NoError(t, comm.Send(w.WithContext(background), []int{1}, comm.ProcNull, 0))
	})
}

// TestCallWithEndedContextPostsNothing: the call returns the error of the context.
func TestCallWithEndedContextPostsNothing(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		view, cancel := until(w)
		cancel()
		assert.ErrorIs(t, comm.Send(view, []int{1}, 0, 0), context.Canceled)
		assert.ErrorIs(t, comm.Send(view, []int{1}, comm.ProcNull, 0), context.Canceled)
		assert.ErrorIs(t, errOf(comm.Isend(view, []int{1}, 0, 0)), context.Canceled)
		_, err := comm.Sendrecv(view, []int{1}, 0, 0, []int{1}, 0, 0)
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorIs(t, comm.SendValue(view, 1, 0, 0), context.Canceled)
		_, found := must2(w.Iprobe(comm.AnySource, comm.AnyTag))
		assert.False(t, found, "nothing was sent")
		require.NoError(t, comm.Send(w, []int{7}, 0, 0))
		got := []int{0}
		assert.ErrorIs(t, errOf(comm.Recv(view, got, 0, 0)), context.Canceled)
		assert.ErrorIs(t, errOf2(view.Mprobe(0, 0)), context.Canceled)
		require.NoError(t, errOf(comm.Recv(w, got, 0, 0)), "the message was left")
		assert.Equal(t, []int{7}, got)
		ctx, cancel := context.WithTimeout(context.Background(), 0)
		defer cancel()
		assert.ErrorIs(t, errOf(w.WithContext(ctx).Probe(0, 0)), context.DeadlineExceeded)
	})
}

// TestRecvThatGivesUpIsWithdrawn: the next receive gets a message that arrives later.
func TestRecvThatGivesUpIsWithdrawn(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		for range 20 {
			lost := []int{-1}
			_, err := comm.Recv(untilWait(w), lost, comm.AnySource, 4)
			assert.ErrorIs(t, err, context.Canceled)
			isErrorOf(t, err, "recv", comm.AnySource, 4)
			require.NoError(t, comm.Send(w, []int{8}, 0, 4))
			assert.Equal(t, []int{8}, recv[int](w, 1, 0, 4))
			assert.Equal(t, []int{-1}, lost)
		}
	})
}

// TestRecvGivesUpOrReceives: the end of the context and the message race. The receive has either
// the message or an error, and no message is lost.
func TestRecvGivesUpOrReceives(t *testing.T) {
	const rounds = 200
	run(t, 2, func(t rank, w *comm.Comm) {
		for i := range rounds {
			n := sizes()[i%len(sizes())]
			if w.Rank() == 0 {
				require.NoError(t, comm.Send(w, pattern(n, i), 1, i))
				continue
			}
			view, cancel := until(w)
			got := make([]byte, n)
			go cancel()
			st, err := comm.Recv(view, got, 0, i)
			if err != nil {
				require.ErrorIs(t, err, context.Canceled)
				st, err = comm.Recv(w, got, 0, i)
			}
			require.NoError(t, err)
			assert.Equal(t, request.Status{Source: 0, Tag: i, Count: n, Bytes: int64(n)}, st)
			assert.Equal(t, pattern(n, i), got)
		}
	})
}

func TestProbeThatGivesUpLosesNoMessage(t *testing.T) {
	const rounds = 100
	run(t, 2, func(t rank, w *comm.Comm) {
		for i := range rounds {
			if w.Rank() == 0 {
				require.NoError(t, comm.Send(w, []int{i}, 1, i))
				continue
			}
			view, cancel := until(w)
			go cancel()
			if i%2 == 0 {
				st, err := view.Probe(0, i)
				if err != nil {
					require.ErrorIs(t, err, context.Canceled)
				} else {
					assert.Equal(t, int64(8), st.Bytes)
				}
				recv[int](w, 1, 0, i)
				continue
			}
			m, _, err := view.Mprobe(0, i)
			if err != nil {
				require.ErrorIs(t, err, context.Canceled)
				assert.Nil(t, m)
				m, _ = must2(w.Mprobe(0, i))
			}
			got := []int{0}
			st, err := comm.Mrecv(m, got)
			require.NoError(t, err, "also if the view that it was probed through has ended")
			assert.Equal(t, 1, st.Count)
			assert.Equal(t, []int{i}, got)
		}
	})
}

func TestRecvValueThatGivesUpLosesNoValue(t *testing.T) {
	const rounds = 100
	run(t, 2, func(t rank, w *comm.Comm) {
		for i := range rounds {
			if w.Rank() == 0 {
				require.NoError(t, comm.SendValue(w, i, 1, i))
				continue
			}
			view, cancel := until(w)
			go cancel()
			v, _, err := comm.RecvValue[int](view, 0, i)
			if err != nil {
				require.ErrorIs(t, err, context.Canceled)
				v, _, err = comm.RecvValue[int](w, 0, i)
			}
			require.NoError(t, err)
			assert.Equal(t, i, v)
		}
	})
}

// TestSendThatGivesUpGoesOn: the message can be received, once.
func TestSendThatGivesUpGoesOn(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		for i, n := range sizes() {
			want := pattern(n, i)
			err := comm.Ssend(untilWait(w), want, 0, i)
			assert.ErrorIs(t, err, context.Canceled)
			isErrorOf(t, err, "ssend", 0, i)
			assert.Equal(t, want, recv[byte](w, n, 0, i))
			_, found := must2(w.Iprobe(comm.AnySource, comm.AnyTag))
			assert.False(t, found)
		}
	})
}

// TestSendrecvThatGivesUpWithdrawsReceive: the send of the call completes.
func TestSendrecvThatGivesUpWithdrawsReceive(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		_, err := comm.Sendrecv(untilWait(w), []int{3}, 0, 1, []int{0}, 0, 2)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, []int{3}, recv[int](w, 1, 0, 1))
		require.NoError(t, comm.Send(w, []int{4}, 0, 2))
		assert.Equal(t, []int{4}, recv[int](w, 1, 0, 2), "the first receive does not take it")
	})
}

// TestWaitContextEndsOnlyTheWait: the request stays active.
func TestWaitContextEndsOnlyTheWait(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		ctx, cancel := context.WithCancel(context.Background())
		got := []int{0}
		r := must(comm.Irecv(w, got, 0, 0))
		go cancel()
		assert.ErrorIs(t, errOf(r.WaitContext(ctx)), context.Canceled)
		assert.True(t, r.IsActive())
		require.NoError(t, comm.Send(w, []int{5}, 0, 0))
		st := must(r.Wait())
		assert.Equal(t, 1, st.Count)
		assert.Equal(t, []int{5}, got)
	})
}

func TestRequestsOutliveContext(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		view, cancel := until(w)
		got := []int{0}
		r := must(comm.Irecv(view, got, 0, 0))
		cancel()
		require.NoError(t, comm.Send(w, []int{5}, 0, 0))
		must(r.Wait())
		assert.Equal(t, []int{5}, got)
	})
}

func TestDupAndFreeIgnoreContextOfView(t *testing.T) {
	run(t, 3, func(t rank, w *comm.Comm) {
		view, cancel := until(w)
		cancel()
		c := must(view.Dup())
		require.NoError(t, comm.Send(c, []int{1}, comm.ProcNull, 0), "the new one has no context")
		assert.ErrorIs(t, errOf(view.Split(0, 0)), context.Canceled)
		assert.ErrorIs(t, errOf(view.SplitHost(0)), context.Canceled)
		require.NoError(t, c.WithContext(context.Background()).Free())
		assert.ErrorIs(t, c.Free(), comm.ErrComm)
	})
}

// TestSplitThatGivesUpMakesCommunicatorUnfit: only messages still work.
func TestSplitThatGivesUpMakesCommunicatorUnfit(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		c := must(w.Dup())
		if w.Rank() == 0 {
			_, err := untilWait(c).Split(0, 0) // rank 1 does not call it
			assert.ErrorIs(t, err, context.Canceled)
			comm.EqualError(t, err, "world/dup: split (peer 1): given up, and the other ranks are told: context canceled")
			assert.ErrorIs(t, errOf(c.Split(0, 0)), comm.ErrComm)
			assert.ErrorIs(t, errOf(c.Dup()), comm.ErrComm)
			require.NoError(t, comm.Send(c, []int{1}, 1, 0))
			return
		}
		must(comm.Recv(c, []int{0}, 0, 0))
	})
}
