package simhca

import "github.com/mpigo/mpigo/btl/ibverbs/verbs"

const (
	// window is the largest number of unacknowledged packets of an RC queue pair.
	window = 64
	// burst is the number of packets that a queue pair sends without waiting for acknowledgments
	// before other queue pairs get a turn.
	burst = 64
	// ackEvery is the distance in packets between acknowledgment requests within a message.
	ackEvery = 16
	// maxSpan limits the outstanding sequence numbers to less than half of all. Otherwise old
	// numbers would look like new ones.
	maxSpan = 1 << 22
)

// requester is the state of a queue pair's outstanding requests. The requests sq.una to next-1 have
// begun; the request next may have begun.
type requester struct {
	next       uint64 // the request to send next
	nextPacket uint32 // the packet of next to send next
	psn        uint32 // first sequence number of the next request to begin
	unaPSN     uint32 // oldest unacknowledged sequence number
	fetches    int    // outstanding reads and atomics
	fetchSpan  int32  // their number of sequence numbers
	retries    uint8  // left
	rnrRetries uint8  // left
	waiting    bool   // for the delay that an RNR NAK requested
	rewound    bool   // repeated packets because of a gap and made no progress since
	silent     bool   // FaultSilence
	acksLost   bool   // FaultAckLost struck a request

	notifyDrained bool
	continues     bool // pkContinue is on the network
}

func (r *requester) begin(a *verbs.QPAttr) {
	r.psn, r.unaPSN = a.SQPSN, a.SQPSN
	r.retries, r.rnrRetries = a.RetryCnt, a.RNRRetry
}

// transmit sends all packets that the queue pair may send now.
func (q *queuePair) transmit() {
	r, s := &q.req, &q.sq
	for sent := 0; !r.waiting && !r.silent && r.next < s.posted && !r.continues; {
		if q.attr.State != verbs.StateRTS && q.attr.State != verbs.StateSQD {
			return
		}
		e := s.at(r.next)
		if e.failed {
			break
		}
		if !e.begun && (q.attr.State == verbs.StateSQD || !q.beginRequest(e)) {
			break
		}
		if q.service == verbs.ServiceRC {
			if psnDiff(e.psn+r.nextPacket, r.unaPSN)-r.fetchSpan >= window && !e.isFetch() {
				break
			}
		} else if sent >= burst {
			r.continues = true
			q.continueLater()
			break
		}
		if !q.sendPacket(e) {
			e.failed, e.failure = true, verbs.StatusLocProtErr
			break
		}
		sent++
		if r.nextPacket < e.packets && !e.isFetch() {
			continue
		}
		r.next, r.nextPacket = r.next+1, 0
		if q.service != verbs.ServiceRC {
			q.completeUnreliable(e)
			if e.failed {
				break
			}
		}
	}
	q.endFailed()
}

// completeUnreliable completes a request of UC or UD after its last packet was sent.
func (q *queuePair) completeUnreliable(e *sendEntry) {
	q.req.unaPSN = q.req.psn
	if e.endsAs != verbs.StatusSuccess {
		e.failed, e.failure = true, e.endsAs
		return
	}
	q.completeSend(verbs.StatusSuccess)
	q.checkDrained()
}

// continueSending resumes sending when pkContinue arrives.
func (q *queuePair) continueSending() {
	q.req.continues = false
	q.transmit()
	q.resp.continues = false
	q.sendResponses()
}

// endFailed completes the oldest requests that failed locally and updates the timer.
func (q *queuePair) endFailed() {
	s := &q.sq
	for s.una < s.posted {
		e := s.at(s.una)
		if !e.failed || q.attr.State != verbs.StateRTS && q.attr.State != verbs.StateSQD {
			break
		}
		if q.req.next <= s.una {
			q.req.next, q.req.nextPacket = s.una+1, 0
		}
		if e.begun {
			q.req.unaPSN = (e.lastPSN() + 1) & psnMask
		}
		q.failSend(e.failure)
		if e.failure.Info().After == verbs.AfterNone {
			q.checkDrained()
			q.transmit()
			return
		}
	}
	q.updateAckTimer(false)
}

// beginRequest prepares a request for its first packet. It reports false if the request must wait
// or failed.
func (q *queuePair) beginRequest(e *sendEntry) bool {
	r := &q.req
	if e.wr.Flags&verbs.SendFence != 0 && r.fetches > 0 {
		return false
	}
	if e.isFetch() && r.fetches > 0 && r.fetches >= int(q.attr.MaxRdAtomic) {
		return false
	}
	e.packets = 1
	if q.service != verbs.ServiceUD && !e.isAtomic() {
		e.packets = max(uint32((e.length+uint64(q.mtu())-1)/uint64(q.mtu())), 1)
	}
	if e.packets > 1 && psnDiff(r.psn, r.unaPSN)+int32(min(e.packets, maxSpan)) > maxSpan && q.sq.una != r.next {
		return false
	}
	if !q.injectSendFault(e) {
		return false
	}
	if status := q.checkRequest(e); status != verbs.StatusSuccess {
		e.failed, e.failure = true, status
		return false
	}
	e.begun = true
	e.psn = r.psn
	r.psn = (r.psn + e.packets) & psnMask
	if e.isFetch() {
		r.fetches++
		r.fetchSpan += int32(e.packets)
	}
	return true
}

