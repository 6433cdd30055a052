package simhca

import "time"

type eventKind uint8

const (
	evPacket eventKind = iota // a packet arrives
	evAck                     // a requester has waited long enough for an answer
	evRNR                     // a requester has waited as an RNR NAK asked
	evLate                    // a completion that was held back is put into its queue
)

// event is something that is to happen. It lies in what it is about, so that planning one allocates nothing.
type event struct {
	at   time.Duration
	seq  uint64
	slot int // in the agenda, counted from 1; 0: not in it
	kind eventKind
	qp   *queuePair
	pkt  *packet
}

// agenda is what is to happen, as a heap: the earliest first, and of one time the one that was planned first. What is called
// off leaves it, for otherwise virtual time would move for nothing.
type agenda struct {
	heap []*event
	seq  uint64
}

func (a *agenda) first() *event {
	if len(a.heap) == 0 {
		return nil
	}
	return a.heap[0]
}

func (a *agenda) plan(e *event, at time.Duration) {
	a.cancel(e)
	a.seq++
	e.at, e.seq = at, a.seq
	a.heap = append(a.heap, e)
	e.slot = len(a.heap)
	a.up(e.slot - 1)
}

func (a *agenda) cancel(e *event) {
	if e.slot == 0 {
		return
	}
	i, last := e.slot-1, len(a.heap)-1
	a.swap(i, last)
	a.heap[last] = nil
	a.heap = a.heap[:last]
	e.slot = 0
	if i < last {
		a.down(i)
		a.up(i)
	}
}

func (a *agenda) clear() {
	for i, e := range a.heap {
		e.slot = 0
		a.heap[i] = nil
	}
	a.heap = a.heap[:0]
}

func (a *agenda) less(i, j int) bool {
	x, y := a.heap[i], a.heap[j]
	return x.at < y.at || x.at == y.at && x.seq < y.seq
}

func (a *agenda) swap(i, j int) {
	h := a.heap
	h[i], h[j] = h[j], h[i]
	h[i].slot, h[j].slot = i+1, j+1
}

func (a *agenda) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !a.less(i, parent) {
			return
		}
		a.swap(i, parent)
		i = parent
	}
}

func (a *agenda) down(i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(a.heap); c++ {
			if a.less(c, least) {
				least = c
			}
		}
		if least == i {
			return
		}
		a.swap(i, least)
		i = least
	}
}
