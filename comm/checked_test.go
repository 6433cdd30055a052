package comm_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/internal/race"
	"github.com/mpigo/mpigo/request"
)

type pair struct{ A, B float64 }

type mixed struct {
	A float64
	B int64
}

// exchange calls send at rank 0 and recv at rank 1, in checked mode.
func exchange(t *testing.T, send, recv func(w *comm.Comm) error) {
	t.Helper()
	inCheckedMode(t, 2, func(w *comm.Comm) error {
		if w.Rank() == 0 {
			return send(w)
		}
		return recv(w)
	})
}

func sends[T any](n int) func(w *comm.Comm) error {
	return func(w *comm.Comm) error { return comm.Send(w, make([]T, n), 1, 1) }
}

// receives receives elements of type T, and expects an error with a text, or none.
func receives[T any](t *testing.T, n int, text string) func(w *comm.Comm) error {
	return func(w *comm.Comm) error {
		_, err := comm.Recv(w, make([]T, n), 0, 1)
		if text == "" {
			return err
		}
		assert.ErrorIs(t, err, comm.ErrType)
		assert.ErrorContains(t, err, text)
		return nil
	}
}

func TestCheckedReceiveOfOtherTypeFails(t *testing.T) {
	const long = 1 << 18 // sent in pieces
	for name, c := range map[string]struct{ send, recv func(w *comm.Comm) error }{
		"int64 as float64": {sends[int64](1), receives[float64](t, 1, "rank 0 sent []int64, this rank receives []float64")},
		"long":             {sends[int64](long), receives[float64](t, long, "rank 0 sent []int64, this rank receives []float64")},
		"truncated":        {sends[int64](2), receives[float32](t, 2, "rank 0 sent []int64, this rank receives []float32")},
		"a struct":         {sends[mixed](1), receives[float64](t, 2, "rank 0 sent a slice of structs or arrays of another layout, this rank receives []float64")},
		"as a struct":      {sends[uint16](8), receives[mixed](t, 1, "rank 0 sent []uint16, this rank receives []comm_test.mixed")},
		"from any source": {sends[int32](1), func(w *comm.Comm) error {
			_, err := comm.Recv(w, make([]uint32, 1), comm.AnySource, comm.AnyTag)
			assert.ErrorContains(t, err, "rank 0 sent []int32, this rank receives []uint32")
			return nil
		}},
		"after a probe": {sends[int32](1), func(w *comm.Comm) error {
			m, _, err := w.Mprobe(0, 1)
			if err != nil {
				return err
			}
			_, err = comm.Mrecv(m, make([]uint32, 1))
			assert.ErrorContains(t, err, "rank 0 sent []int32, this rank receives []uint32")
			return nil
		}},
		"bytes":                {sends[byte](8), receives[float64](t, 1, "")},
		"as bytes":             {sends[mixed](2), receives[byte](t, 32, "")},
		"as an array of bytes": {sends[float64](2), receives[[16]byte](t, 1, "")},
		"int as int64":         {sends[int](2), receives[int64](t, 2, "")},
		"a struct of float64":  {sends[pair](2), receives[float64](t, 4, "")},
		"a named type":         {sends[time.Duration](2), receives[[2]int64](t, 1, "")},
		"the same struct":      {sends[mixed](2), receives[mixed](t, 3, "")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exchange(t, c.send, c.recv)
		})
	}
}

func TestCheckedRequestsCompareTypes(t *testing.T) {
	inCheckedMode(t, 2, func(w *comm.Comm) error {
		peer := 1 - w.Rank()
		send, err := comm.SendInit(w, []int64{1}, peer, 1)
		if err != nil {
			return err
		}
		recv, err := comm.RecvInit(w, make([]complex64, 1), peer, 1)
		if err != nil {
			return err
		}
		for range 2 {
			if err := request.StartAll(recv, send); err != nil {
				return err
			}
			err = request.WaitAll(send, recv)
			assert.ErrorIs(t, err, comm.ErrType)
			assert.ErrorContains(t, err, fmt.Sprintf("rank %d sent []int64, this rank receives []complex64", peer))
		}
		r, err := comm.Isendrecv(w, []int64{1}, peer, 2, make([]uint64, 1), peer, 2)
		if err != nil {
			return err
		}
		_, err = r.Wait()
		assert.ErrorContains(t, err, fmt.Sprintf("rank %d sent []int64, this rank receives []uint64", peer))
		_, err = comm.SendrecvReplace(w, []int64{1}, peer, 3, peer, 3)
		return errors.Join(err, send.Free(), recv.Free())
	})
}

