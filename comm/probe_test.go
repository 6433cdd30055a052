package comm_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

// TestProbeLeavesMessage: the message may arrive after the call.
func TestProbeLeavesMessage(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		for i, n := range sizes() {
			if w.Rank() == 0 {
				_, err := comm.Recv[byte](w, nil, 1, 999)
				require.NoError(t, err)
				require.NoError(t, comm.Send(w, pattern(n, i), 1, i))
				continue
			}
			_, found, err := w.Iprobe(0, i)
			require.NoError(t, err)
			assert.False(t, found)
			require.NoError(t, comm.Send[byte](w, nil, 0, 999))
			want := request.Status{Source: 0, Tag: i, Count: -1, Bytes: int64(n)}
			for range 2 {
				st, err := w.Probe(comm.AnySource, comm.AnyTag)
				require.NoError(t, err)
				assert.Equal(t, want, st)
				st, found, err := w.Iprobe(0, i)
				require.NoError(t, err)
				assert.True(t, found)
				assert.Equal(t, want, st)
				count, ok := request.Count[[4]byte](st)
				assert.Equal(t, n/4, count)
				assert.Equal(t, n%4 == 0, ok)
			}
			got := make([]byte, want.Bytes)
			_, err = comm.Recv(w, got, want.Source, want.Tag)
			require.NoError(t, err)
			assert.Equal(t, pattern(n, i), got)
		}
	})
}

// Iprobe makes progress: who polls with it sees the message at last.
func TestIprobeMakesProgress(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		if w.Rank() == 0 {
			require.NoError(t, comm.Send(w, []int{1}, 1, 3))
			return
		}
		for {
			st, found, err := w.Iprobe(0, 3)
			require.NoError(t, err)
			if found {
				assert.Equal(t, int64(8), st.Bytes)
				break
			}
			assert.Equal(t, request.Empty(), st)
		}
		_, err := comm.Recv(w, []int{0}, 0, 3)
		require.NoError(t, err)
	})
}

// TestMprobeTakesMessageOutOfMatching: only Mrecv gets it.
func TestMprobeTakesMessageOutOfMatching(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		for i, n := range sizes() {
			if w.Rank() == 0 {
				first, err := comm.Isend(w, pattern(n, i), 1, 5)
				require.NoError(t, err)
				second, err := comm.Isend(w, pattern(n, i+50), 1, 5)
				require.NoError(t, err)
				_, err = comm.Recv[byte](w, nil, 1, 6)
				require.NoError(t, err)
				require.NoError(t, request.WaitAll(first, second))
				continue
			}
			m, st, err := w.Mprobe(0, comm.AnyTag)
			require.NoError(t, err)
			assert.Equal(t, request.Status{Source: 0, Tag: 5, Count: -1, Bytes: int64(n)}, st)
			second := make([]byte, n)
			_, err = comm.Recv(w, second, 0, 5)
			require.NoError(t, err)
			assert.Equal(t, pattern(n, i+50), second)
			_, _, found, err := w.Improbe(0, 5)
			require.NoError(t, err)
			assert.False(t, found)

			got := make([]byte, n)
			if i%2 == 0 {
				st, err = comm.Mrecv(m, got)
			} else {
				r, err := comm.Imrecv(m, got)
				require.NoError(t, err)
				st, err = r.Wait()
				require.NoError(t, err)
			}
			require.NoError(t, err)
			assert.Equal(t, request.Status{Source: 0, Tag: 5, Count: n, Bytes: int64(n)}, st)
			assert.Equal(t, pattern(n, i), got)

			// A message can be received once.
			_, err = comm.Mrecv(m, got)
			assert.ErrorIs(t, err, comm.ErrRequest)
			assert.EqualError(t, err, "world: mrecv: invalid request: the message was received before")
			r, err := comm.Imrecv(m, got)
			assert.ErrorIs(t, err, comm.ErrRequest)
			assert.True(t, r.IsNull())
			require.NoError(t, comm.Send[byte](w, nil, 0, 6))
		}
	})
}

