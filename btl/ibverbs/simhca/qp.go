package simhca

import (
	"slices"
	"syscall"
	"time"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// firstQPN is the first queue pair number. Numbers 0 and 1 belong to subnet management. A free
// number is reused at once, sooner than in real devices, so tests meet packets of its previous
// owner.
const firstQPN = 0x40

// queuePair is a queue pair, with a requester (requester.go, ack.go) and a responder (responder.go,
// responderqueue.go).
type queuePair struct {
	f         *Fabric
	dev       *context
	hca       *HCA
	d         *domain
	num       uint32
	service   verbs.Services
	cap       verbs.QPCap
	signalAll bool
	sendCQ    *completionQueue
	recvCQ    *completionQueue
	srq       *sharedQueue

	attr      verbs.QPAttr
	gen       uint32 // counts resets
	fatal     bool   // after QP_FATAL
	destroyed bool
	unacked   int // events

	sq   sendQueue
	rq   recvQueue
	req  requester
	resp responder

	ackTimer  event
	rnrTimer  event
	lateTimer event
	lastTimer event // of endReceives, with DeviceConfig.LastWQEDelay
	last      cqe   // of the last message, while lastTimer runs
	hasLast   bool
	late      []lateCompletion // delayed by FaultLateCompletion

	lastArrival time.Duration // latest arrival time of a packet that it sent
}

// recvQueue is the receive queue of a queue pair, with freed ≤ taken ≤ posted. An entry becomes
// free when its completion is polled.
type recvQueue struct {
	ring   []verbs.RecvWR
	freed  uint64
	taken  uint64
	posted uint64
}

func (r *recvQueue) at(i uint64) *verbs.RecvWR { return &r.ring[i&uint64(len(r.ring)-1)] }

func (d *domain) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	c := d.c
	defer c.f.enter().leave()
	const call = "ibv_create_qp"
	if d.dead() {
		return nil, goneError(call)
	}
	q := &queuePair{f: c.f, dev: c, hca: c.hca, d: d, service: init.Service, signalAll: init.SignalAll}
	var okSend, okRecv bool
	q.sendCQ, okSend = init.SendCQ.(*completionQueue)
	q.recvCQ, okRecv = init.RecvCQ.(*completionQueue)
	if !okSend || !okRecv || q.sendCQ.c != c || q.recvCQ.c != c || q.sendCQ.gone || q.recvCQ.gone {
		return nil, invalid(call, "the completion queue does not belong to this device")
	}
	if init.SRQ != nil {
		s, ok := init.SRQ.(*sharedQueue)
		if !ok || s.d.c != c || s.gone {
			return nil, invalid(call, "the shared receive queue does not belong to this device")
		}
		if s.d != d {
			return nil, invalid(call, "the shared receive queue belongs to another protection domain")
		}
		q.srq = s
	}
	if q.service != verbs.ServiceRC && q.service != verbs.ServiceUC && q.service != verbs.ServiceUD {
		return nil, invalid(call, "unknown service")
	}
	if q.service == verbs.ServiceUD && c.hca.cfg.NoDatagrams {
		return nil, verbs.NewCallError(call, syscall.EOPNOTSUPP, "the device does not support UD")
	}
	if c.hca.used() >= c.hca.cfg.MaxQP {
		return nil, noMemory(call, "too many queue pairs")
	}
	if err := q.grant(call, init.Cap); err != nil {
		return nil, err
	}
	c.hca.number(q)
	q.ackTimer = event{kind: evAck, qp: q}
	q.rnrTimer = event{kind: evRNR, qp: q}
	q.lateTimer = event{kind: evLate, qp: q}
	q.lastTimer = event{kind: evLastWQE, qp: q}
	q.clear()
	q.sendCQ.qps = append(q.sendCQ.qps, q)
	if q.recvCQ != q.sendCQ {
		q.recvCQ.qps = append(q.recvCQ.qps, q)
	}
	if q.srq != nil {
		q.srq.qps = append(q.srq.qps, q)
	}
	d.objects++
	if q.sendCQ.broken || q.recvCQ.broken || q.srq != nil && q.srq.broken {
		q.fail() // like the queue pairs that already exist
	}
	return q, nil
}

