package simhca

import (
	"slices"
	"time"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// FaultKind is what goes wrong.
type FaultKind uint8

const (
	// FaultSendStatus: a send request ends with Status and is not executed by the peer. (StatusSuccess: nothing goes wrong.)
	FaultSendStatus FaultKind = iota
	// FaultSendStatusExecuted: likewise, but the peer has executed it.
	FaultSendStatusExecuted
	// FaultRecvStatus: a receive that a message would complete ends with Status. The peer's request ends as that status has it
	// for RC (REM_INV_REQ_ERR for LOC_LEN_ERR, REM_ACCESS_ERR for LOC_ACCESS_ERR, else REM_OP_ERR), or well if the
	// status leaves the queue pair as it is.
	FaultRecvStatus
	// FaultAckLost: a request is executed, and no answer to it or to a later one is heard: RETRY_EXC_ERR after the retries.
	FaultAckLost
	// FaultAnswerLost: an answer that comes to the queue pair is lost. The request was executed; it is sent again, and answered then.
	FaultAnswerLost
	// FaultPacketLost: Count tries to send one request lose its first packet. More than the retry count: RETRY_EXC_ERR.
	FaultPacketLost
	// FaultLate: a request's completion, if it has one, gets into its queue only after Delay, and with it those of later requests.
	FaultLate
	// FaultSilence: a request and all after it on the queue pair are not sent and do not complete, and nothing is told, until the
	// queue pair goes to Error.
	FaultSilence
	// FaultStale: copies of a request's packets are delivered once more when the queue pair that they are for was destroyed or reset,
	// and again when one of that number becomes ready to receive.
	FaultStale
	// FaultMistake: the responder QPN takes a request for one with that Mistake (verbs.Refusals).
	FaultMistake
)

var faultNames = [...]string{"SendStatus", "SendStatusExecuted", "RecvStatus", "AckLost", "AnswerLost", "PacketLost", "Late", "Silence", "Stale", "Mistake"}

func (k FaultKind) String() string { return faultNames[k] }

// Fault is something to go wrong, once or Count times.
type Fault struct {
	Kind    FaultKind
	QPN     uint32 // of the queue pair whose request, receive or responder it is; 0: of any RC queue pair of the device
	After   int    // so many are spared first
	Count   int    // 0 stands for 1
	Status  verbs.Status
	Delay   time.Duration
	Mistake verbs.Mistake
}

// rule is a fault that is still to strike.
type rule struct {
	Fault
	left int
}

type faultKinds uint16

const (
	faultsOfReceiver  faultKinds = 1 << FaultRecvStatus
	faultsOfResponder faultKinds = 1 << FaultMistake
	faultsOfAnswers   faultKinds = 1 << FaultAnswerLost
	faultsOfRequester            = ^(faultsOfReceiver | faultsOfResponder | faultsOfAnswers)
)

// Inject adds a fault. Of several that fit, the oldest strikes.
func (h *HCA) Inject(f Fault) {
	h.f.enter()
	defer h.f.leave()
	r := &rule{Fault: f, left: max(f.Count, 1)}
	if f.Kind == FaultPacketLost {
		r.left = 1 // the count is of tries
		r.Count = max(f.Count, 1)
	}
	h.faults = append(h.faults, r)
}

// Fired is how many times faults struck on the device.
func (h *HCA) Fired() int {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	return h.fired
}

// ClearFaults takes back what has not struck yet.
func (h *HCA) ClearFaults() {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	h.faults = nil
}

// strike finds the fault that is to strike a queue pair now.
func (q *queuePair) strike(kinds faultKinds) *Fault {
	if len(q.hca.faults) == 0 {
		return nil
	}
	return q.strikeAny(kinds)
}

func (q *queuePair) strikeAny(kinds faultKinds) *Fault {
	h := q.hca
	for i, r := range h.faults {
		if kinds&(1<<r.Kind) == 0 || r.QPN != q.num && (r.QPN != 0 || q.service != verbs.ServiceRC) {
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
			h.f.tracef("%s/%06x is struck by %v", h.name, q.num, r.Kind)
		}
		return &r.Fault
	}
	return nil
}

// strikeSend marks a request that is about to be sent. It reports false if it is not to be.
func (q *queuePair) strikeSend(e *sendEntry) bool {
	f := q.strike(faultsOfRequester)
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
		e.deaf, q.req.deaf = true, true
	case FaultPacketLost:
		e.lose = f.Count
	case FaultLate:
		e.late = f.Delay
	case FaultSilence:
		q.req.silent = true
		return false
	case FaultStale:
		e.haunted = true
	}
	return true
}

// strikeMistake has the responder take the first packet of a request for a mistaken one; for writes the last one, of which it is known
// whether it has immediate data.
func (q *queuePair) strikeMistake(p *packet, op verbs.Operation) (verbs.Mistake, bool) {
	if len(q.hca.faults) == 0 || !p.first && op == verbs.OpSend || !p.last && op != verbs.OpSend {
		return 0, false
	}
	f := q.strike(faultsOfResponder)
	if f == nil {
		return 0, false
	}
	return f.Mistake, true
}

// keep remembers a packet for FaultStale.
func (f *Fabric) keep(p *packet) { f.stale = append(f.stale, p.copyOf()) }

// haunt delivers the kept packets of requests that were for a queue pair: one that is gone now, and once more, the last time, one that
// got its number.
func (f *Fabric) haunt(q *queuePair, gone bool) {
	if len(f.stale) == 0 {
		return
	}
	var due []*packet
	f.stale = slices.DeleteFunc(f.stale, func(p *packet) bool {
		to := f.route(p)
		if to == nil || to.hca != q.hca || p.qpn != q.num || p.again == gone {
			return false
		}
		c := p.copyOf()
		due = append(due, c)
		p.again = true
		return !gone
	})
	at := f.now() + f.cfg.Latency
	for _, p := range due {
		if f.cfg.Trace != nil {
			f.tracef("delivers once more %v to %06x psn %06x", p.kind, p.qpn, p.psn)
		}
		if f.cfg.Latency == 0 && f.cfg.Jitter == 0 {
			f.ready = append(f.ready, p)
		} else {
			f.agenda.plan(&p.event, at)
		}
	}
}
