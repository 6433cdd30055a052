package simhca

import (
	"time"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// sendQueue is the send queue of a queue pair, with freed ≤ una ≤ posted. The requests una to
// posted-1 are not complete. An entry becomes free when the completion of its request or of a later
// one is polled; an unsignaled request occupies its entry until then, as in real devices.
type sendQueue struct {
	ring   []sendEntry
	size   uint64 // granted capacity
	inline []byte // space for the inline data of each entry, allocated at first use
	freed  uint64
	una    uint64
	posted uint64
}

// sendEntry is a send request and its progress.
type sendEntry struct {
	wr       verbs.SendWR
	to       verbs.AHAttr // UD
	toDomain *domain      // UD: domain of the address handle
	length   uint64
	inline   []byte
	psn      uint32 // of the first packet, once begun
	packets  uint32 // number of sequence numbers that it uses
	begun    bool
	failed   bool // failed locally; completes with failure after the requests before it
	failure  verbs.Status

	// Injected faults.
	endsAs    verbs.Status  // completes with this status instead of success
	late      time.Duration // delay of the completion
	lose      int           // number of tries whose first packet is lost
	acksLost  bool          // responses to the request are lost
	keepStale bool          // FaultStale: copies of the packets are kept
}

func (s *sendQueue) at(i uint64) *sendEntry { return &s.ring[i&uint64(len(s.ring)-1)] }

func (s *sendQueue) reset() { s.freed, s.una, s.posted = 0, 0, 0 }

func (s *sendQueue) full() bool { return s.posted-s.freed >= s.size }

// inlineSpace returns the space for the inline data of entry i.
func (s *sendQueue) inlineSpace(i uint64, size int) []byte {
	if s.inline == nil {
		s.inline = make([]byte, size*len(s.ring))
	}
	at := int(i&uint64(len(s.ring)-1)) * size
	return s.inline[at : at+size : at+size]
}

// isFetch reports whether the peer responds with data: reads and atomics.
func (e *sendEntry) isFetch() bool { return e.wr.Opcode >= verbs.WRRDMARead }

func (e *sendEntry) isAtomic() bool { return e.wr.Opcode > verbs.WRRDMARead }

func (e *sendEntry) lastPSN() uint32 { return (e.psn + e.packets - 1) & psnMask }

func (e *sendEntry) sges() []verbs.SGE { return e.wr.SGE[:e.wr.NumSGE] }

// wcOpcode maps the operation of a request to the operation of its completion.
var wcOpcode = [...]verbs.WCOpcode{
	verbs.WRRDMAWrite: verbs.WCRDMAWrite, verbs.WRRDMAWriteWithImm: verbs.WCRDMAWrite,
	verbs.WRSend: verbs.WCSend, verbs.WRSendWithImm: verbs.WCSend, verbs.WRRDMARead: verbs.WCRDMARead,
	verbs.WRAtomicCmpAndSwp: verbs.WCCompSwap, verbs.WRAtomicFetchAndAdd: verbs.WCFetchAdd,
}

// PostSend implements verbs.QP.
func (q *queuePair) PostSend(wrs []verbs.SendWR) (int, error) {
	defer q.f.enter().leave()
	const call = "ibv_post_send"
	if q.dead() {
		return 0, goneError(call)
	}
	posting := q.attr.State.SendPosting()
	if posting == verbs.PostRefused {
		return 0, invalid(call, "the queue pair is in "+q.attr.State.String())
	}
	n := 0
	var err error
	for ; n < len(wrs) && err == nil; n++ {
		err = q.enqueue(call, &wrs[n])
	}
	if err != nil {
		n--
	}
	switch posting {
	case verbs.PostFlushed:
		q.flushSends()
	case verbs.PostAccepted:
		q.transmit()
	}
	return n, err
}

// enqueue appends a request to the queue unless it is malformed.
func (q *queuePair) enqueue(call string, wr *verbs.SendWR) error {
	s := &q.sq
	if s.full() {
		return noMemory(call, "")
	}
	if int(wr.Opcode) >= len(wcOpcode) {
		return invalid(call, "unknown operation")
	}
	if int(wr.NumSGE) > q.cap.MaxSendSGE {
		return invalid(call, "too many scatter/gather elements")
	}
	length := sgeLength(wr.SGE[:wr.NumSGE])
	e := s.at(s.posted)
	*e = sendEntry{}
	if q.service == verbs.ServiceUD {
		a := q.hca.ahs[wr.AH]
		if a == nil {
			return invalid(call, "no such address handle")
		}
		if p := q.port(); length > uint64(p.mtu.Bytes()) {
			return invalid(call, "the datagram exceeds the port's MTU")
		}
		e.to, e.toDomain = a.attr, a.d
	}
	if wr.Flags&verbs.SendInline != 0 {
		if wr.Opcode >= verbs.WRRDMARead {
			return invalid(call, "reads and atomics take no inline data")
		}
		if length > uint64(q.cap.MaxInlineData) {
			return invalid(call, "the inline data exceeds the queue pair's limit")
		}
		if length > 0 {
			e.inline = s.inlineSpace(s.posted, q.cap.MaxInlineData)[:0]
			for i := range wr.SGE[:wr.NumSGE] {
				if sge := &wr.SGE[i]; sge.Length > 0 {
					e.inline = append(e.inline, atMemory(sge.Addr, sge.Length)...)
				}
			}
		}
	}
	e.wr, e.length = *wr, length
	s.posted++
	return nil
}

// PostRecv implements verbs.QP.
func (q *queuePair) PostRecv(wrs []verbs.RecvWR) (int, error) {
	defer q.f.enter().leave()
	const call = "ibv_post_recv"
	if q.dead() {
		return 0, goneError(call)
	}
	if q.srq != nil {
		return 0, invalid(call, "the queue pair has a shared receive queue")
	}
	posting := q.attr.State.RecvPosting()
	if posting == verbs.PostRefused {
		return 0, invalid(call, "the queue pair is in "+q.attr.State.String())
	}
	r := &q.rq
	for i := range wrs {
		if int(wrs[i].NumSGE) > q.cap.MaxRecvSGE {
			return i, invalid(call, "too many scatter/gather elements")
		}
		if r.posted-r.freed >= uint64(q.cap.MaxRecvWR) {
			return i, noMemory(call, "")
		}
		*r.at(r.posted) = wrs[i]
		r.posted++
		if posting == verbs.PostFlushed && !q.endsReceivesLater() {
			q.flushReceives()
		}
	}
	return len(wrs), nil
}
