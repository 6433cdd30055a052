package request

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/progress"
)

// One request fails, before the call or during it, and another one never completes. The engine
// would spin for longer than any test.
func TestWaitAllWithFailureStopsSpinning(t *testing.T) {
	for _, before := range []bool{false, true} {
		r := &rank{Engine: progress.New(progress.Config{SpinTurns: 1 << 40})}
		r.AddPoller(r)
		_, never := r.active("")
		fails, h := r.active("")
		if before {
			fails.complete(message, errBoom)
		} else {
			r.locked(func() { r.due = append(r.due, func() { fails.Complete(message, errBoom) }) })
		}
		assert.ErrorIs(t, WaitAll(never, h), errBoom)
		assert.LessOrEqual(t, r.Counters().Turns, uint64(3))
	}
}
