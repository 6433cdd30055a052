package simhca

import "time"

type eventKind uint8

const (
	evPacket  eventKind = iota // a packet arrives
	evAck                      // a requester's acknowledgment timeout expires
	evRNR                      // the delay that an RNR NAK requested is over
	evLate                     // a delayed completion enters its queue
	evLookup                   // a path is resolved
	evLastWQE                  // a queue pair in ERR ends its receives
)

// event is a future event. It is embedded in the packet, queue pair or lookup that it concerns, so
// scheduling allocates nothing.
type event struct {
	at   time.Duration
	seq  uint64
	slot int // index in the heap plus 1; 0: not scheduled
	kind eventKind
	qp   *queuePair
	pkt  *packet
	path *lookup
}

// eventQueue is a heap of events in order of time, and of scheduling at equal times. A canceled
// event leaves the heap; otherwise it would advance virtual time.
type eventQueue struct {
	heap []*event
	seq  uint64
}

func (q *eventQueue) first() *event {
	if len(q.heap) == 0 {
		return nil
	}
	return q.heap[0]
}

func (q *eventQueue) schedule(e *event, at time.Duration) {
	q.cancel(e)
	q.seq++
	e.at, e.seq = at, q.seq
	q.heap = append(q.heap, e)
	e.slot = len(q.heap)
	q.up(e.slot - 1)
}

func (q *eventQueue) cancel(e *event) {
	if e.slot == 0 {
		return
	}
	i, last := e.slot-1, len(q.heap)-1
	q.swap(i, last)
	q.heap[last] = nil
	q.heap = q.heap[:last]
	e.slot = 0
	if i < last {
		q.down(i)
		q.up(i)
	}
}

func (q *eventQueue) clear() {
	for i, e := range q.heap {
		e.slot = 0
		q.heap[i] = nil
	}
	q.heap = q.heap[:0]
}

func (q *eventQueue) less(i, j int) bool {
	x, y := q.heap[i], q.heap[j]
	return x.at < y.at || x.at == y.at && x.seq < y.seq
}

func (q *eventQueue) swap(i, j int) {
	h := q.heap
	h[i], h[j] = h[j], h[i]
	h[i].slot, h[j].slot = i+1, j+1
}

func (q *eventQueue) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !q.less(i, parent) {
			return
		}
		q.swap(i, parent)
		i = parent
	}
}

func (q *eventQueue) down(i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(q.heap); c++ {
			if q.less(c, least) {
				least = c
			}
		}
		if least == i {
			return
		}
		q.swap(i, least)
		i = least
	}
}
