package comm_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

// TestEverySizeAndModeArrives: the status has the source, tag and length.
func TestEverySizeAndModeArrives(t *testing.T) {
	modes := []func(c *comm.Comm, b []byte, dest, tag int) error{
		comm.Send[byte], comm.Ssend[byte], comm.Bsend[byte], comm.Rsend[byte],
		waited(comm.Isend[byte]), waited(comm.Issend[byte]), waited(comm.Ibsend[byte]), waited(comm.Irsend[byte]),
	}
	run(t, 2, func(t rank, w *comm.Comm) {
		for m, send := range modes {
			for i, n := range sizes() {
				want := pattern(n, m*100+i)
				if w.Rank() == 0 {
					require.NoError(t, send(w, want, 1, i), "mode %d, %d bytes", m, n)
					continue
				}
				got := make([]byte, n+3)
				st := must(comm.Recv(w, got, 0, i))
				assert.Equal(t, request.Status{Source: 0, Tag: i, Count: n, Bytes: int64(n)}, st)
				assert.Equal(t, want, got[:n], "mode %d, %d bytes", m, n)
				assert.Equal(t, []byte{0, 0, 0}, got[n:], "the buffer behind the message is unchanged")
			}
		}
	})
}

func waited(begin func(c *comm.Comm, b []byte, dest, tag int) (request.Request, error)) func(c *comm.Comm, b []byte, dest, tag int) error {
	return func(c *comm.Comm, b []byte, dest, tag int) error {
		r, err := begin(c, b, dest, tag)
		if err != nil {
			return err
		}
		_, err = r.Wait()
		return err
	}
}

// TestMessagesDoNotOvertake: messages of one sender are matched in the order in which they were
// started, whatever their size and mode (MPI 4.1, section 3.5).
func TestMessagesDoNotOvertake(t *testing.T) {
	const rounds = 20
	run(t, 2, func(t rank, w *comm.Comm) {
		var reqs []request.Request
		n := sizes()
		if w.Rank() == 0 {
			for i := range rounds * len(n) {
				send := []func(*comm.Comm, []byte, int, int) (request.Request, error){
					comm.Isend[byte], comm.Issend[byte], comm.Ibsend[byte], comm.Irsend[byte],
				}[i%4]
				r := must(send(w, pattern(n[i%len(n)]/4, i), 1, 5))
				reqs = append(reqs, r)
			}
			require.NoError(t, request.WaitAll(reqs...))
			return
		}
		for i := range rounds * len(n) {
			want := pattern(n[i%len(n)]/4, i)
			got := make([]byte, len(want)+1)
			source, tag := 0, 5
			if i%3 == 0 {
				source = comm.AnySource
			}
			if i%5 == 0 {
				tag = comm.AnyTag
			}
			st := must(comm.Recv(w, got, source, tag))
			require.Equal(t, len(want), st.Count)
			require.Equal(t, want, got[:len(want)], "message %d", i)
		}
	})
}

// TestMessageTakesOldestMatchingReceive: receives with and without wildcards are in one order.
func TestMessageTakesOldestMatchingReceive(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		if w.Rank() == 0 {
			recv[byte](w, 0, 1, 99) // the receives are posted now
			for i, tag := range []int{1, 2, 1, 2} {
				require.NoError(t, comm.Send(w, []int{i}, 1, tag))
			}
			return
		}
		posts := [][2]int{{0, 1}, {comm.AnySource, comm.AnyTag}, {0, comm.AnyTag}, {comm.AnySource, 2}}
		got := make([]int, len(posts))
		reqs := make([]request.Request, len(posts))
		for i, p := range posts {
			reqs[i] = must(comm.Irecv(w, got[i:i+1], p[0], p[1]))
		}
		require.NoError(t, comm.Send[byte](w, nil, 0, 99))
		require.NoError(t, request.WaitAll(reqs...))
		assert.Equal(t, []int{0, 1, 2, 3}, got)
	})
}

