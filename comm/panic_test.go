package comm

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

var errPoller = errors.New("the poller is broken")

type brokenPoller struct{}

func (brokenPoller) Progress() int { panic(errPoller) }

// TestPanicInLibraryReleasesLock: RunLocal reports the panic and ends the other rank, which waits.
func TestPanicInLibraryReleasesLock(t *testing.T) {
	for _, c := range append(WaitingCalls(),
		WaitingCall{"barrier", func(w *Comm, _ int) error { return w.Barrier() }},
		WaitingCall{"split", func(w *Comm, _ int) error { _, err := w.Split(0, 0); return err }},
		WaitingCall{"finalize", func(w *Comm, _ int) error { return w.Finalize() }},
	) {
		t.Run(c.Name, func(t *testing.T) {
			err := RunLocal(2, func(w *Comm) error {
				if w.Rank() == 1 {
					_, err := Recv(w, make([]int, 1), 0, 7)
					return err
				}
				w.job.eng.Lock()
				w.job.eng.AddPoller(brokenPoller{})
				w.job.eng.Unlock()
				return c.Call(w, 1)
			})
			require.ErrorIs(t, err, errPoller)
			require.ErrorIs(t, err, ErrProcFailed)
		})
	}
}
