package comm

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/pml"
)

// TestLaterCollectiveNeverMatchesMessageOfFailedOne: ranks with different arguments leave messages
// behind. No later collective receives them.
func TestLaterCollectiveNeverMatchesMessageOfFailedOne(t *testing.T) {
	for between := range 20 {
		runUnchecked(t, 3, func(w *Comm) {
			short := make([]byte, 10)
			if w.Rank() == 0 {
				assert.NoError(t, Bcast(w, short, 0), "the root does not wait for the other ranks")
			} else {
				assert.ErrorIs(t, Bcast(w, make([]byte, 1<<20), 0), ErrCount)
			}
			for range between {
				check(w.Barrier())
			}
			if w.Rank() == 0 {
				copy(short, "0123456789")
			}
			check(Bcast(w, short, 0))
			assert.Equal(t, "0123456789", string(short))
		})
	}
}

// TestSplitGivenUpByOneRankEndsEverywhere: one rank gives up in Split before another rank has
// called it. No rank waits forever, and each rank that lacks a contribution gets an error.
func TestSplitGivenUpByOneRankEndsEverywhere(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	first, gaveUp := make(chan *Comm, 1), make(chan struct{})
	run(t, 4, func(w *Comm) {
		switch w.Rank() {
		case 0:
			first <- w
			_, err := w.WithContext(ctx).Split(0, 0)
			assert.ErrorIs(t, err, context.Canceled)
			close(gaveUp)
			return
		case 1: // late
			awaitPending(ctx, <-first)
			cancel()
			<-gaveUp
		}
		c, err := w.Split(0, 0)
		assert.Equal(t, err == nil, c != nil)
		if w.Rank() == 2 { // it lacks the data that rank 0 should have passed on
			assert.ErrorContains(t, err, "rank 0 gave up on this split: the context of its call has ended")
		}
	})
}

// TestBuffersBelongToUserAfterFailedCollective: once a collective has returned, the library does
// not write to its buffers, even if it was cancelled half-way. If the user changes them, other
// ranks still receive the old contents.
func TestBuffersBelongToUserAfterFailedCollective(t *testing.T) {
	const length = 4 << 20
	for round := range 4 {
		for giver := range 2 {
			run(t, 2, func(w *Comm) {
				buf, other := make([]byte, length), 1-w.Rank()
				if w.Rank() == 0 {
					copy(buf, bytes.Repeat([]byte{7}, length))
				}
				check(w.Barrier())
				v := w
				if w.Rank() == giver {
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					v = w.WithContext(ctx)
					go func() {
						awaitPending(ctx, w)
						time.Sleep(time.Duration(round) * 300 * time.Microsecond) // at any time
						cancel()
					}()
				}
				err := Bcast(v, buf, 0)
				if w.Rank() == giver {
					copy(buf, bytes.Repeat([]byte{9}, length))
				} else if w.Rank() == 1 && err == nil {
					assert.Equal(t, length, bytes.Count(buf, []byte{7}), "bytes as they were sent")
				}
				must(Sendrecv(w, []byte{1}, other, 0, make([]byte, 1), other, 0))
				if w.Rank() == giver {
					assert.Equal(t, length, bytes.Count(buf, []byte{9}), "no byte has changed since")
				}
			})
		}
	}
}

// TestCallThatWaitsForUnfitRankFails: a rank gives up a collective, which makes the communicator
// unfit there, and calls no further collective. A rank that sends or receives in the next
// collective does not wait forever.
func TestCallThatWaitsForUnfitRankFails(t *testing.T) {
	for name, next := range map[string]func(w *Comm) error{
		"gather":  func(w *Comm) error { return Gather(w, make([]byte, 1<<20), nil, 0) },
		"bcast":   func(w *Comm) error { return Bcast(w, make([]byte, 8), 0) },
		"barrier": (*Comm).Barrier,
	} {
		t.Run(name, func(t *testing.T) {
			gaveUp := make(chan struct{})
			run(t, 3, func(w *Comm) {
				switch w.Rank() {
				case 0:
					ctx, cancel := context.WithCancel(context.Background())
					cancelled := make(chan struct{})
					go func() {
						defer close(cancelled)
						awaitRunning(w)
						cancel()
					}()
					err := Gather(w.WithContext(ctx), make([]byte, 8), make([]byte, 24), 0)
					assert.ErrorIs(t, err, context.Canceled)
					<-cancelled
					close(gaveUp)
					must(Recv(w, []byte{0}, 1, 7))
				case 1:
					// It may end before the REVOKE of the root arrives.
					_ = Gather(w, make([]byte, 8), nil, 0)
					assert.ErrorIs(t, next(w), ErrComm)
					check(Send(w, []byte{1}, 0, 7))
				case 2:
					<-gaveUp
					_ = Gather(w, make([]byte, 8), nil, 0) // likewise
				}
			})
		})
	}
}

