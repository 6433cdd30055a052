package comm_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

// unfinished are ways to leave a collective under way that the other ranks do not call. They return
// a function that waits for it.
func unfinished() map[string]func(w *comm.Comm) (wait func() error) {
	waiting := func(r request.Request) func() error {
		return func() error { _, err := r.Wait(); return err }
	}
	return map[string]func(w *comm.Comm) func() error{
		"ibarrier": func(w *comm.Comm) func() error { return waiting(must(w.Ibarrier())) },
		"ibcast": func(w *comm.Comm) func() error {
			d := must(w.Dup())
			if w.Rank() != 0 {
				return nil
			}
			r := must(comm.Ibcast(d, []int{0}, 1))
			check(d.Free())
			return waiting(r)
		},
		"persistent barrier": func(w *comm.Comm) func() error {
			r := must(w.BarrierInit())
			if w.Rank() != 0 {
				return nil
			}
			check(r.Start())
			return waiting(r)
		},
	}
}

// TestFinalizeReportsCollectiveThatIsNeverOver: only rank 0 makes a nonblocking collective, or
// starts a persistent one, and no call waits for it. Its Finalize says so.
func TestFinalizeReportsCollectiveThatIsNeverOver(t *testing.T) {
	for name, begin := range unfinished() {
		for _, checked := range []string{"false", "true"} {
			t.Run(name+" "+checked, func(t *testing.T) {
				t.Parallel()
				first := make(chan *comm.Comm, 1)
				require.NoError(t, comm.RunLocal(2, func(w *comm.Comm) error {
					if w.Rank() == 0 || name != "ibarrier" {
						begin(w)
					}
					if w.Rank() == 0 {
						first <- w
					} else {
						awaitFinalize(<-first) // one that finalizes long before ends the collective
					}
					err := w.Finalize()
					if w.Rank() != 0 {
						return err
					}
					assert.ErrorIs(t, err, comm.ErrPending)
					assert.Regexp(t, `^world: finalize \(finalize_collective_test.go:\d+\): still pending: world`, err)
					assert.ErrorContains(t, err, ": "+name)
					if checked == "true" {
						assert.ErrorContains(t, err, "; started at finalize_collective_test.go:")
					}
					return nil
				}, comm.WithSetting("check", checked)))
			})
		}
	}
}

// TestFinalizeAfterWaitSucceeds: collectives that were waited for are over, even if they have
// failed.
func TestFinalizeAfterWaitSucceeds(t *testing.T) {
	require.NoError(t, comm.RunLocal(2, func(w *comm.Comm) error {
		for range 3 {
			must(must(w.Ibarrier()).Wait())
		}
		r := must(w.BarrierInit())
		check(r.Start())
		must(r.Wait())
		if w.Rank() == 0 {
			if _, err := must(comm.Ibcast(w, []int{0}, 1)).Wait(); !errors.Is(err, comm.ErrProcFailed) {
				return fmt.Errorf("ibcast: %w", err)
			}
		}
		return nil
	}))
}

// unfinishedProgram returns while a collective is under way.
func unfinishedProgram(w *comm.Comm) error {
	if w.Rank() == 1 {
		must(w.Ibarrier())
		return comm.Send(w, []int{1}, 0, 0)
	}
	_, err := comm.Recv(w, []int{0}, 1, 0)
	return err
}

func TestUnfinishedCollectiveFailsJob(t *testing.T) {
	got := launcher(t)(2, "unfinished", "--set", "check=true")
	assert.Equal(t, 1, got.status, got.stderr)
	// Rank 0 may have come to Finalize before, and then says so.
	assert.Regexp(t, `^mpigo: rank 1: world: finalize \(\w+.go:\d+\): still pending: world: ibarrier.*: .*; `+
		`started at finalize_collective_test.go:\d+`, got.stderr)
}
