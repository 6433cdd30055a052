package progress

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pollFunc is a poller that finds what a function says, nil for nothing ever.
type pollFunc struct{ find func() int }

func (p *pollFunc) Progress() int {
	if p.find == nil {
		return 0
	}
	return p.find()
}

// idler is a pollFunc that can be armed.
type idler struct {
	pollFunc
	rings         bool // what Arm reports
	onArm         func()
	arms, disarms int
}

func (p *idler) Arm() bool {
	p.arms++
	if p.onArm != nil {
		p.onArm()
	}
	return p.rings
}

func (p *idler) Disarm() { p.disarms++ }

// handClock is a Clock that a test moves.
type handClock struct{ nanos atomic.Int64 }

func (c *handClock) Now() int64 { return c.nanos.Load() }

// logBell is a Bell on which nobody sleeps: it writes down for how long they would have.
type logBell struct {
	mu      sync.Mutex
	rings   int
	sleeps  []int64
	onSleep func() // runs without the engine's lock
	closed  int
}

func (b *logBell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rings++
}

func (b *logBell) Sleep(nanos int64) (rung bool) {
	b.mu.Lock()
	b.sleeps = append(b.sleeps, nanos)
	before := b.rings
	b.mu.Unlock()
	if b.onSleep != nil {
		b.onSleep()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rings > before
}

func (b *logBell) Close() error {
	b.closed++
	return nil
}

// locked runs f with the engine's lock.
func locked(e *Engine, f func()) {
	e.Lock()
	defer e.Unlock()
	f()
}

// wait waits for need signals that signal gets hold of by the waiter.
func wait(e *Engine, w *Waiter) error {
	e.Lock()
	defer e.Unlock()
	return e.Wait(context.Background(), w)
}

// waiter that waits for need signals.
func waiter(need int) *Waiter {
	w := new(Waiter)
	w.Reset(need)
	return w
}

// eventually waits until cond holds under the engine's lock.
func eventually(t *testing.T, e *Engine, cond func() bool, what string) {
	t.Helper()
	require.Eventually(t, func() bool {
		e.Lock()
		defer e.Unlock()
		return cond()
	}, time.Minute, 100*time.Microsecond, what)
}

// within fails the test if what is sent on done does not come.
func within(t *testing.T, done <-chan error, what string) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		require.FailNow(t, "does not end: "+what)
		return nil
	}
}

// spawn runs f on a goroutine and gives what it returns.
func spawn(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// after is a poller's function that finds one event, and runs do, at the turn-th poll.
func after(turns int, do func()) func() int {
	return func() int {
		if turns--; turns != 0 {
			return 0
		}
		do()
		return 1
	}
}
