package comm

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// TestOwnMessagesReachNoBuffer: a call without user slices sends internal data of the library. If
// other ranks make a Bcast of any length instead, they get an error, and their buffers do not
// change.
func TestOwnMessagesReachNoBuffer(t *testing.T) {
	calls := map[string]func(d *Comm) error{
		"barrier": func(d *Comm) error { return d.Barrier() },
		"dup":     func(d *Comm) error { _, err := d.Dup(); return err },
		"split":   func(d *Comm) error { _, err := d.Split(0, 0); return err },
		"idup": func(d *Comm) error {
			_, r, err := d.Idup()
			if err == nil {
				_, err = r.Wait()
			}
			return err
		},
	}
	for name, call := range calls {
		for _, n := range []int{2, 3, 5} {
			t.Run(fmt.Sprintf("%s, %d ranks", name, n), func(t *testing.T) {
				runUnchecked(t, n, func(w *Comm) {
					defer hurry(w)()
					for words := range 16 {
						d := must(w.Dup())
						for range 4 { // the next barrier sets shared memory up
							check(Bcast(d, make([]int, 1), 0))
						}
						if w.Rank() == 0 {
							isDifferent(name, call(d))
							continue
						}
						buf := slices.Repeat([]int{7}, words)
						err := Bcast(d, buf, 0)
						if words > 0 && err == nil {
							failf("rank %d: a bcast of %d words has no error", w.Rank(), words)
						}
						if !slices.Equal(buf, slices.Repeat([]int{7}, words)) {
							failf("rank %d: a bcast of %d words got %x", w.Rank(), words, buf)
						}
						if !errors.Is(err, ErrComm) && !errors.Is(err, ErrCount) && err != nil {
							failf("rank %d: %w", w.Rank(), err)
						}
					}
				})
			})
		}
	}
}