func TestImprobeDoesNotWait(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		m, st, found, err := w.Improbe(comm.AnySource, comm.AnyTag)
		require.NoError(t, err)
		assert.False(t, found)
		assert.Nil(t, m)
		assert.Equal(t, request.Empty(), st)
		require.NoError(t, comm.Send(w, []int{4, 5}, 0, 1))
		for !found {
			m, st, found, err = w.Improbe(0, 1)
			require.NoError(t, err)
		}
		assert.Equal(t, request.Status{Source: 0, Tag: 1, Count: -1, Bytes: 16}, st)
		// Shorter than the message.
		got := []int{0}
		st, err = comm.Mrecv(m, got)
		assert.ErrorIs(t, err, comm.ErrTruncate)
		var e *comm.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, comm.Error{Op: "mrecv", Comm: "world", Peer: 0, Tag: 1, Err: e.Err}, *e)
		assert.Equal(t, request.Status{Source: 0, Tag: 1, Count: 1, Bytes: 8}, st)
		assert.Equal(t, []int{4}, got)
	})
}

func TestProbeOfProcNullFindsMessage(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		nobody := request.Status{Source: comm.ProcNull, Tag: comm.AnyTag}
		st, err := w.Probe(comm.ProcNull, 3)
		require.NoError(t, err)
		assert.Equal(t, nobody, st)
		st, found, err := w.Iprobe(comm.ProcNull, comm.AnyTag)
		require.NoError(t, err)
		assert.True(t, found)
		assert.Equal(t, nobody, st)
		m, st, err := w.Mprobe(comm.ProcNull, 3)
		require.NoError(t, err)
		assert.Equal(t, nobody, st)
		b := []int{9}
		st, err = comm.Mrecv(m, b)
		require.NoError(t, err)
		assert.Equal(t, nobody, st)
		_, err = comm.Mrecv(m, b)
		assert.ErrorIs(t, err, comm.ErrRequest)
		m, st, found, err = w.Improbe(comm.ProcNull, 3)
		require.NoError(t, err)
		assert.True(t, found)
		assert.Equal(t, nobody, st)
		r, err := comm.Imrecv(m, b)
		require.NoError(t, err)
		st, err = r.Wait()
		require.NoError(t, err)
		assert.Equal(t, nobody, st)
		assert.Equal(t, []int{9}, b)
	})
}

func TestMrecvOfNilOrUsedMessageFails(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		for _, m := range []*comm.Message{nil, {}} {
			_, err := comm.Mrecv(m, []int{1})
			assert.ErrorIs(t, err, comm.ErrRequest)
			assert.EqualError(t, err, "null: mrecv: invalid request: there is no message")
			_, err = comm.Imrecv(m, []int{1})
			assert.ErrorIs(t, err, comm.ErrRequest)
			// The type is checked first.
			_, err = comm.Mrecv(m, []string{""})
			assert.ErrorIs(t, err, comm.ErrType)
		}
		require.NoError(t, comm.Send(w, []int{1}, 0, 0))
		m, _, err := w.Mprobe(0, 0)
		require.NoError(t, err)
		_, err = comm.Mrecv(m, []string{""})
		assert.ErrorIs(t, err, comm.ErrType)
		_, err = comm.Mrecv(m, []int{1})
		assert.NoError(t, err, "bad arguments do not use it up")
	})
}

// TestSsendCompletesAtMrecv: a synchronous send that Mprobe has matched does not complete before.
func TestSsendCompletesAtMrecv(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		for i, n := range sizes() {
			s, err := comm.Issend(w, pattern(n, i), 0, 0)
			require.NoError(t, err)
			m, _, err := w.Mprobe(0, 0)
			require.NoError(t, err)
			for range 100 {
				_, done, err := s.Test()
				require.NoError(t, err)
				require.False(t, done)
			}
			got := make([]byte, n)
			_, err = comm.Mrecv(m, got)
			require.NoError(t, err)
			_, err = s.Wait()
			require.NoError(t, err)
			assert.Equal(t, pattern(n, i), got)
		}
	})
}

func TestMrecvAfterFreeOfCommunicatorWorks(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		for i, n := range sizes() {
			c, err := w.Dup()
			require.NoError(t, err)
			s, err := comm.Isend(c, pattern(n, i), 0, 0)
			require.NoError(t, err)
			m, _, err := c.Mprobe(0, 0)
			require.NoError(t, err)
			require.NoError(t, c.Free())
			got := make([]byte, n)
			_, err = comm.Mrecv(m, got)
			require.NoError(t, err)
			assert.Equal(t, pattern(n, i), got)
			_, err = s.Wait()
			require.NoError(t, err)
		}
	})
}