// isWritten asserts that err says that a buffer was written to, with the line of the operation.
func isWritten(t *testing.T, err error) {
	t.Helper()
	assert.ErrorIs(t, err, comm.ErrBuffer)
	assert.ErrorContains(t, err, "it was written to before ")
	assert.ErrorContains(t, err, " (checked_test.go:")
}

func TestCheckedWriteToSendBufferFails(t *testing.T) {
	sizes := []int{1, 1 << 20}
	if race.Enabled { // the peer reads a long message in place, so the detector finds the write
		sizes = sizes[:1]
	}
	for _, n := range sizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			waits := map[string]func(r request.Request) error{
				"wait":     func(r request.Request) error { _, err := r.Wait(); return err },
				"wait all": func(r request.Request) error { return request.WaitAll(request.Request{}, r) },
				"wait any": func(r request.Request) error { _, _, err := request.WaitAny(r); return err },
				"test all": func(r request.Request) error {
					for {
						if done, err := request.TestAll([]request.Request{r}, nil); done || err != nil {
							return err
						}
					}
				},
			}
			exchange(t, func(w *comm.Comm) error {
				for _, wait := range waits {
					buf := make([]byte, n)
					r, err := comm.Isend(w, buf, 1, 1)
					if err != nil {
						return err
					}
					buf[n-1]++
					isWritten(t, wait(r))
				}
				return nil
			}, func(w *comm.Comm) error {
				for range waits {
					if _, err := comm.Recv(w, make([]byte, n), 0, 1); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

func TestCheckedWriteAfterCompletionSucceeds(t *testing.T) {
	exchange(t, func(w *comm.Comm) error {
		buf := []int{1}
		r, err := comm.Isend(w, buf, 1, 1)
		for done := false; err == nil && !done; {
			_, done, err = r.GetStatus()
		}
		buf[0] = 2 // MPI 4.1, section 3.7.6: the operation is complete
		_, waited := r.Wait()
		r, isent := comm.Ibsend(w, buf, 1, 1)
		buf[0] = 3
		_, again := r.Wait()
		return errors.Join(err, waited, isent, again)
	}, func(w *comm.Comm) error {
		got := make([]int, 2)
		_, err := comm.Recv(w, got[:1], 0, 1)
		_, again := comm.Recv(w, got[1:], 0, 1)
		assert.Equal(t, []int{1, 2}, got)
		return errors.Join(err, again)
	})
}

func TestCheckedWriteToReceiveBufferFails(t *testing.T) {
	for _, n := range []int{1, 1 << 20} {
		exchange(t, func(w *comm.Comm) error {
			if err := w.Barrier(); err != nil {
				return err
			}
			return comm.Send(w, make([]byte, n), 1, 1)
		}, func(w *comm.Comm) error {
			buf := make([]byte, n)
			r, err := comm.Irecv(w, buf, 0, 1)
			if err != nil {
				return err
			}
			buf[n/2] = 7
			err = w.Barrier()
			_, waited := r.Wait()
			isWritten(t, waited)
			return err
		})
	}
}

func TestCheckedWriteToBufferOfCollectiveFails(t *testing.T) {
	inCheckedMode(t, 3, func(w *comm.Comm) error {
		in, out := []int{w.Rank()}, make([]int, 1)
		r, err := comm.Iallreduce(w, in, out, comm.Sum)
		if err != nil {
			return err
		}
		in[0]++
		_, err = r.Wait()
		isWritten(t, err)
		in[0] = 1
		if r, err = comm.AllreduceInit(w, in, out, comm.Sum); err != nil {
			return err
		}
		for i := range 3 {
			in[0] = i
			if err := r.Start(); err != nil {
				return err
			}
			if i == 1 {
				in[0]++
			}
			if _, err = r.Wait(); i == 1 {
				isWritten(t, err)
			} else if err != nil {
				return err
			}
		}
		return r.Free()
	})
}

func TestCheckedPersistentSendMayChangeBetweenStarts(t *testing.T) {
	exchange(t, func(w *comm.Comm) error {
		buf := []int{0}
		r, err := comm.SendInit(w, buf, 1, 1)
		for i := 0; i < 3 && err == nil; i++ {
			buf[0] = i
			if err = r.Start(); err == nil {
				_, err = r.Wait()
			}
		}
		return errors.Join(err, r.Free())
	}, func(w *comm.Comm) error {
		got := []int{0}
		for i := range 3 {
			if _, err := comm.Recv(w, got, 0, 1); err != nil {
				return err
			}
			assert.Equal(t, i, got[0])
		}
		return nil
	})
}

func TestCheckedFreeAllocOfBufferNotWaitedForFails(t *testing.T) {
	exchange(t, func(w *comm.Comm) error {
		buf, err := comm.Alloc[int](w, 4)
		if err != nil {
			return err
		}
		r, err := comm.Isend(w, buf, 1, 1)
		if err != nil {
			return err
		}
		err = comm.FreeAlloc(w, buf)
		assert.ErrorIs(t, err, comm.ErrBuffer)
		assert.ErrorContains(t, err, "isend (peer 1, tag 1): started at checked_test.go:")
		_, err = r.Wait()
		return errors.Join(err, comm.FreeAlloc(w, buf))
	}, func(w *comm.Comm) error {
		_, err := comm.Recv(w, make([]int, 4), 0, 1)
		return err
	})
}

// lose starts a receive and drops its request.
//
//go:noinline
func lose(w *comm.Comm) error {
	_, err := comm.Irecv(w, make([]int, 1), 0, 1)
	return err
}

func TestCheckedLostRequestIsReported(t *testing.T) {
	told := make(chan string, 4)
	exchange(t, func(w *comm.Comm) error {
		if err := w.Barrier(); err != nil {
			return err
		}
		return comm.Send(w, []int{1}, 1, 1)
	}, func(w *comm.Comm) error {
		comm.TellChecked(w, func(line string) { told <- line })
		if err := lose(w); err != nil {
			return err
		}
		var kept request.Request
		var err error
		if kept, err = comm.Irecv(w, make([]int, 1), comm.ProcNull, 2); err != nil {
			return err
		}
		deadline := time.Now().Add(20 * time.Second)
		for len(told) == 0 && time.Now().Before(deadline) {
			runtime.GC()
			time.Sleep(time.Millisecond)
		}
		if _, err := kept.Wait(); err != nil {
			return err
		}
		return w.Barrier()
	})
	require.Len(t, told, 1)
	line := <-told
	assert.True(t, strings.HasPrefix(line, "world: irecv (peer 0, tag 1): the request is lost: it was started at checked_test.go:"), line)
}

// TestCheckedWaitAllWithMessageFromProcNull: in checked mode, all requests of a rank are audited.
// So a call that examines the first one knows the kind of the others.
func TestCheckedWaitAllWithMessageFromProcNull(t *testing.T) {
	got := []int{0}
	exchange(t, func(w *comm.Comm) error {
		if _, err := comm.Recv(w, []int{0}, 1, 2); err != nil { // rank 1 waits
			return err
		}
		return comm.Send(w, []int{42}, 1, 1)
	}, func(w *comm.Comm) error {
		m, _, err := w.Mprobe(comm.ProcNull, 1)
		if err != nil {
			return err
		}
		first, err := comm.Imrecv(m, []int{0})
		if err != nil {
			return err
		}
		second, err := comm.Irecv(w, got, 0, 1)
		if err != nil {
			return err
		}
		if err := comm.Send(w, []int{0}, 0, 2); err != nil {
			return err
		}
		sts := make([]request.Status, 2)
		if err := request.WaitAllStatus([]request.Request{first, second}, sts); err != nil {
			return err
		}
		assert.Equal(t, comm.ProcNull, sts[0].Source)
		assert.Equal(t, 8, int(sts[1].Bytes))
		assert.Equal(t, 42, got[0])
		return nil
	})
}

func TestCheckedFinalizeTellsOfRequestsNotWaitedFor(t *testing.T) {
	told := make(chan string, 4)
	var kept request.Request
	exchange(t, func(w *comm.Comm) error {
		comm.TellChecked(w, func(line string) { told <- line })
		var err error
		kept, err = comm.Isend(w, []int{1}, 1, 1)
		return err
	}, func(w *comm.Comm) error {
		_, err := comm.Recv(w, []int{1}, 0, 1)
		return err
	})
	require.Len(t, told, 1)
	assert.Contains(t, <-told, "world: isend (peer 1, tag 1): nothing has waited for the request, which was started at checked_test.go:")
	runtime.KeepAlive(kept)
}

func TestCheckedHandlesOfCompleteRequestsAreNull(t *testing.T) {
	exchange(t, func(w *comm.Comm) error { return comm.Send(w, []int{1}, 1, 1) }, func(w *comm.Comm) error {
		r, err := comm.Irecv(w, make([]int, 1), 0, 1)
		if err != nil {
			return err
		}
		copied := r
		assert.Equal(t, copied, r)
		assert.True(t, r.IsActive())
		assert.False(t, r.IsNull())
		if _, err := r.Wait(); err != nil {
			return err
		}
		assert.True(t, r.IsNull())
		assert.True(t, copied.IsNull())
		_, done, err := copied.Test()
		assert.True(t, done)
		assert.ErrorIs(t, copied.Free(), comm.ErrRequest)
		return err
	})
}
