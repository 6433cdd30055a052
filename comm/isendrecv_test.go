package comm_test

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

// TestIsendrecvMovesBothMessages: rings of every size, with each way to wait.
func TestIsendrecvMovesBothMessages(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		run(t, n, func(t rank, w *comm.Comm) {
			next, prev := (w.Rank()+1)%n, (w.Rank()+n-1)%n
			for i, size := range sizes() {
				out, in := pattern(size, w.Rank()), make([]byte, size+3)
				r := must(comm.Isendrecv(w, out, next, i, in, prev, i))
				var st request.Status
				var err error
				switch i % 4 {
				case 0:
					st, err = r.Wait()
				case 1:
					for done := false; !done; {
						st, done, err = r.Test()
					}
				case 2:
					sts := make([]request.Status, 2)
					err = request.WaitAllStatus([]request.Request{r, {}}, sts)
					st = sts[0]
				case 3:
					_, st, err = request.WaitAny(request.Request{}, r)
				}
				require.NoError(t, err)
				assert.Equal(t, request.Status{Source: prev, Tag: i, Count: size, Bytes: int64(size)}, st)
				assert.Equal(t, pattern(size, prev), in[:size])
				assert.True(t, r.IsNull())
			}
		})
	}
}

// TestIsendrecvMatchesOrdinaryCalls: each half matches a send or a receive, in any order, and the
// elements have different types.
func TestIsendrecvMatchesOrdinaryCalls(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		for _, sendFirst := range []bool{true, false} {
			if w.Rank() == 0 {
				in := make([]int32, 4)
				r := must(comm.Isendrecv(w, []float64{1.5}, 1, 3, in, comm.AnySource, comm.AnyTag))
				st := must(r.Wait())
				assert.Equal(t, request.Status{Source: 1, Tag: 4, Count: 2, Bytes: 8}, st)
				assert.Equal(t, []int32{7, 8, 0, 0}, in)
				continue
			}
			if sendFirst {
				require.NoError(t, comm.Send(w, []int32{7, 8}, 0, 4))
			}
			assert.Equal(t, []float64{1.5}, recv[float64](w, 1, 0, 3))
			if !sendFirst {
				require.NoError(t, comm.Send(w, []int32{7, 8}, 0, 4))
			}
		}
		// Many at once, completed in the reverse order.
		var reqs []request.Request
		in, peer := make([][]int, 50), 1-w.Rank()
		for i := range in {
			in[i] = []int{-1}
			reqs = append(reqs, must(comm.Isendrecv(w, []int{i}, peer, i, in[i], peer, len(in)-1-i)))
		}
		require.NoError(t, request.WaitAll(reqs...))
		for i := range in {
			assert.Equal(t, len(in)-1-i, in[i][0])
		}
	})
}

func TestIsendrecvOfProcNull(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		r := must(comm.Isendrecv(w, []int{1}, comm.ProcNull, 0, []int{0}, comm.ProcNull, 0))
		st, done, err := r.Test()
		require.NoError(t, err)
		assert.True(t, done)
		assert.Equal(t, request.Status{Source: comm.ProcNull, Tag: comm.AnyTag}, st)
		dest, source := comm.ProcNull, 0
		if w.Rank() == 0 {
			dest, source = 1, comm.ProcNull
		}
		in := []int{0}
		must(must(comm.Isendrecv(w, []int{5}, dest, 0, in, source, 0)).Wait())
		assert.Equal(t, 5*w.Rank(), in[0])
	})
}

func TestIsendrecvRefusesBadArguments(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		ok, in := []int{1}, []int{0}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for i, c := range []struct {
			err  error
			want error
		}{
			{errOf(comm.Isendrecv(w, []string{""}, 9, 0, in, 0, 0)), comm.ErrType},
			{errOf(comm.Isendrecv(w, ok, 9, 0, []*int{nil}, 0, 0)), comm.ErrType},
			{errOf(comm.Isendrecv(nil, ok, 9, 0, in, 0, 0)), comm.ErrComm},
			{errOf(comm.Isendrecv(w, ok, 9, -1, in, 0, 0)), comm.ErrRank},
			{errOf(comm.Isendrecv(w, ok, comm.AnySource, 0, in, 0, 0)), comm.ErrRank},
			{errOf(comm.Isendrecv(w, ok, 0, -1, in, 1, 0)), comm.ErrRank},
			{errOf(comm.Isendrecv(w, ok, 0, comm.AnyTag, in, 0, 0)), comm.ErrTag},
			{errOf(comm.Isendrecv(w, ok, 0, 0, in, 0, w.TagUB()+1)), comm.ErrTag},
			{errOf(comm.Isendrecv(w, in, 0, 0, in, 0, 0)), comm.ErrBuffer},
			{errOf(comm.Isendrecv(w.WithContext(ended), ok, 0, 0, in, 0, 0)), context.Canceled},
		} {
			assert.ErrorIs(t, c.err, c.want, i)
		}
	})
}

