package comm_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

// TestNewPersistentRequestIsInactive: no call on the request waits.
func TestNewPersistentRequestIsInactive(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		b := make([]int, 4)
		send, recv := must(comm.SendInit(w, b, 0, 0)), must(comm.RecvInit(w, b, 0, 0))
		for _, r := range []request.Request{send, recv} {
			assert.True(t, r.IsPersistent())
			assert.False(t, r.IsActive())
			assert.False(t, r.IsNull())
			assert.Equal(t, request.Empty(), must(r.Wait()))
			st, done := must2(r.Test())
			assert.True(t, done)
			assert.Equal(t, request.Empty(), st)
			st, done = must2(r.GetStatus())
			assert.True(t, done)
			assert.Equal(t, request.Empty(), st)
			assert.ErrorIs(t, r.Cancel(), comm.ErrRequest)
		}
		require.NoError(t, request.WaitAll(send, recv))
		i, st := must2(request.WaitAny(send, recv))
		assert.Equal(t, comm.Undefined, i)
		assert.Equal(t, request.Empty(), st)
		n := must(request.WaitSome([]request.Request{send, recv}, make([]int, 2), nil))
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
				recv := must(comm.RecvInit(w, in, peer, m))
				send := must(init(w, out, peer, m))
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

// TestPersistentOperationsAreOrderedByStart: the order of the starts counts, not that of the Init
// calls. Persistent operations match ordinary ones.
func TestPersistentOperationsAreOrderedByStart(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		second := must(comm.SendInit(w, []int{2}, 0, 0))
		first := must(comm.SendInit(w, []int{1}, 0, 0))
		a, b := []int{0}, []int{0}
		late := must(comm.RecvInit(w, b, 0, comm.AnyTag))
		early := must(comm.Irecv(w, a, comm.AnySource, 0))
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
		c := must(w.Dup())
		out, got := []int{0}, []int{0}
		recv := must(comm.RecvInit(c, got, comm.AnySource, 0))
		send := must(comm.SendInit(c, out, 0, 0))
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
		r := must(comm.RecvInit(w, b, 0, 5))
		for range 3 {
			require.NoError(t, r.Start())
			require.NoError(t, r.Cancel())
			st := must(r.Wait())
			assert.True(t, st.Cancelled)
			assert.False(t, r.IsActive())
			require.NoError(t, r.Start())
			require.NoError(t, comm.Send(w, []int32{1, 2, 3}, 0, 5))
			sts := make([]request.Status, 1)
			err := request.WaitAllStatus([]request.Request{r}, sts)
			assert.ErrorIs(t, err, comm.ErrInStatus)
			assert.ErrorIs(t, err, comm.ErrTruncate)
			assert.ErrorIs(t, sts[0].Err, comm.ErrTruncate)
			assert.Equal(t, 2, sts[0].Count)
			assert.False(t, r.IsActive())
			require.NoError(t, r.Start())
			require.NoError(t, comm.Send(w, []int32{7}, 0, 5))
			assert.Equal(t, request.Status{Source: 0, Tag: 5, Count: 1, Bytes: 4}, must(r.Wait()))
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
				r := must(comm.Isend(w, want, 1, i))
				require.NoError(t, r.Free())
				assert.True(t, r.IsNull())
				p := must(comm.SendInit(w, want, 1, 1000+i))
				require.NoError(t, p.Start())
				require.NoError(t, p.Free())
			}
		}
		// Rank 0 is soon in Finalize, where it has to go on sending.
		if w.Rank() == 1 {
			for i, n := range sizes() {
				for _, tag := range []int{1000 + i, i} {
					assert.Equal(t, pattern(n, i), recv[byte](w, n, 0, tag))
				}
			}
		}
	})
	// A receive completes too, and consumes its message.
	run(t, 1, func(t rank, w *comm.Comm) {
		got := []int{0}
		r := must(comm.Irecv(w, got, 0, 0))
		require.NoError(t, r.Free())
		require.NoError(t, comm.Ssend(w, []int{5}, 0, 0))
		_, found := must2(w.Iprobe(comm.AnySource, comm.AnyTag))
		assert.False(t, found)
		assert.Equal(t, []int{5}, got)
	})
}

func TestCancelOfReceiveIsLocal(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		got := []int{0}
		r := must(comm.Irecv(w, got, 0, 0))
		require.NoError(t, r.Cancel())
		st := must(r.Wait())
		assert.True(t, st.Cancelled)
		assert.True(t, r.IsNull())
		assert.ErrorIs(t, r.Cancel(), comm.ErrRequest)
		// A receive that has matched completes.
		r = must(comm.Irecv(w, got, 0, 0))
		require.NoError(t, comm.Send(w, []int{6}, 0, 0))
		for {
			if _, done, err := r.GetStatus(); done {
				require.NoError(t, err)
				break
			}
		}
		require.NoError(t, r.Cancel())
		assert.Equal(t, request.Status{Source: 0, Tag: 0, Count: 1, Bytes: 8}, must(r.Wait()))
		assert.Equal(t, []int{6}, got)
		// A send that cannot be cancelled is sent.
		s := must(comm.Issend(w, []int{7}, 0, 0))
		require.NoError(t, s.Cancel())
		must(comm.Recv(w, got, 0, 0))
		st = must(s.Wait())
		assert.False(t, st.Cancelled)
		assert.Equal(t, []int{7}, got)
	})
}

func TestErrorOfStartOrCancelNamesRequest(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		p := must(comm.RecvInit(w, []int{0}, 0, 5))
		inactive := must(comm.RecvInit(w, []int{0}, 0, 6))
		once := must(comm.Irecv(w, []int{0}, 0, 5))
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
			comm.EqualError(t, row.err, row.want)
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
