package comm

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCallThatWaitsForUnfitRankFails: a rank gives up a collective, which makes the communicator
// unfit there, and calls no further one. A rank that sends or receives in the next one does not
// wait for it for ever.
func TestCallThatWaitsForUnfitRankFails(t *testing.T) {
	for name, next := range map[string]func(w *Comm) error{
		"gather":  func(w *Comm) error { return Gather(w, make([]byte, 1<<20), nil, 0) },
		"bcast":   func(w *Comm) error { return Bcast(w, make([]byte, 8), 0) },
		"barrier": (*Comm).Barrier,
	} {
		t.Run(name, func(t *testing.T) {
			gaveUp := make(chan struct{})
			require.NoError(t, RunLocal(3, func(w *Comm) error {
				switch w.Rank() {
				case 0:
					ctx, cancel := context.WithCancel(context.Background())
					cancelled := make(chan struct{})
					go func() {
						defer close(cancelled)
						for running := false; !running; {
							w.job.eng.Lock()
							running = w.team.Running() != nil
							w.job.eng.Unlock()
						}
						cancel()
					}()
					err := Gather(w.WithContext(ctx), make([]byte, 8), make([]byte, 24), 0)
					assert.ErrorIs(t, err, context.Canceled)
					<-cancelled
					close(gaveUp)
					_, err = Recv(w, []byte{0}, 1, 7)
					return err
				case 1:
					// It may end before this rank hears that the root has given up.
					_ = Gather(w, make([]byte, 8), nil, 0)
					assert.ErrorIs(t, next(w), ErrComm)
					return Send(w, []byte{1}, 0, 7)
				}
				<-gaveUp
				_ = Gather(w, make([]byte, 8), nil, 0) // likewise
				return nil
			}))
		})
	}
}