// TestRecvTakesOldestMatchingMessage: later receives get the other messages.
func TestRecvTakesOldestMatchingMessage(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		for i, tag := range []int{1, 2, 3, 2, 1, w.TagUB()} {
			require.NoError(t, comm.Send(w, []int{i}, 0, tag))
		}
		for _, c := range []struct{ tag, want, wantTag int }{
			{2, 1, 2}, {comm.AnyTag, 0, 1}, {w.TagUB(), 5, w.TagUB()}, {1, 4, 1}, {comm.AnyTag, 2, 3}, {comm.AnyTag, 3, 2},
		} {
			got := []int{-1}
			st := must(comm.Recv(w, got, comm.AnySource, c.tag))
			assert.Equal(t, []int{c.want}, got)
			assert.Equal(t, c.wantTag, st.Tag)
		}
	})
}

func TestWildcardRecvReportsSourceAndTag(t *testing.T) {
	const n = 5
	run(t, n, func(t rank, w *comm.Comm) {
		if w.Rank() > 0 {
			require.NoError(t, comm.Send(w, []int{w.Rank()}, 0, 10+w.Rank()))
			return
		}
		seen := map[int]bool{}
		for range n - 1 {
			got := []int{0}
			st := must(comm.Recv(w, got, comm.AnySource, comm.AnyTag))
			assert.Equal(t, request.Status{Source: got[0], Tag: 10 + got[0], Count: 1, Bytes: 8}, st)
			seen[got[0]] = true
		}
		assert.Len(t, seen, n-1)
	})
}

// TestTruncatedMessageFailsOnlyTheReceive: the beginning of the message is in the buffer.
func TestTruncatedMessageFailsOnlyTheReceive(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		for i, n := range sizes() {
			if n < 8 {
				continue
			}
			want := pattern(n, i)
			if w.Rank() == 0 {
				require.NoError(t, comm.Send(w, want, 1, i))
				require.NoError(t, comm.Ssend(w, want, 1, i))
				continue
			}
			for _, room := range []int{n - 1, n / 2, 0} {
				if room == n/2 && i%2 == 0 || room == n-1 && i%2 == 1 {
					continue
				}
				got := make([]byte, room)
				st, err := comm.Recv(w, got, comm.AnySource, comm.AnyTag)
				require.ErrorIs(t, err, comm.ErrTruncate)
				isErrorOf(t, err, "recv", 0, i)
				assert.Equal(t, request.Status{Source: 0, Tag: i, Count: room, Bytes: int64(room)}, st)
				assert.Equal(t, want[:room], got)
			}
		}
	})
	// Whole elements, and requests.
	run(t, 1, func(t rank, w *comm.Comm) {
		got := make([]int16, 3)
		r := must(comm.Irecv(w, got, 0, comm.AnyTag))
		require.NoError(t, comm.Send(w, []int16{1, 2, 3, 4}, 0, 6))
		st, err := r.Wait()
		assert.ErrorIs(t, err, comm.ErrTruncate)
		comm.EqualError(t, err, "world: irecv (peer 0, tag 6): message truncated: it has 8 bytes, and the buffer room for 6")
		assert.Equal(t, request.Status{Source: 0, Tag: 6, Count: 3, Bytes: 6}, st)
		assert.Equal(t, []int16{1, 2, 3}, got)
		assert.True(t, r.IsNull())
	})
}

func TestWaitAllReturnsOnceOneRequestHasFailed(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		short, never := []int{0}, []int{0}
		a, b := must(comm.Irecv(w, short, 0, 1)), must(comm.Irecv(w, never, 0, 2))
		require.NoError(t, comm.Send(w, []int{1, 2}, 0, 1))
		sts := make([]request.Status, 3)
		err := request.WaitAllStatus([]request.Request{b, a, {}}, sts)
		assert.ErrorIs(t, err, comm.ErrInStatus)
		assert.ErrorIs(t, err, comm.ErrTruncate)
		assert.Equal(t, comm.ErrPending, sts[0].Err)
		assert.ErrorIs(t, sts[1].Err, comm.ErrTruncate)
		assert.Equal(t, request.Empty(), sts[2])
		assert.True(t, a.IsNull())
		assert.True(t, b.IsActive())
		require.NoError(t, comm.Send(w, []int{3}, 0, 2))
		must(b.Wait())
		assert.Equal(t, []int{3}, never)
	})
}

