package simhca

import "github.com/mpigo/mpigo/btl/ibverbs/verbs"

const (
	// window is how many packets of RC are under way at most before an answer.
	window = 64
	// burst is how many packets without answer a queue pair sends before others have their turn.
	burst = 64
	// ackEvery is how often an answer is asked for within a message.
	ackEvery = 16
	// maxSpan keeps the sequence numbers that are under way below the half of all, or old ones would be taken for new.
	maxSpan = 1 << 22
)

// requester is what a queue pair knows of its requests that are under way. Requests from sq.una to next were begun, and perhaps next too.
type requester struct {
	next       uint64 // the request that is sent next
	nextPacket uint32 // and which packet of it
	psn        uint32 // of the next request
	unaPSN     uint32 // the oldest that is not answered
	fetches    int    // reads and atomics begun and not complete
	fetchSpan  int32  // sequence numbers of theirs
	retries    uint8  // left
	rnrRetries uint8  // left
	waiting    bool   // as an RNR NAK asked
	rewound    bool   // went back because of a gap, and nothing new was heard since
	silent     bool   // FaultSilence
	deaf       bool   // FaultAckLost struck

	tellDrained bool
	continues   bool // pkContinue is under way
}

func (r *requester) begin(a *verbs.QPAttr) {
	r.psn, r.unaPSN = a.SQPSN, a.SQPSN
	r.retries, r.rnrRetries = a.RetryCnt, a.RNRRetry
}

// transmit sends what can be sent.
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
			q.unreliableDone(e)
			if e.failed {
				break
			}
		}
	}
	q.settle()
}

// unreliableDone: a request of UC or UD is complete when its last packet was sent.
func (q *queuePair) unreliableDone(e *sendEntry) {
	q.req.unaPSN = q.req.psn
	if e.endsAs != verbs.StatusSuccess {
		e.failed, e.failure = true, e.endsAs
		return
	}
	q.sendEnded(verbs.StatusSuccess)
	q.checkDrained()
}

// goOn is what pkContinue comes for.
func (q *queuePair) goOn() {
	q.req.continues = false
	q.transmit()
	q.resp.continues = false
	q.answerMore()
}

// settle ends the oldest request if it failed here, and minds the timer.
func (q *queuePair) settle() {
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
		q.sendFailed(e.failure)
		if e.failure.Info().After == verbs.AfterNone {
			q.checkDrained()
			q.transmit()
			return
		}
	}
	q.mindTimer(false)
}

// beginRequest readies a request for its first packet. It reports false if it has to wait, or failed.
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
	if !q.strikeSend(e) {
		return false
	}
	if status := q.check(e); status != verbs.StatusSuccess {
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

// canDo says which operations the services have.
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

// check finds what is wrong with a request on this side (InfiniBand error model, 4.2 and 2.2).
func (q *queuePair) check(e *sendEntry) verbs.Status {
	switch {
	case !canDo(q.service, e.wr.Opcode),
		e.isAtomic() && q.hca.cfg.NoAtomics,
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

// sendPacket sends the next packet of a request. It reports false if its memory is not there any more.
func (q *queuePair) sendPacket(e *sendEntry) bool {
	r, mtu := &q.req, uint64(q.mtu())
	i := r.nextPacket
	if q.service == verbs.ServiceUD {
		mtu = e.length + 1
	}
	off := uint64(i) * mtu
	var p *packet
	if e.isFetch() {
		p = q.fetchPacket(e, i, off)
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
			q.f.drop(p)
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
	q.launch(e, p)
	return true
}

// fetchPacket asks for what is not there yet of a read, or for an atomic.
func (q *queuePair) fetchPacket(e *sendEntry, have uint32, off uint64) *packet {
	p := q.f.newPacket(pkReadRequest, 0)
	p.first, p.last = true, true
	p.va, p.rkey, p.length = e.wr.RemoteAddr+off, e.wr.RKey, uint32(e.length-off)
	if e.isAtomic() {
		p.kind, p.opcode = pkAtomicRequest, e.wr.Opcode
		p.compare, p.swap = e.wr.CompareAdd, e.wr.Swap
	}
	return p
}

// launch sends a packet of a request, unless that is to be lost.
func (q *queuePair) launch(e *sendEntry, p *packet) {
	f := q.f
	p.qpn = q.attr.DestQPN
	to := &q.attr.AH
	if q.service == verbs.ServiceUD {
		to, p.qpn, p.srcQPN, p.qkey = &e.to, e.wr.RemoteQPN, q.num, e.wr.RemoteQKey
		if p.qkey>>31 != 0 {
			p.qkey = q.attr.QKey // a controlled one is the queue pair's own
		}
	}
	if !q.address(p, to) {
		f.lose(p, "no way out")
		return
	}
	if e.haunted {
		f.keep(p)
	}
	if e.lose > 0 && p.psn == e.psn {
		e.lose--
		f.lose(p, "injected")
		return
	}
	f.wire(p, q)
}

// under says whether packets of RC are without an answer.
func (q *queuePair) under() bool {
	return q.service == verbs.ServiceRC && (q.req.next > q.sq.una || q.req.nextPacket > 0)
}

// drained says whether all requests that were begun are complete.
func (q *queuePair) drained() bool {
	s := &q.sq
	return !q.req.silent && (s.una == s.posted || !s.at(s.una).begun && !s.at(s.una).failed)
}

// checkDrained tells that the send queue is drained, once, if it was asked for (InfiniBand error model, 3.3.2).
func (q *queuePair) checkDrained() {
	if q.attr.State == verbs.StateSQD && q.req.tellDrained && q.drained() {
		q.req.tellDrained = false
		q.raise(verbs.EventSQDrained)
	}
}
