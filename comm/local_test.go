package comm_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/comm"
)

var errBody = errors.New("the body failed")

func TestRunLocalRanks(t *testing.T) {
	var seen [5]atomic.Int32
	require.NoError(t, comm.RunLocal(5, func(w *comm.Comm) error {
		assert.Equal(t, 5, w.Size())
		seen[w.Rank()].Add(1)
		return nil
	}))
	for r := range seen {
		assert.Equal(t, int32(1), seen[r].Load())
	}
}

func TestRunLocalArguments(t *testing.T) {
	body := func(*comm.Comm) error { t.Error("called"); return nil }
	for _, n := range []int{0, -1} {
		assert.ErrorIs(t, comm.RunLocal(n, body), comm.ErrCount)
	}
	assert.ErrorContains(t, comm.RunLocal(1, body, comm.WithSetting("no.such", "1")), "no.such")
	assert.ErrorContains(t, comm.RunLocal(1, body, comm.WithSetting("progress.spin", "x")), "progress.spin")
	assert.Error(t, comm.RunLocal(1<<20, body), "too many ranks")
	assert.ErrorContains(t, comm.RunLocal(2, nil), "panic", "no body")
}

// TestRunLocalReturnsErrorsOfAllRanks: each error names its rank.
func TestRunLocalReturnsErrorsOfAllRanks(t *testing.T) {
	var both [2]chan struct{}
	for i := range both {
		both[i] = make(chan struct{})
	}
	err := comm.RunLocal(3, func(w *comm.Comm) error {
		switch w.Rank() {
		case 2:
			close(both[0])
			<-both[1]
			return errBody
		case 0:
			close(both[1])
			<-both[0]
			return context.Canceled
		}
		return nil
	})
	assert.ErrorIs(t, err, errBody)
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, "rank 2: the body failed")
	assert.ErrorContains(t, err, "rank 0: context canceled")
}

// TestErrorOfOneRankEndsCallsOfOthers: this includes calls of every kind.
func TestErrorOfOneRankEndsCallsOfOthers(t *testing.T) {
	for _, c := range append(comm.WaitingCalls(),
		comm.WaitingCall{Name: "dup", Call: func(w *comm.Comm, _ int) error { _, err := w.Dup(); return err }},
		comm.WaitingCall{Name: "barrier", Call: func(w *comm.Comm, _ int) error { return w.Barrier() }},
		comm.WaitingCall{Name: "finalize", Call: func(w *comm.Comm, _ int) error { return w.Finalize() }},
		comm.WaitingCall{Name: "send without end", Call: func(w *comm.Comm, _ int) error {
			for {
				if err := comm.Bsend(w, []int{1}, w.Rank(), 0); err != nil {
					return err
				}
				if _, err := comm.Recv(w, []int{1}, w.Rank(), 0); err != nil {
					return err
				}
			}
		}},
	) {
		t.Run(c.Name, func(t *testing.T) {
			var inside atomic.Int32
			err := comm.RunLocal(3, func(w *comm.Comm) error {
				if w.Rank() == 0 {
					for inside.Load() < 2 {
						runtime.Gosched()
					}
					return errBody
				}
				inside.Add(1)
				err := c.Call(w, 0)
				assert.ErrorIs(t, err, comm.ErrProcFailed)
				assert.ErrorContains(t, err, "rank 0: the body failed")
				if c.Name != "finalize" {
					assert.ErrorIs(t, w.Barrier(), comm.ErrProcFailed, "later calls too")
				}
				return nil
			})
			assert.ErrorIs(t, err, errBody)
			assert.True(t, strings.HasPrefix(err.Error(), "rank 0: the body"), "the first error comes first: %v", err)
		})
	}
}

// TestPanicIsErrorOfRunLocal: the error has the stack, and the panic ends the other ranks too.
func TestPanicIsErrorOfRunLocal(t *testing.T) {
	for _, value := range []any{"boom", errBody, 42} {
		err := comm.RunLocal(2, func(w *comm.Comm) error {
			if w.Rank() == 1 {
				panicker(value)
			}
			_, err := comm.Recv(w, []int{0}, 1, 0)
			return err
		})
		assert.ErrorContains(t, err, "rank 1: panic: ")
		assert.ErrorContains(t, err, "comm_test.panicker", "the stack")
		var p *comm.PanicError
		if assert.ErrorAs(t, err, &p) {
			assert.Equal(t, value, p.Value)
			assert.Contains(t, string(p.Stack), "comm_test.panicker")
		}
		assert.ErrorIs(t, err, comm.ErrProcFailed, "rank 0's")
		assert.Equal(t, value == errBody, errors.Is(err, errBody))
	}
}