// TestSynchronousSendCompletesAfterMatch: this includes empty messages, persistent requests, and
// messages to the same rank.
func TestSynchronousSendCompletesAfterMatch(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		for _, n := range sizes() {
			b := pattern(n, n)
			plain, persistent := must(comm.Issend(w, b, 0, 1)), must(comm.SsendInit(w, b, 0, 2))
			for range 2 {
				require.NoError(t, persistent.Start())
				for range 100 {
					require.False(t, must(request.TestAll([]request.Request{plain, persistent}, nil)))
					_, _, flag, err := request.TestAny(plain, persistent)
					require.NoError(t, err)
					require.False(t, flag, "no receive is posted")
				}
				assert.Equal(t, b, recv[byte](w, n, 0, 2))
				must(persistent.Wait())
			}
			_, done := must2(plain.Test())
			assert.False(t, done)
			recv[byte](w, n, 0, 1)
			must(plain.Wait())
			require.NoError(t, persistent.Free())
		}
	})
}

// TestBufferedSendCompletesAtOnce: its buffer may be used again, whatever the size.
func TestBufferedSendCompletesAtOnce(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		for i, n := range sizes() {
			want := pattern(n, i)
			b := slices.Clone(want)
			require.NoError(t, comm.Bsend(w, b, 0, 1))
			clear(b)
			copy(b, want)
			r := must(comm.Ibsend(w, b, 0, 2))
			_, done := must2(r.GetStatus())
			require.True(t, done)
			clear(b)
			must(r.Wait())
			for _, tag := range []int{2, 1} {
				assert.Equal(t, want, recv[byte](w, n, 0, tag))
			}
		}
	})
}

// TestProcNullCompletesAtOnce: calls with ProcNull have the status of MPI 4.1, section 3.10.
func TestProcNullCompletesAtOnce(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		none, b := request.Status{Source: comm.ProcNull, Tag: comm.AnyTag}, []int{42}
		require.NoError(t, comm.Send(w, b, comm.ProcNull, 0))
		require.NoError(t, comm.Ssend(w, b, comm.ProcNull, 0))
		assert.Equal(t, none, must(comm.Recv(w, b, comm.ProcNull, comm.AnyTag)))
		assert.Equal(t, none, must(comm.Sendrecv(w, b, comm.ProcNull, 0, b, comm.ProcNull, 0)))
		assert.Equal(t, none, must(comm.SendrecvReplace(w, b, comm.ProcNull, 0, comm.ProcNull, 0)))
		receive := must(comm.Irecv(w, b, comm.ProcNull, 7))
		st, done := must2(receive.Test())
		assert.True(t, done)
		assert.Equal(t, none, st)
		send := must(comm.Issend(w, b, comm.ProcNull, 7))
		assert.Equal(t, request.Empty(), must(send.Wait()))
		r := must(comm.RecvInit(w, b, comm.ProcNull, 7))
		for range 2 {
			require.NoError(t, r.Start())
			assert.Equal(t, none, must(r.Wait()))
		}
		require.NoError(t, r.Free())
		assert.Equal(t, []int{42}, b)
		// Only one of the two peers is ProcNull.
		require.NoError(t, comm.Send(w, []int{43}, 0, 3))
		st = must(comm.Sendrecv(w, b, comm.ProcNull, 0, b, 0, 3))
		assert.Equal(t, request.Status{Source: 0, Tag: 3, Count: 1, Bytes: 8}, st)
		assert.Equal(t, []int{43}, b)
	})
}

