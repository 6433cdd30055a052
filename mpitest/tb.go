package mpitest

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/mpigo/mpigo/comm"
)

// rankTB is the testing.TB of a rank's body. FailNow and SkipNow of a testing.TB must be called
// from the goroutine of the test, which is in Run. So rankTB records these calls, and Run makes
// them when all ranks have ended.
type rankTB struct {
	testing.TB
	run    *run
	prefix string // begins each logged line; it names the rank

	mu       sync.Mutex
	cleanups []func()        // guarded by mu
	ctx      context.Context // of Context, nil until it is called; guarded by mu
	cancel   context.CancelFunc
}

// Cleanup registers f to be called when the body of the rank has returned, while the rank is still
// in the job. The function that was passed last is called first.
func (t *rankTB) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

// Context returns a context that ends before the first function of Cleanup is called.
func (t *rankTB) Context() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx == nil {
		t.ctx, t.cancel = context.WithCancel(t.TB.Context())
	}
	return t.ctx
}

// cleanUp calls the functions of Cleanup, all of them even if one panics or ends the goroutine.
func (t *rankTB) cleanUp() {
	t.mu.Lock()
	if t.cancel != nil {
		t.cancel()
	}
	last := len(t.cleanups) - 1
	if last < 0 {
		t.mu.Unlock()
		return
	}
	f := t.cleanups[last]
	t.cleanups = t.cleanups[:last]
	t.mu.Unlock()
	defer t.cleanUp()
	f()
}

// report fails the test at the line that called Run.
func (t *rankTB) report(format string, args ...any) {
	t.run.findings.add(t.prefix + strings.TrimSuffix(fmt.Sprintf(format, args...), "\n"))
}

// end ends the calls of all ranks, and the goroutine that calls it.
func (t *rankTB) end(how string) {
	t.run.stop(fmt.Errorf("%w: %s%s", comm.ErrProcFailed, t.prefix, how))
	runtime.Goexit()
}

func (t *rankTB) FailNow() {
	t.Fail()
	t.run.failNow.Store(true)
	t.end("the test has failed")
}

func (t *rankTB) SkipNow() {
	t.run.skipNow.Store(true)
	t.end("the test is skipped")
}

// Fail marks the test as failed, unless the test has ended.
func (t *rankTB) Fail() {
	t.run.mu.RLock()
	defer t.run.mu.RUnlock()
	if !t.run.over {
		t.TB.Fail()
	}
}

func (t *rankTB) log(text string) {
	t.Helper()
	t.run.mu.RLock()
	defer t.run.mu.RUnlock()
	if !t.run.over {
		t.TB.Log(t.prefix + strings.TrimSuffix(text, "\n"))
	}
}

func (t *rankTB) Log(args ...any) {
	t.Helper()
	t.log(fmt.Sprintln(args...))
}

func (t *rankTB) Logf(format string, args ...any) {
	t.Helper()
	t.log(fmt.Sprintf(format, args...))
}

func (t *rankTB) Error(args ...any) {
	t.Helper()
	t.log(fmt.Sprintln(args...))
	t.Fail()
}

func (t *rankTB) Errorf(format string, args ...any) {
	t.Helper()
	t.log(fmt.Sprintf(format, args...))
	t.Fail()
}

func (t *rankTB) Fatal(args ...any) {
	t.Helper()
	t.log(fmt.Sprintln(args...))
	t.FailNow()
}

func (t *rankTB) Fatalf(format string, args ...any) {
	t.Helper()
	t.log(fmt.Sprintf(format, args...))
	t.FailNow()
}

func (t *rankTB) Skip(args ...any) {
	t.Helper()
	t.log(fmt.Sprintln(args...))
	t.SkipNow()
}

func (t *rankTB) Skipf(format string, args ...any) {
	t.Helper()
	t.log(fmt.Sprintf(format, args...))
	t.SkipNow()
}
