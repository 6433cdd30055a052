package comm

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/pml"
)

// TestCollectiveCompletesAfterFree: a collective that is under way when its communicator is freed
// completes (MPI 4.1, section 7.4.3).
func TestCollectiveCompletesAfterFree(t *testing.T) {
	require.NoError(t, RunLocal(4, func(w *Comm) error {
		d, err := w.Dup()
		if err != nil {
			return err
		}
		freed := make(chan error, 1)
		if w.Rank() == 0 {
			go func() {
				for running := false; !running; time.Sleep(time.Millisecond) {
					d.job.eng.Lock()
					running = d.team.Running() != nil
					d.job.eng.Unlock()
				}
				freed <- d.Free()
				// The others call it only now.
				for r := 1; r < 4; r++ {
					assert.NoError(t, Send(w, []int{0}, r, 0))
				}
			}()
		} else if _, err := Recv(w, []int{0}, 0, 0); err != nil {
			return err
		}
		if err := d.Barrier(); err != nil {
			return err
		}
		if w.Rank() == 0 {
			assert.NoError(t, <-freed)
			d.job.eng.Lock()
			assert.Len(t, d.job.pml.Pending(), 0)
			d.job.eng.Unlock()
		}
		return w.Barrier()
	}))
}

// TestSplitWithForgedContextIDFails: each rank checks the context id that another rank proposes.
func TestSplitWithForgedContextIDFails(t *testing.T) {
	require.NoError(t, RunLocal(2, func(w *Comm) error {
		if w.Rank() == 1 {
			_, err := w.Split(0, 0)
			assert.ErrorIs(t, err, ErrComm)
			return w.Barrier()
		}
		forge := func() error {
			s, err := w.begin("split", nil)
			if err != nil {
				return err
			}
			defer w.endCollective(s)
			me := splitMember{id: pml.WorldContext, host: w.job.hostKey}
			s.Allgather(me.encode(), make([]byte, 2*splitMemberBytes))
			return w.run(s)
		}
		// Rank 1 may give up before rank 0 has finished.
		if err := forge(); err != nil && !errors.Is(err, ErrComm) {
			return err
		}
		return w.Barrier()
	}))
}