func panicker(value any) { panic(value) }

func TestGoexitIsErrorOfRunLocal(t *testing.T) {
	err := comm.RunLocal(2, func(w *comm.Comm) error {
		if w.Rank() == 1 {
			runtime.Goexit()
		}
		_, err := comm.Recv(w, []int{0}, 1, 0)
		return err
	})
	assert.ErrorContains(t, err, "rank 1: the goroutine of the rank ended itself (runtime.Goexit): in a test, it has called FailNow, Fatal or Skip")
}

// TestAbortOfLocalRankEndsOnlyItsJob: the process goes on.
func TestAbortOfLocalRankEndsOnlyItsJob(t *testing.T) {
	err := comm.RunLocal(3, func(w *comm.Comm) error {
		if w.Rank() == 2 {
			w.Abort(5)
			t.Error("Abort has returned")
		}
		_, err := comm.Recv(w, []int{0}, 2, 0)
		return err
	})
	assert.ErrorContains(t, err, "rank 2: aborted with exit code 5")
	assert.ErrorIs(t, err, comm.ErrProcFailed)
}

// TestRankThatFailsDuringFinalizeEndsOthers: a rank fails after the others have entered Finalize
// and before they leave it.
func TestRankThatFailsDuringFinalizeEndsOthers(t *testing.T) {
	err := comm.RunLocal(2, func(w *comm.Comm) error {
		if w.Rank() == 0 {
			return nil
		}
		return errBody
	})
	assert.ErrorIs(t, err, errBody)
	assert.ErrorContains(t, err, "rank 0: world: finalize: peer process failed: rank 1")
}

func TestFinalize(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		d := must(w.Dup())
		assert.ErrorIs(t, d.Finalize(), comm.ErrComm, "not the world")
		r, pending := must(comm.RecvInit(w, []int{0}, 0, 0)), must(comm.Irecv(w, []int{0}, 0, 0))
		require.NoError(t, w.WithContext(t.Context()).Finalize())
		err := w.Finalize()
		assert.ErrorIs(t, err, comm.ErrFinalized)
		comm.EqualError(t, err, "world: finalize: already finalized")
		for _, c := range []*comm.Comm{w, d, w.WithContext(t.Context())} {
			assert.ErrorIs(t, c.Barrier(), comm.ErrFinalized)
			assert.ErrorIs(t, c.Free(), comm.ErrFinalized)
			assert.ErrorIs(t, errOf(c.Dup()), comm.ErrFinalized)
			assert.ErrorIs(t, errOf(comm.Alloc[int](c, 1)), comm.ErrFinalized)
			for _, call := range append(typed(1), untyped()...) {
				assert.ErrorIs(t, call.do(c, 0, 0), comm.ErrFinalized, call.op)
				assert.ErrorIs(t, call.do(c, -7, -7), comm.ErrFinalized, call.op)
			}
			for _, call := range typed("x") {
				assert.ErrorIs(t, call.do(c, 0, 0), comm.ErrType, call.op)
			}
		}
		require.NoError(t, r.Start())
		assert.ErrorIs(t, errOf(r.Wait()), comm.ErrFinalized)
		assert.Error(t, errOf(pending.Wait()), "no message came")
		assert.Equal(t, 2, w.Size())
		assert.Equal(t, "world", w.Name())
	})
}

func TestFinalizeEndsCallsOfOtherGoroutines(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		waiting, ended := make(chan struct{}), make(chan error)
		go func() {
			close(waiting)
			_, err := comm.Recv(w, []int{0}, w.Rank(), 9) // no other rank's Finalize ends it
			ended <- err
		}()
		<-waiting
		require.NoError(t, w.Finalize())
		assert.ErrorIs(t, <-ended, comm.ErrFinalized)
	})
}

// TestFinalizeCompletesSends: a message is delivered even if the receiver is late and the sender
// has freed its request.
func TestFinalizeCompletesSends(t *testing.T) {
	run(t, 3, func(t rank, w *comm.Comm) {
		if w.Rank() == 0 {
			for dest := 1; dest < 3; dest++ {
				for i, n := range sizes() {
					r := must(comm.Isend(w, pattern(n, i), dest, i))
					require.NoError(t, r.Free())
				}
			}
			require.NoError(t, w.Finalize())
			return
		}
		for range 1000 {
			runtime.Gosched()
		}
		for i, n := range sizes() {
			assert.Equal(t, pattern(n, i), recv[byte](w, n, 0, i))
		}
		require.NoError(t, w.Finalize())
	})
}

