package comm

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// awaitTrue makes progress until isSo returns true.
func awaitTrue(w *Comm, isSo func() bool) error {
	for !isSo() {
		if _, _, err := w.Iprobe(AnySource, tagUB); err != nil {
			return err
		}
	}
	return nil
}

// wasProbed reports whether this rank keeps a mismatch probe of another rank.
func wasProbed(c *Comm) bool {
	c.job.eng.Lock()
	defer c.job.eng.Unlock()
	return reflect.ValueOf(c.team).Elem().FieldByName("probes").Len() > 0
}

// TestFreeAnswersMismatchProbe: a rank gives up a barrier before it has begun, and frees the
// communicator. A rank that has probed it does not go on waiting.
func TestFreeAnswersMismatchProbe(t *testing.T) {
	for _, asked := range []bool{true, false} {
		require.NoError(t, RunLocal(3, func(w *Comm) error {
			nc, err := w.Split(0, -w.Rank())
			if err != nil {
				return err
			}
			if w.Rank() != 1 {
				err := nc.Barrier()
				assert.ErrorIs(t, err, ErrComm)
				if w.Rank() == 0 {
					assert.ErrorContains(t, err, "rank 1 ")
				}
				return errors.Join(nc.Free(), w.Barrier())
			}
			ctx, cancel := context.WithCancel(context.Background())
			if asked {
				if err := awaitTrue(w, func() bool { return wasProbed(nc) }); err != nil {
					cancel()
					return err
				}
			}
			cancel()
			assert.ErrorIs(t, nc.WithContext(ctx).Barrier(), context.Canceled)
			return errors.Join(nc.Free(), w.Barrier())
		}))
	}
}

// TestFinalizeAnswersMismatchProbe: a rank in Finalize that may still receive answers a rank that
// waits for it in a collective.
func TestFinalizeAnswersMismatchProbe(t *testing.T) {
	require.NoError(t, RunLocal(2, func(w *Comm) error {
		if w.Rank() == 1 {
			_, err := Irecv(w, []int{0}, 0, 9)
			return err
		}
		err := Bcast(w, make([]byte, 1<<20), 0)
		assert.ErrorIs(t, err, ErrProcFailed)
		return Send(w, []int{1}, 1, 9)
	}))
}
