package simhca

import (
	"slices"
	"time"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// FaultKind is a kind of injected fault.
type FaultKind uint8

const (
	// FaultSendStatus: a send request completes with Status and the peer does not execute it.
	// Status StatusSuccess has no effect.
	FaultSendStatus FaultKind = iota
	// FaultSendStatusExecuted: like FaultSendStatus, but the peer executes the request.
	FaultSendStatusExecuted
	// FaultRecvStatus: a receive that a message would complete completes with Status. The peer's RC
	// request completes with REM_INV_REQ_ERR for LOC_LEN_ERR, with REM_ACCESS_ERR for
	// LOC_ACCESS_ERR and otherwise with REM_OP_ERR. It succeeds if Status does not change the state
	// of the queue pair.
	FaultRecvStatus
	// FaultAckLost: the peer executes a request, but the responses to it and to later requests are
	// lost. The request fails with RETRY_EXC_ERR after its retries.
	FaultAckLost
	// FaultResponseLost: a response to the queue pair is lost. The requester repeats the request
	// and gets another response.
	FaultResponseLost
	// FaultPacketLost: the first packet of a request is lost in Count tries. The request fails with
	// RETRY_EXC_ERR if Count exceeds the retry count.
	FaultPacketLost
	// FaultLateCompletion: the completion of a request, if it has one, enters its queue only after
	// Delay. The completions of later requests wait behind it.
	FaultLateCompletion
	// FaultSilence: a request and all later ones of the queue pair are not sent and do not
	// complete, without any event, until the queue pair enters ERR.
	FaultSilence
	// FaultStale: copies of a request's packets are delivered again after their destination queue
	// pair was destroyed or reset, and once more when a queue pair with its number enters RTR.
	FaultStale
	// FaultMistake: the responder QPN refuses a request as if it had the Mistake (verbs.Refusals).
	FaultMistake
)

var faultNames = [...]string{"SendStatus", "SendStatusExecuted", "RecvStatus", "AckLost", "ResponseLost", "PacketLost", "LateCompletion", "Silence", "Stale", "Mistake"}

func (k FaultKind) String() string { return faultNames[k] }

// Fault is a fault to inject.
type Fault struct {
	Kind FaultKind
	// Queue pair of the request, receive or responder; 0: any RC queue pair of the device, or with
	// Datagrams any UD queue pair.
	QPN       uint32
	Datagrams bool
	After     int // number of requests, receives or responses to spare first
	Count     int // number of times the fault strikes; 0: once
	Status    verbs.Status
	Delay     time.Duration
	Mistake   verbs.Mistake
}

// concerns reports whether the fault may strike a queue pair.
func (f *Fault) concerns(q *queuePair) bool {
	if f.QPN != 0 {
		return f.QPN == q.num
	}
	if f.Datagrams {
		return q.service == verbs.ServiceUD
	}
	return q.service == verbs.ServiceRC
}

// rule is an injected fault that has not struck Count times.
type rule struct {
	Fault
	left int // remaining strikes
}

type faultKinds uint16

const (
	receiverFaults  faultKinds = 1 << FaultRecvStatus
	responderFaults faultKinds = 1 << FaultMistake
	responseFaults  faultKinds = 1 << FaultResponseLost
	requesterFaults            = ^(receiverFaults | responderFaults | responseFaults)
)

// Inject adds a fault. If several faults match, the oldest strikes.
func (h *HCA) Inject(f Fault) {
	defer h.f.enter().leave()
	r := &rule{Fault: f, left: max(f.Count, 1)}
	if f.Kind == FaultPacketLost {
		r.left = 1 // Count is the number of tries of a single request
		r.Count = max(f.Count, 1)
	}
	h.faults = append(h.faults, r)
}

// Fired returns how many times faults struck the device.
func (h *HCA) Fired() int {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	return h.fired
}

// fault returns the fault of these kinds that strikes the queue pair now, or nil.
func (q *queuePair) fault(kinds faultKinds) *Fault {
	if len(q.hca.faults) == 0 {
		return nil
	}
	return q.matchFault(kinds)
}

func (q *queuePair) matchFault(kinds faultKinds) *Fault {
	h := q.hca
	for i, r := range h.faults {
		if kinds&(1<<r.Kind) == 0 || !r.concerns(q) {
			continue
		}
		if r.After > 0 {
			r.After--
			continue
		}
		h.fired++
		if r.left--; r.left == 0 {
			h.faults = slices.Delete(h.faults, i, i+1)
		}
		if h.f.cfg.Trace != nil {
			h.f.tracef("%s/%06x fault %v strikes", h.name, q.num, r.Kind)
		}
		return &r.Fault
	}
	return nil
}

// injectSendFault applies faults to a request that is about to be sent. It reports false if the
// request must not be sent.
func (q *queuePair) injectSendFault(e *sendEntry) bool {
	f := q.fault(requesterFaults)
	if f == nil {
		return true
	}
	switch f.Kind {
	case FaultSendStatus:
		if f.Status != verbs.StatusSuccess {
			e.failed, e.failure = true, f.Status
			return false
		}
	case FaultSendStatusExecuted:
		e.endsAs = f.Status
	case FaultAckLost:
		e.acksLost, q.req.acksLost = true, true
	case FaultPacketLost:
		e.lose = f.Count
	case FaultLateCompletion:
		e.late = f.Delay
	case FaultSilence:
		q.req.silent = true
		return false
	case FaultStale:
		e.keepStale = true
	}
	return true
}

// injectedMistake returns the mistake that FaultMistake gives to a request. It strikes at the first
// packet of a send and at the last packet of a write, which shows whether the write has immediate
// data.
func (q *queuePair) injectedMistake(p *packet, op verbs.Operation) (verbs.Mistake, bool) {
	if len(q.hca.faults) == 0 || !p.first && op == verbs.OpSend || !p.last && op != verbs.OpSend {
		return 0, false
	}
	f := q.fault(responderFaults)
	if f == nil {
		return 0, false
	}
	return f.Mistake, true
}

// keepStale keeps a copy of a packet for FaultStale.
func (f *Fabric) keepStale(p *packet) { f.stale = append(f.stale, p.clone()) }

// replayStale delivers the kept packets for a queue pair again: first when the queue pair is gone,
// and a second and last time when another queue pair with its number is ready to receive.
func (f *Fabric) replayStale(q *queuePair, gone bool) {
	if len(f.stale) == 0 {
		return
	}
	var due []*packet
	f.stale = slices.DeleteFunc(f.stale, func(p *packet) bool {
		to := f.route(p)
		if to == nil || to.hca != q.hca || p.qpn != q.num || p.replayed == gone {
			return false
		}
		c := p.clone()
		due = append(due, c)
		p.replayed = true
		return !gone
	})
	at := f.now() + f.cfg.Latency
	for _, p := range due {
		if f.cfg.Trace != nil {
			f.tracef("replays %v to %06x psn %06x", p.kind, p.qpn, p.psn)
		}
		if f.cfg.Latency == 0 && f.cfg.Jitter == 0 {
			f.ready = append(f.ready, p)
		} else {
			f.events.schedule(&p.event, at)
		}
	}
}
