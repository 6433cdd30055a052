package progress

import (
	"container/heap"
	"math"
	"time"
)

// SystemClock returns the monotonic clock of the system.
func SystemClock() Clock { return systemClock{time.Now()} }

type systemClock struct{ origin time.Time }

func (c systemClock) Now() int64 { return int64(time.Since(c.origin)) }

// Timer is a function that a turn of the engine runs at a given time.
type Timer struct {
	at    int64  // in nanoseconds of the engine's clock
	seq   uint64 // timers of the same time run in the order in which they were made
	fn    func()
	index int // in the heap, -1 when not waiting
}

// After makes a timer: fn runs with the lock held, in one of the first eight turns that begin at
// least nanos nanoseconds from now. Lock held.
func (e *Engine) After(nanos int64, fn func()) *Timer {
	now := e.Now()
	at := now + max(nanos, 0)
	if at < now {
		at = math.MaxInt64
	}
	t := &Timer{at: at, seq: e.timerSeq, fn: fn}
	e.timerSeq++
	heap.Push(&e.timers, t)
	if t.index == 0 {
		e.Wake() // a sleeping driver sleeps until the timer that was first before
	}
	return t
}

// StopTimer stops a timer. It returns false if the timer has run or was stopped before. Lock held.
func (e *Engine) StopTimer(t *Timer) bool {
	if t.index < 0 {
		return false
	}
	heap.Remove(&e.timers, t.index)
	return true
}

// runTimers runs the timers that are due. Timers that these functions make wait for a later turn.
// Otherwise a timer that makes itself again, due at once, would keep the turn from ending.
func (e *Engine) runTimers() int {
	if len(e.timers) == 0 {
		return 0 // without a read of the clock
	}
	now := e.Now()
	n := 0
	end := e.timerSeq
	for len(e.timers) > 0 && e.timers[0].at <= now && e.timers[0].seq < end {
		t := heap.Pop(&e.timers).(*Timer)
		t.fn()
		n++
	}
	e.events += uint64(n)
	return n
}

type timerHeap []*Timer

func (h timerHeap) Len() int { return len(h) }
func (h timerHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *timerHeap) Push(x any) {
	t := x.(*Timer)
	t.index = len(*h)
	*h = append(*h, t)
}
func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.index = -1
	return t
}
