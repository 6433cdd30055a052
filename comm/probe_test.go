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
				recv[byte](w, 0, 1, 999)
				require.NoError(t, comm.Send(w, pattern(n, i), 1, i))
				continue
			}
			_, found := must2(w.Iprobe(0, i))
			assert.False(t, found)
			require.NoError(t, comm.Send[byte](w, nil, 0, 999))
			want := request.Status{Source: 0, Tag: i, Count: -1, Bytes: int64(n)}
			for range 2 {
				assert.Equal(t, want, must(w.Probe(comm.AnySource, comm.AnyTag)))
				st, found := must2(w.Iprobe(0, i))
				assert.True(t, found)
				assert.Equal(t, want, st)
				count, ok := request.Count[[4]byte](st)
				assert.Equal(t, n/4, count)
				assert.Equal(t, n%4 == 0, ok)
			}
			assert.Equal(t, pattern(n, i), recv[byte](w, n, want.Source, want.Tag))
		}
	})
}

// TestIprobeMakesProgress: a rank that polls with Iprobe finds the message.
func TestIprobeMakesProgress(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		if w.Rank() == 0 {
			require.NoError(t, comm.Send(w, []int{1}, 1, 3))
			return
		}
		st, found := request.Empty(), false
		for !found {
			assert.Equal(t, request.Empty(), st)
			st, found = must2(w.Iprobe(0, 3))
		}
		assert.Equal(t, int64(8), st.Bytes)
		recv[int](w, 1, 0, 3)
	})
}

// TestMprobeTakesMessageOutOfMatching: only Mrecv and Imrecv get the message.
func TestMprobeTakesMessageOutOfMatching(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		for i, n := range sizes() {
			if w.Rank() == 0 {
				first := must(comm.Isend(w, pattern(n, i), 1, 5))
				second := must(comm.Isend(w, pattern(n, i+50), 1, 5))
				recv[byte](w, 0, 1, 6)
				require.NoError(t, request.WaitAll(first, second))
				continue
			}
			m, st := must2(w.Mprobe(0, comm.AnyTag))
			assert.Equal(t, request.Status{Source: 0, Tag: 5, Count: -1, Bytes: int64(n)}, st)
			assert.Equal(t, pattern(n, i+50), recv[byte](w, n, 0, 5))
			_, _, found, err := w.Improbe(0, 5)
			require.NoError(t, err)
			assert.False(t, found)
			got := make([]byte, n)
			if i%2 == 0 {
				st = must(comm.Mrecv(m, got))
			} else {
				st = must(must(comm.Imrecv(m, got)).Wait())
			}
			assert.Equal(t, request.Status{Source: 0, Tag: 5, Count: n, Bytes: int64(n)}, st)
			assert.Equal(t, pattern(n, i), got)
			// A message can be received once.
			_, err = comm.Mrecv(m, got)
			assert.ErrorIs(t, err, comm.ErrRequest)
			comm.EqualError(t, err, "world: mrecv: invalid request: the message was received before")
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
		// The buffer is shorter than the message.
		got := []int{0}
		st, err = comm.Mrecv(m, got)
		assert.ErrorIs(t, err, comm.ErrTruncate)
		isErrorOf(t, err, "mrecv", 0, 1)
		assert.Equal(t, request.Status{Source: 0, Tag: 1, Count: 1, Bytes: 8}, st)
		assert.Equal(t, []int{4}, got)
	})
}

func TestProbeOfProcNullFindsMessage(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		nobody := request.Status{Source: comm.ProcNull, Tag: comm.AnyTag}
		assert.Equal(t, nobody, must(w.Probe(comm.ProcNull, 3)))
		st, found := must2(w.Iprobe(comm.ProcNull, comm.AnyTag))
		assert.True(t, found)
		assert.Equal(t, nobody, st)
		m, st := must2(w.Mprobe(comm.ProcNull, 3))
		assert.Equal(t, nobody, st)
		b := []int{9}
		st = must(comm.Mrecv(m, b))
		assert.Equal(t, nobody, st)
		assert.ErrorIs(t, errOf(comm.Mrecv(m, b)), comm.ErrRequest)
		m, st, found, err := w.Improbe(comm.ProcNull, 3)
		require.NoError(t, err)
		assert.True(t, found)
		assert.Equal(t, nobody, st)
		assert.Equal(t, nobody, must(must(comm.Imrecv(m, b)).Wait()))
		assert.Equal(t, []int{9}, b)
	})
}

func TestMrecvOfNilOrUsedMessageFails(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		for _, m := range []*comm.Message{nil, {}} {
			_, err := comm.Mrecv(m, []int{1})
			assert.ErrorIs(t, err, comm.ErrRequest)
			comm.EqualError(t, err, "null: mrecv: invalid request: there is no message")
			assert.ErrorIs(t, errOf(comm.Imrecv(m, []int{1})), comm.ErrRequest)
			// The type is checked first.
			assert.ErrorIs(t, errOf(comm.Mrecv(m, []string{""})), comm.ErrType)
		}
		require.NoError(t, comm.Send(w, []int{1}, 0, 0))
		m, _ := must2(w.Mprobe(0, 0))
		assert.ErrorIs(t, errOf(comm.Mrecv(m, []string{""})), comm.ErrType)
		assert.NoError(t, errOf(comm.Mrecv(m, []int{1})), "bad arguments do not use it up")
	})
}

// TestSsendCompletesAtMrecv: a synchronous send that Mprobe has matched completes at Mrecv.
func TestSsendCompletesAtMrecv(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		for i, n := range sizes() {
			s := must(comm.Issend(w, pattern(n, i), 0, 0))
			m, _ := must2(w.Mprobe(0, 0))
			for range 100 {
				_, done := must2(s.Test())
				require.False(t, done)
			}
			got := make([]byte, n)
			must(comm.Mrecv(m, got))
			must(s.Wait())
			assert.Equal(t, pattern(n, i), got)
		}
	})
}

func TestMrecvAfterFreeOfCommunicatorWorks(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		for i, n := range sizes() {
			c := must(w.Dup())
			s := must(comm.Isend(c, pattern(n, i), 0, 0))
			m, _ := must2(c.Mprobe(0, 0))
			require.NoError(t, c.Free())
			got := make([]byte, n)
			must(comm.Mrecv(m, got))
			assert.Equal(t, pattern(n, i), got)
			must(s.Wait())
		}
	})
}