func TestSendrecvOfAllRanksDoesNotDeadlock(t *testing.T) {
	const n = 4
	run(t, n, func(t rank, w *comm.Comm) {
		next, prev := (w.Rank()+1)%n, (w.Rank()+n-1)%n
		for _, size := range sizes() {
			want := pattern(size, prev)
			got := make([]byte, size)
			st := must(comm.Sendrecv(w, pattern(size, w.Rank()), next, 1, got, prev, 1))
			assert.Equal(t, request.Status{Source: prev, Tag: 1, Count: size, Bytes: int64(size)}, st)
			require.Equal(t, want, got)
			both := pattern(size, w.Rank())
			st = must(comm.SendrecvReplace(w, both, next, 2, comm.AnySource, comm.AnyTag))
			assert.Equal(t, request.Status{Source: prev, Tag: 2, Count: size, Bytes: int64(size)}, st)
			require.Equal(t, want, both)
		}
	})
}

// TestSendrecvMatchesOrdinaryCalls: what it sends and receives may differ in type and length.
func TestSendrecvMatchesOrdinaryCalls(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		if w.Rank() == 0 {
			got := make([]float32, 4)
			st := must(comm.Sendrecv(w, []int64{1, 2, 3}, 1, 1, got, 1, 2))
			assert.Equal(t, request.Status{Source: 1, Tag: 2, Count: 2, Bytes: 8}, st)
			assert.Equal(t, []float32{1.5, 2.5, 0, 0}, got)
			// The buffer is shorter than the message.
			st, err := comm.SendrecvReplace(w, got[:1], 1, 3, 1, 3)
			assert.ErrorIs(t, err, comm.ErrTruncate)
			assert.Equal(t, request.Status{Source: 1, Tag: 3, Count: 1, Bytes: 4}, st)
			assert.Equal(t, []float32{7, 2.5, 0, 0}, got)
			return
		}
		assert.Equal(t, []int64{1, 2, 3}, recv[int64](w, 3, 0, 1))
		require.NoError(t, comm.Send(w, []float32{1.5, 2.5}, 0, 2))
		require.NoError(t, comm.Send(w, []float32{7, 8}, 0, 3))
		assert.Equal(t, []float32{1.5}, recv[float32](w, 1, 0, 3))
	})
}

func TestCallsFromManyGoroutines(t *testing.T) {
	const threads, rounds = 6, 30
	run(t, 2, func(t rank, w *comm.Comm) {
		var all sync.WaitGroup
		for k := range threads {
			size := func(i int) int { return sizes()[(i+k)%len(sizes())] / 16 }
			all.Go(func() {
				for i := range rounds {
					assert.NoError(t, comm.Send(w, pattern(size(i), k+i), 1-w.Rank(), k))
				}
			})
			all.Go(func() {
				for i := range rounds {
					got := make([]byte, size(i))
					st, err := comm.Recv(w, got, comm.AnySource, k)
					assert.NoError(t, err)
					assert.Equal(t, len(got), st.Count, "goroutine %d, message %d", k, i)
					assert.Equal(t, pattern(len(got), k+i), got, "goroutine %d, message %d", k, i)
				}
			})
		}
		all.Wait()
	})
}

func TestRequestsCompleteInAnyOrder(t *testing.T) {
	const n = 100
	run(t, 2, func(t rank, w *comm.Comm) {
		reqs, bufs := make([]request.Request, n), make([][]byte, n)
		for i := range n {
			if w.Rank() == 0 {
				reqs[i] = must(comm.Isend(w, pattern(sizes()[i%len(sizes())]/8, i), 1, i))
			} else {
				tag := n - 1 - i // posted in reverse order
				bufs[i] = make([]byte, sizes()[tag%len(sizes())]/8)
				reqs[i] = must(comm.Irecv(w, bufs[i], 0, tag))
			}
		}
		if w.Rank() == 0 {
			require.NoError(t, request.WaitAll(reqs...))
			return
		}
		seen := 0
		for i, st := range request.Completed(t.Context(), reqs...) {
			require.NoError(t, st.Err)
			assert.Equal(t, n-1-i, st.Tag)
			assert.Equal(t, pattern(st.Count, st.Tag), bufs[i])
			seen++
		}
		assert.Equal(t, n, seen)
	})
}
