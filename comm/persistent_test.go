package comm_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

// TestNewPersistentRequestIsInactive: no call on it waits.
func TestNewPersistentRequestIsInactive(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		b := make([]int, 4)
		send, err := comm.SendInit(w, b, 0, 0)
		require.NoError(t, err)
		recv, err := comm.RecvInit(w, b, 0, 0)
		require.NoError(t, err)
		for _, r := range []request.Request{send, recv} {
			assert.True(t, r.IsPersistent())
			assert.False(t, r.IsActive())
			assert.False(t, r.IsNull())
			st, err := r.Wait()
			require.NoError(t, err)
			assert.Equal(t, request.Empty(), st)
			st, done, err := r.Test()
			require.NoError(t, err)
			assert.True(t, done)
			assert.Equal(t, request.Empty(), st)
			st, done, err = r.GetStatus()
			require.NoError(t, err)
			assert.True(t, done)
			assert.Equal(t, request.Empty(), st)
			assert.ErrorIs(t, r.Cancel(), comm.ErrRequest)
		}
		require.NoError(t, request.WaitAll(send, recv))
		i, st, err := request.WaitAny(send, recv)
		require.NoError(t, err)
		assert.Equal(t, comm.Undefined, i)
		assert.Equal(t, request.Empty(), st)
		n, err := request.WaitSome([]request.Request{send, recv}, make([]int, 2), nil)
		require.NoError(t, err)
		assert.Equal(t, request.Undefined, n)
		require.NoError(t, send.Free())
		require.NoError(t, recv.Free())
		assert.ErrorIs(t, send.Free(), comm.ErrRequest)
		assert.ErrorIs(t, send.Start(), comm.ErrRequest)
	})
}

func TestPersistentSendSendsCurrentContents(t *testing.T) {
	inits := []func(c *comm.Comm, b []byte, dest, tag int) (request.Request, error){
		comm.SendInit[byte], comm.SsendInit[byte], comm.BsendInit[byte], comm.RsendInit[byte],
	}
	run(t, 2, func(t rank, w *comm.Comm) {
		peer := 1 - w.Rank()
		for _, n := range sizes() {
			for m, init := range inits {
				out, in := make([]byte, n), make([]byte, n)
				recv, err := comm.RecvInit(w, in, peer, m)
				require.NoError(t, err)
				send, err := init(w, out, peer, m)
				require.NoError(t, err)
				for round := range 3 {
					copy(out, pattern(n, w.Rank()+10*round))
					require.NoError(t, request.StartAll(recv, send))
					assert.ErrorIs(t, recv.Start(), comm.ErrRequest, "active")
					assert.True(t, send.IsActive())
					sts := make([]request.Status, 2)
					require.NoError(t, request.WaitAllStatus([]request.Request{recv, send}, sts))
					assert.Equal(t, request.Status{Source: peer, Tag: m, Count: n, Bytes: int64(n)}, sts[0])
					assert.False(t, send.IsActive())
					require.Equal(t, pattern(n, peer+10*round), in)
				}
				require.NoError(t, recv.Free())
				require.NoError(t, send.Free())
			}
		}
	})
}

// TestPersistentOperationsAreOrderedByStart: they are ordered by their starts and not by when they
// were made, and match ordinary operations.
func TestPersistentOperationsAreOrderedByStart(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		second, err := comm.SendInit(w, []int{2}, 0, 0)
		require.NoError(t, err)
		first, err := comm.SendInit(w, []int{1}, 0, 0)
		require.NoError(t, err)
		a, b := []int{0}, []int{0}
		late, err := comm.RecvInit(w, b, 0, comm.AnyTag)
		require.NoError(t, err)
		early, err := comm.Irecv(w, a, comm.AnySource, 0)
		require.NoError(t, err)
		require.NoError(t, late.Start())
		require.NoError(t, first.Start())
		require.NoError(t, second.Start())
		require.NoError(t, request.WaitAll(late, early, first, second))
		assert.Equal(t, []int{1, 2}, []int{a[0], b[0]})
		for _, r := range []request.Request{first, second, late} {
			require.NoError(t, r.Free())
		}
	})
}

func TestPersistentRequestOutlivesFreeOfCommunicator(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		c, err := w.Dup()
		require.NoError(t, err)
		out, got := []int{0}, []int{0}
		recv, err := comm.RecvInit(c, got, comm.AnySource, 0)
		require.NoError(t, err)
		send, err := comm.SendInit(c, out, 0, 0)
		require.NoError(t, err)
		require.NoError(t, c.Free())
		for i := range 3 {
			out[0] = i
			require.NoError(t, request.StartAll(recv, send))
			require.NoError(t, request.WaitAll(recv, send))
			assert.Equal(t, i, got[0])
		}
		require.NoError(t, recv.Free())
		require.NoError(t, send.Free())
	})
}

