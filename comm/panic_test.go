package comm

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/request"
)

var errPoller = errors.New("the poller is broken")

type brokenPoller struct{}

func (brokenPoller) Progress() int { panic(errPoller) }

// TestPanicInLibraryReleasesLock: RunLocal can report it and end the other rank, which waits.
func TestPanicInLibraryReleasesLock(t *testing.T) {
	calls := map[string]func(w *Comm) error{
		"recv":     func(w *Comm) error { _, err := Recv(w, make([]int, 1), 1, 0); return err },
		"ssend":    func(w *Comm) error { return Ssend(w, make([]int, 1), 1, 0) },
		"sendrecv": func(w *Comm) error { _, err := SendrecvReplace(w, make([]int, 1), 1, 0, 1, 0); return err },
		"probe":    func(w *Comm) error { _, err := w.Probe(1, 0); return err },
		"iprobe":   func(w *Comm) error { _, _, err := w.Iprobe(1, 0); return err },
		"barrier":  func(w *Comm) error { return w.Barrier() },
		"split":    func(w *Comm) error { _, err := w.Split(0, 0); return err },
		"value":    func(w *Comm) error { _, _, err := RecvValue[int](w, 1, 0); return err },
		"finalize": func(w *Comm) error { return w.Finalize() },
		"wait": func(w *Comm) error {
			r, err := Irecv(w, make([]int, 1), 1, 0)
			if err != nil {
				return err
			}
			return request.WaitAll(r)
		},
		"context": func(w *Comm) error {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			_, err := Recv(w.WithContext(ctx), make([]int, 1), 1, 0)
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			err := RunLocal(2, func(w *Comm) error {
				if w.Rank() == 1 {
					_, err := Recv(w, make([]int, 1), 0, 7)
					return err
				}
				w.job.eng.Lock()
				w.job.eng.AddPoller(brokenPoller{})
				w.job.eng.Unlock()
				return call(w)
			})
			require.ErrorIs(t, err, errPoller)
			require.ErrorIs(t, err, ErrProcFailed)
		})
	}
}
