package simhca

import (
	"math/bits"
	"slices"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// cqe is an entry of a completion queue: the completion and the work queue entry that polling it
// frees.
type cqe struct {
	wc    verbs.WC
	qp    *queuePair
	srq   *sharedQueue // of a receive from a shared receive queue
	index uint64       // index of the request in its work queue
	send  bool
}

type arming uint8

const (
	disarmed arming = iota
	armedSolicited
	armedAny
)

type completionQueue struct {
	c       *context
	channel *compChannel
	entries int   // how many completions it holds
	ring    []cqe // grows up to entries: most queues never hold many, and a simulation makes many
	head    uint64
	tail    uint64
	armed   arming
	qps     []*queuePair // in the order of creation
	broken  bool
	gone    bool

	unacked      int // events of the channel
	unackedAsync int // asynchronous events
}

// powerOfTwo rounds a size up to a power of two, as devices do.
func powerOfTwo(n int) int { return 1 << bits.Len(uint(max(n, 1)-1)) }

func (c *context) CreateCQ(entries int, channel verbs.CompChannel) (verbs.CQ, error) {
	defer c.f.enter().leave()
	const call = "ibv_create_cq"
	if c.dead() {
		return nil, goneError(call)
	}
	if entries < 1 || entries > c.hca.cfg.MaxCQE {
		return nil, invalid(call, "number of entries out of range")
	}
	var ch *compChannel
	if channel != nil {
		var ok bool
		if ch, ok = channel.(*compChannel); !ok || ch.c != c || ch.gone {
			return nil, invalid(call, "the completion channel belongs to another device")
		}
	}
	q := &completionQueue{c: c, channel: ch, entries: powerOfTwo(entries), ring: make([]cqe, 1)}
	c.cqs++
	if ch != nil {
		ch.cqs++
	}
	return q, nil
}

func (q *completionQueue) Entries() int { return q.entries }

func (q *completionQueue) at(i uint64) *cqe { return &q.ring[i&uint64(len(q.ring)-1)] }

// reserve returns the next free entry, or nil if the queue overruns or has failed.
func (q *completionQueue) reserve() *cqe {
	if q.broken {
		return nil
	}
	if q.tail-q.head == uint64(q.entries) {
		q.fail()
		return nil
	}
	if q.tail-q.head == uint64(len(q.ring)) {
		bigger := make([]cqe, 2*len(q.ring))
		for i := q.head; i < q.tail; i++ {
			bigger[i&uint64(len(bigger)-1)] = *q.at(i)
		}
		q.ring = bigger
	}
	e := q.at(q.tail)
	q.tail++
	return e
}

// notify raises an event on the channel if the queue is armed. A failed completion counts as
// solicited.
func (q *completionQueue) notify(solicited bool) {
	if q.armed == disarmed || q.armed == armedSolicited && !solicited {
		return
	}
	q.armed = disarmed
	if ch := q.channel; ch != nil {
		ch.events = append(ch.events, q)
		q.c.f.deferCall(ch.notify)
	}
}

// fail raises CQ_ERR. The queue accepts and returns no more completions, and its queue pairs fail,
// too (InfiniBand error model, 3.1.2).
func (q *completionQueue) fail() {
	if q.broken {
		return
	}
	q.broken = true
	q.c.raise(verbs.AsyncEvent{Type: verbs.EventCQErr, CQ: q})
	for _, p := range q.qps {
		p.fail()
	}
}

func (q *completionQueue) Poll(wcs []verbs.WC) (int, error) {
	f := q.c.f
	defer f.enter().leave()
	if q.gone || q.broken || q.c.dead() {
		return 0, goneError("ibv_poll_cq")
	}
	n := 0
	for n < len(wcs) && q.head < q.tail {
		e := q.at(q.head)
		q.head++
		wcs[n] = e.wc
		n++
		e.release()
	}
	return n, nil
}

// release frees the entry of the work queue; in a send queue also the entries of the unsignaled
// requests before it.
func (e *cqe) release() {
	switch {
	case e.send:
		e.qp.sq.freed = max(e.qp.sq.freed, e.index+1)
	case e.srq != nil:
		e.srq.inUse--
	default:
		e.qp.rq.freed = max(e.qp.rq.freed, e.index+1)
	}
	*e = cqe{}
}

// takeBack removes the newest completion, if it is of a message to queue pair p.
func (q *completionQueue) takeBack(p *queuePair) (c cqe, ok bool) {
	if q.broken || q.head == q.tail {
		return cqe{}, false
	}
	e := q.at(q.tail - 1)
	if e.qp != p || e.send || e.wc.Status != verbs.StatusSuccess {
		return cqe{}, false
	}
	q.tail--
	c, *e = *e, cqe{}
	return c, true
}

// purge removes the completions of queue pair p from the queue (Queue pair states, 5.2).
func (q *completionQueue) purge(p *queuePair) {
	to := q.head
	for i := q.head; i < q.tail; i++ {
		e := q.at(i)
		if e.qp == p {
			if e.srq != nil {
				e.srq.inUse--
			}
			continue
		}
		*q.at(to) = *e
		to++
	}
	for i := to; i < q.tail; i++ {
		*q.at(i) = cqe{}
	}
	q.tail = to
}

func (q *completionQueue) ReqNotify(solicitedOnly bool) error {
	defer q.c.f.enter().leave()
	switch {
	case q.gone || q.broken || q.c.dead():
		return goneError("ibv_req_notify_cq")
	case !solicitedOnly:
		q.armed = armedAny
	case q.armed == disarmed:
		q.armed = armedSolicited
	}
	return nil
}

func (q *completionQueue) AckEvents(n int) {
	defer q.c.f.enter().leave()
	q.unacked = max(q.unacked-n, 0)
}

func (q *completionQueue) Destroy() error {
	c := q.c
	defer c.f.enter().leave()
	if q.gone {
		return goneError("ibv_destroy_cq")
	}
	if len(q.qps) > 0 || q.unacked > 0 || q.unackedAsync > 0 {
		return busy("ibv_destroy_cq")
	}
	q.gone = true
	c.cqs--
	if ch := q.channel; ch != nil {
		ch.cqs--
		ch.events = slices.DeleteFunc(ch.events, func(o *completionQueue) bool { return o == q })
	}
	c.dropEvents(func(ev verbs.AsyncEvent) bool { return ev.CQ == verbs.CQ(q) })
	return nil
}

// compChannel is a completion channel.
type compChannel struct {
	c      *context
	events []*completionQueue
	notify func()
	cqs    int
	gone   bool
}

func (c *context) CreateCompChannel() (verbs.CompChannel, error) {
	defer c.f.enter().leave()
	if c.dead() {
		return nil, goneError("ibv_create_comp_channel")
	}
	c.channels++
	return &compChannel{c: c}, nil
}

func (ch *compChannel) NextEvent() (verbs.CQ, bool, error) {
	defer ch.c.f.enter().leave()
	if ch.gone || ch.c.dead() {
		return nil, false, goneError("ibv_get_cq_event")
	}
	if len(ch.events) == 0 {
		return nil, false, nil
	}
	q := ch.events[0]
	ch.events = slices.Delete(ch.events, 0, 1)
	q.unacked++
	return q, true, nil
}

func (ch *compChannel) Notify(fn func()) {
	defer ch.c.f.enter().leave()
	ch.notify = fn
	if len(ch.events) > 0 {
		ch.c.f.deferCall(fn)
	}
}

func (ch *compChannel) Destroy() error {
	defer ch.c.f.enter().leave()
	if ch.gone {
		return goneError("ibv_destroy_comp_channel")
	}
	if ch.cqs > 0 {
		return busy("ibv_destroy_comp_channel")
	}
	ch.gone, ch.notify = true, nil
	ch.c.channels--
	return nil
}
