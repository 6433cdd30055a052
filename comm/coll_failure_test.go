package comm

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLaterCollectiveNeverMatchesMessageOfFailedOne: ranks with different arguments leave messages
// behind. No later collective receives them, however many come in between.
func TestLaterCollectiveNeverMatchesMessageOfFailedOne(t *testing.T) {
	for between := range 20 {
		err := RunLocal(3, func(w *Comm) error {
			short := make([]byte, 10)
			if w.Rank() == 0 {
				assert.NoError(t, Bcast(w, short, 0), "the root sees nothing of it")
			} else {
				assert.ErrorIs(t, Bcast(w, make([]byte, 1<<20), 0), ErrCount)
			}
			for range between {
				if err := w.Barrier(); err != nil {
					return err
				}
			}
			if w.Rank() == 0 {
				copy(short, "0123456789")
			}
			if err := Bcast(w, short, 0); err != nil {
				return err
			}
			assert.Equal(t, "0123456789", string(short))
			return nil
		})
		require.NoError(t, err)
	}
}

// TestSplitGivenUpByOneRankEndsEverywhere: one rank gives up in Split before another one has come.
// No rank waits for ever, and each rank that lacks a contribution gets an error.
func TestSplitGivenUpByOneRankEndsEverywhere(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	first, gaveUp := make(chan *Comm, 1), make(chan struct{})
	err := RunLocal(4, func(w *Comm) error {
		switch w.Rank() {
		case 0:
			first <- w
			_, err := w.WithContext(ctx).Split(0, 0)
			assert.ErrorIs(t, err, context.Canceled)
			close(gaveUp)
			return nil
		case 1: // late
			awaitPending(ctx, <-first)
			cancel()
			<-gaveUp
		}
		c, err := w.Split(0, 0)
		assert.Equal(t, err == nil, c != nil)
		if w.Rank() == 2 { // lacks what rank 0 should have passed on
			assert.ErrorContains(t, err, "rank 0 gave up on this split: it failed there")
		}
		return nil
	})
	require.NoError(t, err)
}

// TestBuffersBelongToUserAfterFailedCollective: once a collective has returned, nothing writes to
// its buffers, even if it has given up half-way. Changes to them do not change what other ranks
// receive.
func TestBuffersBelongToUserAfterFailedCollective(t *testing.T) {
	const length = 4 << 20
	for round := range 4 {
		for giver := range 2 {
			err := RunLocal(2, func(w *Comm) error {
				buf := make([]byte, length)
				if w.Rank() == 0 {
					fill(buf, 7)
				}
				if err := w.Barrier(); err != nil {
					return err
				}
				v := w
				if w.Rank() == giver {
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					v = w.WithContext(ctx)
					go func() {
						awaitPending(ctx, w)
						time.Sleep(time.Duration(round) * 300 * time.Microsecond) // at any moment
						cancel()
					}()
				}
				err := Bcast(v, buf, 0)
				if w.Rank() == giver {
					fill(buf, 9)
					if _, err := Sendrecv(w, []byte{1}, 1-giver, 0, make([]byte, 1), 1-giver, 0); err != nil {
						return err
					}
					assert.Equal(t, length, count(buf, 9), "bytes as the user has left them")
					return nil
				}
				if w.Rank() == 1 && err == nil {
					assert.Equal(t, length, count(buf, 7), "bytes as they were sent")
				}
				_, err = Sendrecv(w, []byte{1}, giver, 0, make([]byte, 1), giver, 0)
				return err
			})
			require.NoError(t, err)
		}
	}
}

// awaitPending returns when the rank of w waits for something, or when ctx ends.
func awaitPending(ctx context.Context, w *Comm) {
	for waits := 0; waits == 0 && ctx.Err() == nil; runtime.Gosched() {
		w.job.eng.Lock()
		waits = len(w.job.pml.Pending())
		w.job.eng.Unlock()
	}
}

func fill(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}

func count(b []byte, v byte) (n int) {
	for _, c := range b {
		if c == v {
			n++
		}
	}
	return n
}
