package progress

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
)

const (
	shortYield = int64(300) // no other process ran
	sliceYield = int64(3_000_000)
)

func TestSpinningWaitYieldsMoreAndMoreRarely(t *testing.T) {
	var s spinYields
	var at []int
	for empty := range 2001 {
		if s.isDue(empty) {
			at = append(at, empty)
			s.took(shortYield)
		}
	}
	assert.Equal(t, []int{32, 64, 128, 256, 512, 1024}, at)
	s.took(sliceYield)
	for range skippedSpinYields {
		assert.False(t, s.isDue(firstSpinYield))
	}
	assert.True(t, s.isDue(firstSpinYield))
}

// sharedCore is a processor core on which a goroutine waits for one that can only run there. It is
// the engine's processor and poller at once.
type sharedCore struct {
	w    *Waiter
	runs bool // whether the other goroutine has had the core
}

func (c *sharedCore) Yield() { c.runs = true }

func (c *sharedCore) Delay() (nanos int64, ok bool) { return 0, false }

func (c *sharedCore) Progress() int {
	if !c.runs {
		return 0
	}
	c.w.Signal()
	return 1
}

// Without and with a look ahead, and in a driver.
func TestSpinningWaitLetsOthersUseItsCore(t *testing.T) {
	never := lookFunc(func() (int, bool) { return 0, true })
	for _, test := range []struct {
		name string
		wait func(e *Engine, c *sharedCore)
	}{
		{"Spin", func(e *Engine, c *sharedCore) { e.Spin(&c.w.need, nil) }},
		{"Spin with a look ahead", func(e *Engine, c *sharedCore) { e.Spin(&c.w.need, never) }},
		{"a driver", func(e *Engine, c *sharedCore) { _ = e.WaitOn(context.Background(), c.w, 0) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &sharedCore{w: waiter(1)}
			e := New(Config{SpinTurns: 2000, Processor: c})
			locked(e, func() {
				e.AddPoller(c)
				test.wait(e, c)
				assert.True(t, c.w.Done())
				assert.LessOrEqual(t, e.Counters().Turns, uint64(2*firstSpinYield))
			})
		})
	}
}