// TestIsendrecvCancelled: Cancel withdraws the receive; the send goes on.
func TestIsendrecvCancelled(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		if w.Rank() == 1 {
			recv[int](w, 1, 0, 9)
			assert.Equal(t, pattern(1<<20, 1), recv[byte](w, 1<<20, 0, 0))
			return
		}
		in := []int{-1}
		// The send is complete.
		r := must(comm.Isendrecv(w, []int{1}, comm.ProcNull, 0, in, 1, 7))
		require.NoError(t, r.Cancel())
		assert.True(t, must(r.Wait()).Cancelled)
		// The send is under way.
		r = must(comm.Isendrecv(w, pattern(1<<20, 1), 1, 0, in, 1, 7))
		require.NoError(t, r.Cancel())
		require.NoError(t, r.Cancel())
		_, done, err := r.GetStatus()
		require.NoError(t, err)
		assert.False(t, done)
		require.NoError(t, comm.Send(w, []int{0}, 1, 9))
		assert.True(t, must(r.Wait()).Cancelled)
		assert.ErrorIs(t, r.Cancel(), comm.ErrRequest)
		assert.Equal(t, -1, in[0])
	})
}

// TestIsendrecvFreed: the operation goes on in the background.
func TestIsendrecvFreed(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		peer, in := 1-w.Rank(), make([]byte, 1<<18)
		r := must(comm.Isendrecv(w, pattern(len(in), w.Rank()), peer, 0, in, peer, 0))
		require.NoError(t, r.Free())
		assert.True(t, r.IsNull())
		must(comm.Sendrecv(w, []int{1}, peer, 1, []int{1}, peer, 1))
		require.NoError(t, w.Barrier())
		for in[len(in)-1] != pattern(len(in), peer)[len(in)-1] {
			_, _, err := w.Iprobe(peer, 5)
			require.NoError(t, err)
			runtime.Gosched()
		}
	})
}

// TestIsendrecvReportsErrors: the error of the receive comes first; the request is complete when
// both halves are.
func TestIsendrecvReportsErrors(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		peer, in := 1-w.Rank(), []byte{0, 0}
		r := must(comm.Isendrecv(w, pattern(1<<19, 3), peer, 6, in, peer, 6))
		if w.Rank() == 0 {
			_, err := r.Wait()
			isErrorOf(t, err, "isendrecv", 1, 6)
			assert.ErrorIs(t, err, comm.ErrTruncate)
		} else {
			sts := make([]request.Status, 1)
			assert.ErrorIs(t, request.WaitAllStatus([]request.Request{r}, sts), comm.ErrInStatus)
			assert.ErrorIs(t, sts[0].Err, comm.ErrTruncate)
			assert.Equal(t, 2, sts[0].Count)
		}
		assert.Equal(t, pattern(1<<19, 3)[:2], in)
	})
	// The peer is gone: both halves fail.
	run(t, 2, func(t rank, w *comm.Comm) {
		if w.Rank() == 1 {
			return
		}
		_, err := must(comm.Isendrecv(w, make([]byte, 1<<20), 1, 0, []int{0}, 1, 0)).Wait()
		assert.ErrorIs(t, err, comm.ErrProcFailed)
	})
	// A wait that gives up leaves the operation active.
	run(t, 2, func(t rank, w *comm.Comm) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		peer := 1 - w.Rank()
		if w.Rank() == 1 {
			recv[int](w, 1, 0, 1)
			must(comm.Sendrecv(w, []int{4}, 0, 0, []int{0}, 0, 0))
			return
		}
		in := []int{0}
		r := must(comm.Isendrecv(w, []int{3}, peer, 0, in, peer, 0))
		_, err := r.WaitContext(ended)
		isErrorOf(t, err, "isendrecv", 1, 0)
		assert.ErrorIs(t, err, context.Canceled)
		assert.True(t, r.IsActive())
		require.NoError(t, errors.Join(comm.Send(w, []int{1}, peer, 1), errOf(r.Wait())))
		assert.Equal(t, 4, in[0])
	})
}