func TestPersistentRequestCanStartAfterCancelOrFailure(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		b := []int32{0, 0}
		r, err := comm.RecvInit(w, b, 0, 5)
		require.NoError(t, err)
		for range 3 {
			require.NoError(t, r.Start())
			require.NoError(t, r.Cancel())
			st, err := r.Wait()
			require.NoError(t, err)
			assert.True(t, st.Cancelled)
			assert.False(t, r.IsActive())

			require.NoError(t, r.Start())
			require.NoError(t, comm.Send(w, []int32{1, 2, 3}, 0, 5))
			sts := make([]request.Status, 1)
			err = request.WaitAllStatus([]request.Request{r}, sts)
			assert.ErrorIs(t, err, comm.ErrInStatus)
			assert.ErrorIs(t, err, comm.ErrTruncate)
			assert.ErrorIs(t, sts[0].Err, comm.ErrTruncate)
			assert.Equal(t, 2, sts[0].Count)
			assert.False(t, r.IsActive())

			require.NoError(t, r.Start())
			require.NoError(t, comm.Send(w, []int32{7}, 0, 5))
			st, err = r.Wait()
			require.NoError(t, err)
			assert.Equal(t, request.Status{Source: 0, Tag: 5, Count: 1, Bytes: 4}, st)
			assert.Equal(t, []int32{7, 2}, b)
		}
		require.NoError(t, r.Free())
	})
}

func TestFreedActiveRequestCompletes(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		for i, n := range sizes() {
			want := pattern(n, i)
			if w.Rank() == 0 {
				r, err := comm.Isend(w, want, 1, i)
				require.NoError(t, err)
				require.NoError(t, r.Free())
				assert.True(t, r.IsNull())
				p, err := comm.SendInit(w, want, 1, 1000+i)
				require.NoError(t, err)
				require.NoError(t, p.Start())
				require.NoError(t, p.Free())
			}
		}
		// Rank 0 is soon in Finalize, where it has to go on sending.
		if w.Rank() == 1 {
			for i, n := range sizes() {
				for _, tag := range []int{1000 + i, i} {
					got := make([]byte, n)
					_, err := comm.Recv(w, got, 0, tag)
					require.NoError(t, err)
					assert.Equal(t, pattern(n, i), got)
				}
			}
		}
	})
	// A receive completes too, and consumes its message.
	run(t, 1, func(t rank, w *comm.Comm) {
		got := []int{0}
		r, err := comm.Irecv(w, got, 0, 0)
		require.NoError(t, err)
		require.NoError(t, r.Free())
		require.NoError(t, comm.Ssend(w, []int{5}, 0, 0))
		_, found, err := w.Iprobe(comm.AnySource, comm.AnyTag)
		require.NoError(t, err)
		assert.False(t, found)
		assert.Equal(t, []int{5}, got)
	})
}

func TestCancelOfReceiveIsLocal(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		got := []int{0}
		r, err := comm.Irecv(w, got, 0, 0)
		require.NoError(t, err)
		require.NoError(t, r.Cancel())
		st, err := r.Wait()
		require.NoError(t, err)
		assert.True(t, st.Cancelled)
		assert.True(t, r.IsNull())
		assert.ErrorIs(t, r.Cancel(), comm.ErrRequest)

		// A receive that has matched completes.
		r, err = comm.Irecv(w, got, 0, 0)
		require.NoError(t, err)
		require.NoError(t, comm.Send(w, []int{6}, 0, 0))
		for {
			if _, done, err := r.GetStatus(); done {
				require.NoError(t, err)
				break
			}
		}
		require.NoError(t, r.Cancel())
		st, err = r.Wait()
		require.NoError(t, err)
		assert.Equal(t, request.Status{Source: 0, Tag: 0, Count: 1, Bytes: 8}, st)
		assert.Equal(t, []int{6}, got)

		// A send that cannot be cancelled is sent.
		s, err := comm.Issend(w, []int{7}, 0, 0)
		require.NoError(t, err)
		require.NoError(t, s.Cancel())
		_, err = comm.Recv(w, got, 0, 0)
		require.NoError(t, err)
		st, err = s.Wait()
		require.NoError(t, err)
		assert.False(t, st.Cancelled)
		assert.Equal(t, []int{7}, got)
	})
}

func TestErrorOfStartOrCancelNamesRequest(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		p, err := comm.RecvInit(w, []int{0}, 0, 5)
		require.NoError(t, err)
		inactive, err := comm.RecvInit(w, []int{0}, 0, 6)
		require.NoError(t, err)
		once, err := comm.Irecv(w, []int{0}, 0, 5)
		require.NoError(t, err)
		require.NoError(t, p.Start())
		for _, row := range []struct {
			err  error
			want string
		}{
			{p.Start(), "world: recv init (peer 0, tag 5): start: invalid request: the request is active"},
			{once.Start(), "world: irecv (peer 0, tag 5): start: invalid request: the request is not persistent"},
			{inactive.Cancel(), "world: recv init (peer 0, tag 6): cancel: invalid request: the request is inactive"},
			{request.StartAll(inactive, p), "request 1: world: recv init (peer 0, tag 5): start: invalid request: the request is active"},
			{request.StartAll(inactive, inactive), "request 1: world: recv init (peer 0, tag 6): start: invalid request: the request is in the list twice"},
		} {
			assert.EqualError(t, row.err, row.want)
			assert.ErrorIs(t, row.err, comm.ErrRequest)
			var e *comm.Error
			assert.ErrorAs(t, row.err, &e)
		}
		for _, r := range []request.Request{p, once} {
			require.NoError(t, r.Cancel())
			require.NoError(t, r.Free())
		}
		require.NoError(t, inactive.Free())
	})
}
