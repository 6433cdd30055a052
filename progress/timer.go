package progress

import (
	"container/heap"
	"math"
)

// Timer is a function to be run, from a turn of the engine, at a time.
type Timer struct {
	at    int64
	seq   uint64 // timers of the same time run in the order in which they were made
	fn    func()
	index int // in the heap, -1 when not waiting
}

// After runs fn with the lock held, from one of the first eight turns that come nanos
// nanoseconds from now or later. Lock held.
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
		e.Nudge() // a driver may sleep only until the first timer
	}
	return t
}

// StopTimer takes a timer back; it reports false if that had run or was stopped. Lock held.
func (e *Engine) StopTimer(t *Timer) bool {
	if t.index < 0 {
		return false
	}
	heap.Remove(&e.timers, t.index)
	return true
}

// runTimers runs what is due. What its functions start anew waits for a later turn, so
// that a timer that starts itself again does not hold up the rest.
func (e *Engine) runTimers(now int64) int {
	n := 0
	end := e.timerSeq
	for len(e.timers) > 0 && e.timers[0].at <= now && e.timers[0].seq < end {
		t := heap.Pop(&e.timers).(*Timer)
		t.fn()
		n++
	}
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