// canDo reports whether the service has the operation.
func canDo(service verbs.Services, op verbs.Opcode) bool {
	switch service {
	case verbs.ServiceRC:
		return true
	case verbs.ServiceUC:
		return op <= verbs.WRSendWithImm
	default:
		return op == verbs.WRSend || op == verbs.WRSendWithImm
	}
}

// checkRequest returns the status of a request that fails locally, or success (InfiniBand error
// model, 4.2 and 2.2).
func (q *queuePair) checkRequest(e *sendEntry) verbs.Status {
	switch {
	case !canDo(q.service, e.wr.Opcode),
		e.isFetch() && q.attr.MaxRdAtomic == 0,
		q.service == verbs.ServiceUD && e.toDomain != q.d:
		return verbs.StatusLocQPOpErr
	case e.length > uint64(q.hca.cfg.MaxMsgBytes), e.isAtomic() && e.length != 8:
		return verbs.StatusLocLenErr
	}
	var access verbs.Access
	if e.isFetch() {
		access = verbs.AccessLocalWrite
	}
	if e.inline == nil && !q.hca.checkPieces(q.d, e.sges(), access) {
		return verbs.StatusLocProtErr
	}
	return verbs.StatusSuccess
}

// sendPacket sends the next packet of a request. It reports false if the request's memory is no
// longer registered.
func (q *queuePair) sendPacket(e *sendEntry) bool {
	r, mtu := &q.req, uint64(q.mtu())
	i := r.nextPacket
	if q.service == verbs.ServiceUD {
		mtu = e.length + 1
	}
	off := uint64(i) * mtu
	var p *packet
	if e.isFetch() {
		p = q.fetchPacket(e, off)
		r.nextPacket = e.packets
	} else {
		n := min(e.length-off, mtu)
		p = q.f.newPacket(pkSend, int(n))
		if e.wr.Opcode == verbs.WRRDMAWrite || e.wr.Opcode == verbs.WRRDMAWriteWithImm {
			p.kind = pkWrite
			p.va, p.rkey, p.length = e.wr.RemoteAddr, e.wr.RKey, uint32(e.length)
		}
		if e.inline != nil {
			copy(p.data, e.inline[off:])
		} else if !q.hca.gather(p.data, q.d, e.sges(), off) {
			q.f.free(p)
			return false
		}
		p.first, p.last = i == 0, i == e.packets-1
		if p.last && (e.wr.Opcode == verbs.WRSendWithImm || e.wr.Opcode == verbs.WRRDMAWriteWithImm) {
			p.hasImm, p.imm = true, e.wr.Imm
		}
		p.sol = p.last && e.wr.Flags&verbs.SendSolicited != 0
		r.nextPacket++
	}
	p.psn = (e.psn + i) & psnMask
	p.ackWanted = p.last || i%ackEvery == ackEvery-1
	q.emitRequest(e, p)
	return true
}

// fetchPacket returns a packet that requests an atomic or the missing data of a read.
func (q *queuePair) fetchPacket(e *sendEntry, off uint64) *packet {
	p := q.f.newPacket(pkReadRequest, 0)
	p.first, p.last = true, true
	p.va, p.rkey, p.length = e.wr.RemoteAddr+off, e.wr.RKey, uint32(e.length-off)
	if e.isAtomic() {
		p.kind, p.opcode = pkAtomicRequest, e.wr.Opcode
		p.compare, p.swap = e.wr.CompareAdd, e.wr.Swap
	}
	return p
}

// emitRequest sends a packet of a request, unless an injected fault drops it.
func (q *queuePair) emitRequest(e *sendEntry, p *packet) {
	f := q.f
	p.qpn = q.attr.DestQPN
	to := &q.attr.AH
	if q.service == verbs.ServiceUD {
		to, p.qpn, p.srcQPN, p.qkey = &e.to, e.wr.RemoteQPN, q.num, e.wr.RemoteQKey
		if p.qkey>>31 != 0 {
			p.qkey = q.attr.QKey // a controlled Q_Key stands for the queue pair's own
		}
	}
	if !q.setRoute(p, to) {
		f.lose(p, "no way out")
		return
	}
	if e.keepStale {
		f.keepStale(p)
	}
	if e.lose > 0 && p.psn == e.psn {
		e.lose--
		f.lose(p, "injected")
		return
	}
	f.send(p, q)
}

// awaitsAck reports whether an RC queue pair has unacknowledged packets.
func (q *queuePair) awaitsAck() bool {
	return q.service == verbs.ServiceRC && (q.req.next > q.sq.una || q.req.nextPacket > 0)
}

// drained reports whether all requests that have begun are complete.
func (q *queuePair) drained() bool {
	s := &q.sq
	return !q.req.silent && (s.una == s.posted || !s.at(s.una).begun && !s.at(s.una).failed)
}

// checkDrained raises SQ_DRAINED once if the send queue is drained and Modify requested the event
// (InfiniBand error model, 3.3.2).
func (q *queuePair) checkDrained() {
	if q.attr.State == verbs.StateSQD && q.req.notifyDrained && q.drained() {
		q.req.notifyDrained = false
		q.raise(verbs.EventSQDrained)
	}
}
