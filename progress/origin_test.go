package progress

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOriginNamesCallerOfSleepingAndParkedWaits: a report finds the line of each waiting call, and
// not the line of an earlier wait with the same waiter.
func TestOriginNamesCallerOfSleepingAndParkedWaits(t *testing.T) {
	e := New(Config{})
	ws, dones := parkedBehind(t.Context(), t, e, 2)
	origin := func(w *Waiter) (since int64, functions string, ok bool) {
		since, pcs, ok := w.Origin()
		frames := runtime.CallersFrames(pcs)
		for more := ok; more; {
			var f runtime.Frame
			f, more = frames.Next()
			functions += f.Function + "\n"
		}
		return since, functions, ok
	}
	for _, w := range ws {
		eventually(t, e, func() bool { _, _, ok := w.Origin(); return ok }, "the wait sleeps")
		locked(e, func() {
			since, functions, _ := origin(w)
			assert.Contains(t, functions, "progress.(*Engine).WaitOn\n")
			assert.True(t, strings.Contains(functions, "parkedBehind") || strings.Contains(functions, "waitIn"), functions)
			assert.InDelta(t, e.Now(), since, 60e9)
		})
	}
	locked(e, func() {
		for _, w := range ws {
			w.Signal()
		}
		e.Wake()
	})
	for _, done := range dones {
		require.NoError(t, within(t, done, "the wait"))
	}
	// The next wait ends before it sleeps.
	locked(e, func() {
		ws[0].Reset(1)
		e.AddPoller(&pollFunc{after(2, ws[0].Signal)})
		require.NoError(t, e.Wait(context.Background(), ws[0]))
		_, _, ok := origin(ws[0])
		assert.False(t, ok)
	})
}

// A Waiter is a part of each request, and most requests are complete before a wait for them sleeps.
func TestWaiterIsSmall(t *testing.T) {
	assert.LessOrEqual(t, unsafe.Sizeof(Waiter{}), uintptr(104))
}

// TestOriginIsNotedAgainWithoutAllocation: only the first sleeping wait with a Waiter allocates.
func TestOriginIsNotedAgainWithoutAllocation(t *testing.T) {
	e, o := New(Config{}), origin{}
	o.note(e)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		o.since = 0
		o.note(e)
	}))
}
