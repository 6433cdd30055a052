package progress

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/leaks"
)

// TestMain fails if a goroutine outlives the tests.
func TestMain(m *testing.M) { leaks.Main(m) }

// pollFunc is a poller that reports the events that find returns; with a nil find, none.
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
	promises      bool // what Arm returns
	onArm         func()
	arms, disarms int
}

func (p *idler) Arm() bool {
	p.arms++
	if p.onArm != nil {
		p.onArm()
	}
	return p.promises
}

func (p *idler) Disarm() { p.disarms++ }

// handClock is a Clock that a test sets.
type handClock struct{ nanos atomic.Int64 }

func (c *handClock) Now() int64 { return c.nanos.Load() }

// logWakeup is a Wakeup whose Sleep returns at once and records its duration.
type logWakeup struct {
	mu      sync.Mutex
	wakes   int
	sleeps  []int64
	onSleep func() // runs without the engine's lock
	closed  int
}

func (u *logWakeup) Wake() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.wakes++
}

func (u *logWakeup) Sleep(nanos int64) (woken bool) {
	u.mu.Lock()
	u.sleeps = append(u.sleeps, nanos)
	before := u.wakes
	u.mu.Unlock()
	if u.onSleep != nil {
		u.onSleep()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.wakes > before
}

func (u *logWakeup) Close() error {
	u.closed++
	return nil
}

// locked runs f with the engine's lock.
func locked(e *Engine, f func()) {
	e.Lock()
	defer e.Unlock()
	f()
}

// waitIn calls Wait with the lock held.
func waitIn(ctx context.Context, e *Engine, w *Waiter) error {
	e.Lock()
	defer e.Unlock()
	return e.Wait(ctx, w)
}

// wait calls waitIn without a context.
func wait(e *Engine, w *Waiter) error { return waitIn(context.Background(), e, w) }

// waiter makes a Waiter for need signals.
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

// within returns the error sent on done, and fails the test if none comes within a minute.
func within(t *testing.T, done <-chan error, what string) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		require.FailNow(t, what+" does not end within a minute")
		return nil
	}
}

// spawn runs f on a goroutine and sends its result on the channel.
func spawn(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// after makes a poller's function that runs do and reports one event at the given poll, and reports
// none at the others.
func after(turns int, do func()) func() int {
	return func() int {
		if turns--; turns != 0 {
			return 0
		}
		do()
		return 1
	}
}
