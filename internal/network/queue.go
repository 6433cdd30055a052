package network

import "container/heap"

// Queue is a Clock that runs events when its owner calls Run. Its zero value begins at 0.
type Queue struct {
	now    int64
	events eventHeap
	number uint64
}

// Now implements Clock.
func (q *Queue) Now() int64 { return q.now }

// After implements Clock.
func (q *Queue) After(nanos int64, run func()) {
	q.number++
	heap.Push(&q.events, event{q.now + max(nanos, 0), q.number, run})
}

// Run runs the events up to the time until, or until isDone. Afterwards Now is the time of the last
// event, or until.
func (q *Queue) Run(until int64, isDone func() bool) {
	for !isDone() {
		if len(q.events) == 0 || q.events[0].at > until {
			q.now = max(q.now, until)
			return
		}
		e := heap.Pop(&q.events).(event)
		q.now = e.at
		e.run()
	}
}

type event struct {
	at     int64
	number uint64 // events of the same time keep their order
	run    func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }

func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].number < h[j].number
}

func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *eventHeap) Push(x any) { *h = append(*h, x.(event)) }

func (h *eventHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last].run = nil
	*h = (*h)[:last]
	return e
}