// wasProbed reports whether this rank keeps a mismatch probe of another rank.
func wasProbed(c *Comm) bool {
	return locked(c, func() bool { return reflect.ValueOf(c.team).Elem().FieldByName("probes").Len() > 0 })
}

// TestFreeAnswersMismatchProbe: a rank gives up a barrier before it has begun, and frees the
// communicator. A rank that has probed it stops waiting.
func TestFreeAnswersMismatchProbe(t *testing.T) {
	for _, probed := range []bool{true, false} {
		run(t, 3, func(w *Comm) {
			nc := must(w.Split(0, -w.Rank()))
			if w.Rank() == 1 {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				if probed {
					awaitTrue(w, func() bool { return wasProbed(nc) })
				}
				assert.ErrorIs(t, nc.WithContext(ctx).Barrier(), context.Canceled)
			} else {
				err := nc.Barrier()
				assert.ErrorIs(t, err, ErrComm)
				if w.Rank() == 0 {
					assert.ErrorContains(t, err, "rank 1 ")
				}
			}
			check(errors.Join(nc.Free(), w.Barrier()))
		})
	}
}

// TestFinalizeAnswersMismatchProbe: a rank in Finalize that may still receive answers a rank that
// waits for it in a collective.
func TestFinalizeAnswersMismatchProbe(t *testing.T) {
	run(t, 2, func(w *Comm) {
		if w.Rank() == 1 {
			must(Irecv(w, []int{0}, 0, 9))
			return
		}
		assert.ErrorIs(t, Bcast(w, make([]byte, 1<<20), 0), ErrProcFailed)
		check(Send(w, []int{1}, 1, 9))
	})
}

// TestCollectiveCompletesAfterFree: a collective that is under way when its communicator is freed
// completes (MPI 4.1, section 7.4.3).
func TestCollectiveCompletesAfterFree(t *testing.T) {
	run(t, 4, func(w *Comm) {
		d, freed := must(w.Dup()), make(chan error, 1)
		if w.Rank() == 0 {
			go func() {
				awaitRunning(d)
				freed <- d.Free()
				// The others call it only now.
				for r := 1; r < 4; r++ {
					assert.NoError(t, Send(w, []int{0}, r, 0))
				}
			}()
		} else {
			must(Recv(w, []int{0}, 0, 0))
		}
		check(d.Barrier())
		if w.Rank() == 0 {
			assert.NoError(t, <-freed)
			assert.Empty(t, locked(d, d.job.pml.Pending))
		}
		check(w.Barrier())
	})
}

// TestSplitWithForgedContextIDFails: each rank checks the context id that another rank proposes.
func TestSplitWithForgedContextIDFails(t *testing.T) {
	run(t, 2, func(w *Comm) {
		if w.Rank() == 1 {
			_, err := w.Split(0, 0)
			assert.ErrorIs(t, err, ErrComm)
			check(w.Barrier())
			return
		}
		forge := func() error {
			s := must(w.begin(blocking, calls.Split, nil))
			defer w.endCollective(s)
			me := splitMember{proposal: pml.Proposal{ID: pml.WorldContext}, host: w.job.hostKey}
			s.Allgather(me.encode(), make([]byte, 2*splitMemberBytes))
			_, err := w.run(s, nil)
			return err
		}
		// Rank 1 may give up before rank 0 has finished.
		if err := forge(); err != nil {
			assert.ErrorIs(t, err, ErrComm)
		}
		check(w.Barrier())
	})
}
