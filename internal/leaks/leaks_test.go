package leaks

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { Main(m) }

// TestVerifyAwaitsGoroutineThatEndsLate: it ends after goleak would have given up.
func TestVerifyAwaitsGoroutineThatEndsLate(t *testing.T) {
	go time.Sleep(time.Second)
	Verify(t)
}

// recorder is a testing.TB that records failures.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()           {}
func (r *recorder) Error(args ...any) { r.failed = true }

func TestVerifyFailsForGoroutineThatStays(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	go func() { <-stop }()
	r := &recorder{TB: t}
	verify(r, time.Millisecond)
	if !r.failed {
		t.Error("it has not failed")
	}
	Verify(t, goleak.IgnoreCurrent())
}
