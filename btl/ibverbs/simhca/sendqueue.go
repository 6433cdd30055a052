package simhca

import (
	"time"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// sendQueue: freed ≤ una ≤ posted. Requests from una on are not complete. A place is free again only when the completion of its request
// or of a later one was polled: an unsignaled request keeps its place until then, as with devices.
type sendQueue struct {
	ring   []sendEntry
	size   uint64 // that was granted
	inline []byte // a place for each entry, made when first needed
	freed  uint64
	una    uint64
	posted uint64
}

// sendEntry is a send request and how far it is.
type sendEntry struct {
	wr       verbs.SendWR
	to       verbs.AHAttr // UD
	toDomain *domain      // UD: that the address was made in
	length   uint64
	inline   []byte
	psn      uint32 // of its first packet, once it was begun
	packets  uint32 // sequence numbers that it takes
	begun    bool
	failed   bool // here, before the peer heard all of it: ends with failure, once those before it are complete
	failure  verbs.Status

	// What was injected.
	endsAs  verbs.Status  // instead of success
	late    time.Duration // its completion
	lose    int           // so many tries
	deaf    bool          // to its answers
	haunted bool          // copies of its packets are kept
}

func (s *sendQueue) at(i uint64) *sendEntry { return &s.ring[i&uint64(len(s.ring)-1)] }

func (s *sendQueue) reset() { s.freed, s.una, s.posted = 0, 0, 0 }

func (s *sendQueue) full() bool { return s.posted-s.freed >= s.size }

// inlinePlace is where an inline request's bytes stay.
func (s *sendQueue) inlinePlace(i uint64, most int) []byte {
	if s.inline == nil {
		s.inline = make([]byte, most*len(s.ring))
	}
	at := int(i&uint64(len(s.ring)-1)) * most
	return s.inline[at : at+most : at+most]
}

// isFetch: requests that the peer answers with data.
func (e *sendEntry) isFetch() bool { return e.wr.Opcode >= verbs.WRRDMARead }

func (e *sendEntry) isAtomic() bool { return e.wr.Opcode > verbs.WRRDMARead }

func (e *sendEntry) lastPSN() uint32 { return (e.psn + e.packets - 1) & psnMask }

func (e *sendEntry) sges() []verbs.SGE { return e.wr.SGE[:e.wr.NumSGE] }

// wcOpcode is what completes.
var wcOpcode = [...]verbs.WCOpcode{
	verbs.WRRDMAWrite: verbs.WCRDMAWrite, verbs.WRRDMAWriteWithImm: verbs.WCRDMAWrite,
	verbs.WRSend: verbs.WCSend, verbs.WRSendWithImm: verbs.WCSend, verbs.WRRDMARead: verbs.WCRDMARead,
	verbs.WRAtomicCmpAndSwp: verbs.WCCompSwap, verbs.WRAtomicFetchAndAdd: verbs.WCFetchAdd,
}

// PostSend implements verbs.QP.
func (q *queuePair) PostSend(wrs []verbs.SendWR) (int, error) {
	q.f.enter()
	defer q.f.leave()
	const call = "ibv_post_send"
	if q.dead() {
		return 0, goneError(call)
	}
	posting := q.attr.State.SendPosting()
	if posting == verbs.PostRefused {
		return 0, invalid(call, "queue pair is in "+q.attr.State.String())
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

// enqueue takes a request into the queue, unless it is malformed.
func (q *queuePair) enqueue(call string, wr *verbs.SendWR) error {
	s := &q.sq
	if s.full() {
		return noMemory(call, "")
	}
	if int(wr.Opcode) >= len(wcOpcode) {
		return invalid(call, "no such operation")
	}
	if int(wr.NumSGE) > q.cap.MaxSendSGE {
		return invalid(call, "too many pieces")
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
			return invalid(call, "datagram longer than the port's MTU")
		}
		e.to, e.toDomain = a.attr, a.d
	}
	if wr.Flags&verbs.SendInline != 0 {
		if wr.Opcode >= verbs.WRRDMARead {
			return invalid(call, "inline data of an operation that fetches")
		}
		if length > uint64(q.cap.MaxInlineData) {
			return invalid(call, "more inline data than the queue pair takes")
		}
		if length > 0 {
			e.inline = s.inlinePlace(s.posted, q.cap.MaxInlineData)[:0]
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
	q.f.enter()
	defer q.f.leave()
	const call = "ibv_post_recv"
	if q.dead() {
		return 0, goneError(call)
	}
	if q.srq != nil {
		return 0, invalid(call, "queue pair has a shared receive queue")
	}
	posting := q.attr.State.RecvPosting()
	if posting == verbs.PostRefused {
		return 0, invalid(call, "queue pair is in "+q.attr.State.String())
	}
	r := &q.rq
	for i := range wrs {
		if int(wrs[i].NumSGE) > q.cap.MaxRecvSGE {
			return i, invalid(call, "too many pieces")
		}
		if r.posted-r.freed >= uint64(q.cap.MaxRecvWR) {
			return i, noMemory(call, "")
		}
		*r.at(r.posted) = wrs[i]
		r.posted++
		if posting == verbs.PostFlushed {
			q.flushReceives()
		}
	}
	return len(wrs), nil
}
