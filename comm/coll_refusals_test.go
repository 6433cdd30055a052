package comm

import (
	"errors"
	"sync"
	"testing"
)

// CheckRefusals refuses a number of collectives, calls, at rank 0 while rank 1 makes no progress.
// Rank 0 calls release when it has refused all, and rank 1 waits for that in await. Few REVOKEs
// wait to be sent meanwhile, and rank 1 learns of each refused collective.
func CheckRefusals(w *Comm, calls int, release, await func()) {
	check(w.Barrier())
	if w.Rank() == 1 {
		await()
	}
	for i := range calls {
		switch err := Bcast(w, []int{i}, w.Rank()-1); {
		case w.Rank() == 0 && !errors.Is(err, ErrRoot):
			failf("bcast %d is not refused: %w", i, err)
		case w.Rank() == 1 && !errors.Is(err, ErrComm):
			failf("bcast %d, which rank 0 has refused: %w", i, err)
		case w.Rank() == 0:
			if busy := locked(w, w.job.pml.Busy); busy > 100 {
				failf("%d fragments wait to be sent after %d refusals", busy, i+1)
			}
		}
	}
	if w.Rank() == 0 {
		release()
	}
	sum := []int{1}
	check(errors.Join(Allreduce(w, nil, sum, Sum), same("the next collective", []int{w.Size()}, sum)))
}

func TestRefusalsWhileAnotherRankDoesNothing(t *testing.T) {
	for _, transport := range []string{"goroutines", "self,sm", "self,tcp"} {
		t.Run(transport, func(t *testing.T) {
			var opts []Option
			if transport != "goroutines" {
				opts = append(opts, WithSetting("btl", transport))
			}
			released := make(chan struct{})
			var once sync.Once
			release := func() { once.Do(func() { close(released) }) }
			run(t, 2, func(w *Comm) {
				defer release() // also after a failure
				CheckRefusals(w, 20_000, release, func() { <-released })
			}, opts...)
		})
	}
}