// grant allocates the queues with at least the requested capacities.
func (q *queuePair) grant(call string, ask verbs.QPCap) error {
	g := &q.hca.cfg
	if q.srq != nil {
		ask.MaxRecvWR, ask.MaxRecvSGE = 0, 0
	}
	switch {
	case min(ask.MaxSendWR, ask.MaxRecvWR) < 0, max(ask.MaxSendWR, ask.MaxRecvWR) > g.MaxQPWR:
		return invalid(call, "the device does not support that many work requests")
	case min(ask.MaxSendSGE, ask.MaxRecvSGE) < 0, max(ask.MaxSendSGE, ask.MaxRecvSGE) > verbs.MaxSGE:
		return invalid(call, "the device does not support that many scatter/gather elements")
	case ask.MaxInlineData < 0 || ask.MaxInlineData > g.MaxInline:
		return invalid(call, "the device does not support that much inline data")
	}
	q.cap = ask
	q.cap.MaxInlineData = min((ask.MaxInlineData+g.InlineUnit-1)/g.InlineUnit*g.InlineUnit, g.MaxInline)
	q.cap.MaxSendSGE = max(ask.MaxSendSGE, 1)
	if ask.MaxSendWR > 0 {
		q.cap.MaxSendWR = min(powerOfTwo(ask.MaxSendWR), g.MaxQPWR)
		q.sq.ring, q.sq.size = make([]sendEntry, powerOfTwo(q.cap.MaxSendWR)), uint64(q.cap.MaxSendWR)
	}
	if ask.MaxRecvWR > 0 {
		q.cap.MaxRecvWR = min(powerOfTwo(ask.MaxRecvWR), g.MaxQPWR)
		q.cap.MaxRecvSGE = max(ask.MaxRecvSGE, 1)
		q.rq.ring = make([]verbs.RecvWR, powerOfTwo(q.cap.MaxRecvWR))
	}
	return nil
}

// number assigns a number to the queue pair.
func (h *HCA) number(q *queuePair) {
	if n := len(h.freeQPN); n > 0 {
		q.num = h.freeQPN[n-1]
		h.freeQPN = h.freeQPN[:n-1]
		h.qps[q.num-firstQPN] = q
		return
	}
	q.num = firstQPN + uint32(len(h.qps))
	h.qps = append(h.qps, q)
}

// used returns the number of queue pairs.
func (h *HCA) used() int { return len(h.qps) - len(h.freeQPN) }

func (h *HCA) lookupQP(num uint32) *queuePair {
	if i := num - firstQPN; num >= firstQPN && i < uint32(len(h.qps)) {
		return h.qps[i]
	}
	return nil
}

func (q *queuePair) Num() uint32             { return q.num }
func (q *queuePair) Service() verbs.Services { return q.service }
func (q *queuePair) Cap() verbs.QPCap        { return q.cap }

// port returns the port of the queue pair, which Modify sets on the way to INIT.
func (q *queuePair) port() *port { return q.hca.ports[max(q.attr.Port, 1)-1] }

func (q *queuePair) mtu() int { return q.attr.PathMTU.Bytes() }

func (q *queuePair) dead() bool { return q.destroyed || q.dev.dead() }

func (q *queuePair) Query() (verbs.QPAttr, error) {
	defer q.f.enter().leave()
	if q.dead() {
		return verbs.QPAttr{}, goneError("ibv_query_qp")
	}
	a := q.attr
	a.CurState, a.Cap = a.State, q.cap
	a.SQDraining = a.State == verbs.StateSQD && !q.drained()
	return a, nil
}

// clear moves the queue pair to RESET and drops its requests (Queue pair states, 5.2).
func (q *queuePair) clear() {
	q.gen++
	q.attr = verbs.QPAttr{State: verbs.StateReset}
	q.stopTimers()
	q.f.events.cancel(&q.lateTimer)
	q.late = nil
	if q.hasLast && q.last.srq != nil {
		q.last.srq.inUse--
	}
	q.hasLast = false
	q.sq.reset()
	q.rq.freed, q.rq.taken, q.rq.posted = 0, 0, 0
	q.req = requester{}
	if q.resp.hasCur && q.srq != nil {
		q.srq.inUse--
	}
	q.resp.reset()
}

func (q *queuePair) stopTimers() {
	q.f.events.cancel(&q.ackTimer)
	q.f.events.cancel(&q.rnrTimer)
	q.f.events.cancel(&q.lastTimer)
}

// Destroy implements verbs.QP.
func (q *queuePair) Destroy() error {
	c := q.dev
	defer c.f.enter().leave()
	if q.destroyed {
		return goneError("ibv_destroy_qp")
	}
	if q.unacked > 0 {
		return busy("ibv_destroy_qp")
	}
	q.destroyed = true
	q.clear()
	mine := func(o *queuePair) bool { return o == q }
	q.sendCQ.purge(q)
	q.sendCQ.qps = slices.DeleteFunc(q.sendCQ.qps, mine)
	q.recvCQ.purge(q)
	q.recvCQ.qps = slices.DeleteFunc(q.recvCQ.qps, mine)
	if q.srq != nil {
		q.srq.qps = slices.DeleteFunc(q.srq.qps, mine)
	}
	q.hca.qps[q.num-firstQPN] = nil
	q.hca.freeQPN = append(q.hca.freeQPN, q.num)
	q.d.objects--
	c.dropEvents(func(ev verbs.AsyncEvent) bool { return ev.QP == verbs.QP(q) })
	q.f.replayStale(q, true)
	return nil
}