// TestFinalizeReportsUnreceivedSends: sends that no rank receives do not make Finalize wait
// forever.
func TestFinalizeReportsUnreceivedSends(t *testing.T) {
	t.Parallel()
	first := make(chan *comm.Comm, 1)
	err := comm.RunLocal(2, func(w *comm.Comm) error {
		if w.Rank() == 0 {
			for tag := range 3 { // receives, which wait too
				if _, err := comm.Irecv(w, []int{0}, 1, tag); err != nil {
					return err
				}
			}
			for range 2 {
				if _, err := comm.Issend(w, []int{1}, 1, 3); err != nil {
					return err
				}
			}
			first <- w
		} else {
			awaitFinalize(<-first)
		}
		err := w.Finalize()
		if w.Rank() == 0 {
			assert.ErrorIs(t, err, comm.ErrPending)
			assert.ErrorContains(t, err, "no rank receives issend peer 1 tag 3 of 8 bytes: waiting for the receiver in world, and 1 more")
			return nil
		}
		return err
	})
	require.NoError(t, err)
}

// TestRunLocalWithVirtualFabricFails: a simulation advances the time of a virtual fabric, and
// RunLocal does not.
func TestRunLocalWithVirtualFabricFails(t *testing.T) {
	err := comm.RunLocal(2, func(w *comm.Comm) error {
		t.Error("the ranks have begun")
		return nil
	}, comm.WithFabric(loop.Config{Virtual: true}))
	require.EqualError(t, err, "run local: not supported: a virtual fabric, because nothing would advance its time")
	require.ErrorIs(t, err, comm.ErrNotSupported)
}

func TestNestedRunLocalsAreIndependent(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		err := comm.RunLocal(2, func(inner *comm.Comm) error {
			if inner.Rank() == 0 {
				return comm.Send(inner, []int{w.Rank()}, 1, 0)
			}
			got := []int{-1}
			_, err := comm.Recv(inner, got, comm.AnySource, comm.AnyTag)
			assert.Equal(t, w.Rank(), got[0])
			return err
		})
		require.NoError(t, err)
		ringOf(t, w)
	})
}

func TestManyRanksOnFewCoresProgress(t *testing.T) {
	run(t, 64, func(t rank, w *comm.Comm) {
		ringOf(t, w)
		require.NoError(t, w.Barrier())
		c := must(w.Split(w.Rank()%5, 0))
		ringOf(t, c)
		require.NoError(t, c.Free())
	})
}

func TestOptionsSetSettingsAndFabric(t *testing.T) {
	for _, opts := range [][]comm.Option{
		{comm.WithSetting("pml.eager.bytes", "0")},
		{comm.WithSetting("pml.eager.bytes", "1M")},
		{comm.WithSetting("progress.spin", "0"), comm.WithSetting("progress.yield", "0s")},
		{comm.WithSetting("progress.sleep", "false")},
		{comm.WithFabric(loop.Config{Rails: 2, Slots: 2})},
		{comm.WithFabric(loop.Config{Rail: []loop.RailConfig{{Without: btl.CapInline | btl.CapPut | btl.CapGet, MaxSendBytes: 256}}})},
		{nil},
	} {
		run(t, 3, func(t rank, w *comm.Comm) {
			next, prev := (w.Rank()+1)%3, (w.Rank()+2)%3
			for _, n := range sizes() {
				b := pattern(n, w.Rank())
				must(comm.SendrecvReplace(w, b, next, 0, prev, 0))
				assert.Equal(t, pattern(n, prev), b)
			}
		}, opts...)
	}
}

// TestWaitingRankSleepsAndWakes: a rank that waits for long sleeps, and a message wakes it.
func TestWaitingRankSleepsAndWakes(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		if w.Rank() == 0 {
			// Any time is correct; this one is long enough to fall asleep.
			time.Sleep(20 * time.Millisecond)
			require.NoError(t, comm.Send(w, []int{1}, 1, 0))
			require.Equal(t, []int{2}, recv[int](w, 1, 1, 0))
			return
		}
		require.Equal(t, []int{1}, recv[int](w, 1, 0, 0))
		require.NoError(t, comm.Send(w, []int{2}, 0, 0))
	})
}

// TestRequestActiveAtFinalizeFails: a later Wait returns ErrFinalized.
func TestRequestActiveAtFinalizeFails(t *testing.T) {
	require.NoError(t, comm.RunLocal(2, func(w *comm.Comm) error {
		r, err := comm.Irecv(w, make([]int, 1), 1-w.Rank(), 0)
		if err != nil {
			return err
		}
		if err := w.Finalize(); err != nil {
			return err
		}
		assert.ErrorIs(t, errOf(r.Wait()), comm.ErrFinalized)
		return nil
	}))
}
