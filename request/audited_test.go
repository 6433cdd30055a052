package request

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/atomic"
)

// quiet is an auditor that finds nothing.
type quiet struct{}

func (quiet) Started()                  {}
func (quiet) Completed(err error) error { return err }
func (quiet) Look() error               { return nil }
func (quiet) Released()                 {}
func (quiet) Ended()                    {}

// audited makes an active operation that is audited, and its handle. Each loss is counted.
func (r *rank) audited(name string, losses *atomic.Int64) (*op, Request) {
	r.Lock()
	defer r.Unlock()
	o := r.get(name)
	o.Audit(quiet{})
	o.Activate()
	return o, o.AuditedHandle(func(Auditor) { losses.Inc() })
}

// collect returns when the collector has run all pending cleanups.
func collect() {
	for range 3 {
		done := make(chan struct{})
		runtime.AddCleanup(new([4]*int), func(done chan struct{}) { close(done) }, done)
		for isDone := false; !isDone; {
			runtime.GC()
			select {
			case <-done:
				isDone = true
			default:
				runtime.Gosched()
			}
		}
	}
}

// TestAuditedRequestIsNotLostDuringCall: the collector runs while a call makes progress and has
// released the lock. The caller has no other copy of the handle.
func TestAuditedRequestIsNotLostDuringCall(t *testing.T) {
	for name, call := range map[string]func(r Request, list []Request) error{
		"Wait":      func(r Request, _ []Request) error { _, err := r.Wait(); return err },
		"Test":      func(r Request, _ []Request) error { _, _, err := r.Test(); return err },
		"GetStatus": func(r Request, _ []Request) error { _, _, err := r.GetStatus(); return err },
		"WaitAll":   func(_ Request, list []Request) error { return WaitAll(list...) },
		"TestAll":   func(_ Request, list []Request) error { _, err := TestAll(list, nil); return err },
		"WaitAny":   func(_ Request, list []Request) error { _, _, err := WaitAny(list...); return err },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRank()
			var losses atomic.Int64
			o, h := r.audited("a", &losses)
			r.locked(func() {
				r.due = append(r.due, func() {
					left := r.Leave()
					collect()
					r.Return(left)
					o.CompleteEmpty()
				})
			})
			list := []Request{h}
			if name == "Wait" || name == "Test" || name == "GetStatus" {
				list = nil
			} else {
				h = Request{}
			}
			require.NoError(t, call(h, list))
			assert.Zero(t, losses.Load())
		})
	}
}

// TestStartOfAuditedRequestKeepsItsHandle: as above, for calls that start a persistent request.
func TestStartOfAuditedRequestKeepsItsHandle(t *testing.T) {
	for name, start := range map[string]func(r Request) error{
		"Start":    Request.Start,
		"StartAll": func(r Request) error { return StartAll(r) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRank()
			var losses atomic.Int64
			var h Request
			r.locked(func() {
				o := r.get("a")
				o.Audit(quiet{})
				o.InitPersistent()
				o.onStart = func() {
					left := r.Leave()
					collect()
					r.Return(left)
					o.Complete(message, nil)
					_, _ = o.Take()
				}
				h = o.AuditedHandle(func(Auditor) { losses.Inc() })
			})
			require.NoError(t, start(h))
			assert.Zero(t, losses.Load())
		})
	}
}

// counting is a shortcut that takes nothing.
type counting struct{ asked int }

func (c *counting) TakeShort() (source, tag int, bytes int64, ok bool) {
	c.asked++
	return 0, 0, 0, false
}

func (c *counting) TakeRun([]Request, []Status) int {
	c.asked++
	return 0
}

func TestAuditedRequestTakesNoShortcut(t *testing.T) {
	r := newRank()
	var losses atomic.Int64
	o, h := r.audited("a", &losses)
	short := &counting{}
	r.locked(func() {
		o.LookAhead(nil, short)
		assert.False(t, o.MayTake(o.Handle()))
	})
	o.completeLater(message, nil)
	require.NoError(t, WaitAll(h))
	assert.Zero(t, short.asked)
}
