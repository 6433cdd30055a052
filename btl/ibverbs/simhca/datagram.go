package simhca

import (
	"encoding/binary"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// unreliable takes a packet of UC. A message that a packet is missing of is given up, and the next one begins with any sequence number.
func (q *queuePair) unreliable(p *packet) {
	r := &q.resp
	if p.psn != r.psn || p.first && (r.inSend || r.inWrite) {
		q.abandon()
	}
	r.psn = r24(p.psn + 1)
	if p.first {
		r.skip = false
	}
	if r.skip {
		return
	}
	q.established()
	if p.kind == pkSend {
		q.receiveSend(p)
	} else {
		q.receiveWrite(p)
	}
}

// abandon gives up the message that arrives. Its receive is for the next one, or ends as REM_ABORT_ERR (InfiniBand error model, 2.13).
func (q *queuePair) abandon() {
	r := &q.resp
	r.inSend, r.inWrite, r.skip = false, false, true
	if r.hasCur && q.srq != nil && q.hca.cfg.SRQAbort {
		q.endReceive(verbs.StatusRemAbortErr, false)
	}
}

// datagram takes a packet of UD.
func (q *queuePair) datagram(p *packet) {
	r := &q.resp
	if !q.takeReceive() {
		return
	}
	sges := r.cur.SGE[:r.cur.NumSGE]
	if uint64(len(p.data))+verbs.GRHBytes > sgeLength(sges) {
		return // no error, with datagrams; the receive is for the next one (InfiniBand error model, 4.4.1)
	}
	ok := q.hca.checkPieces(q.d, sges, verbs.AccessLocalWrite) && q.hca.scatter(q.d, sges, verbs.GRHBytes, p.data)
	if ok && p.global {
		var grh [verbs.GRHBytes]byte
		routingHeader(&grh, p)
		ok = q.hca.scatter(q.d, sges, 0, grh[:])
	}
	if !ok {
		q.refuse(p, verbs.OpSend, verbs.BadKey)
		return
	}
	r.total = uint32(len(p.data))
	q.received(p, verbs.WCRecv)
}

// routingHeader is what is in front of a datagram: version and traffic class, length, next header, hop limit, and whence and whither.
func routingHeader(h *[verbs.GRHBytes]byte, p *packet) {
	binary.BigEndian.PutUint32(h[0:], 6<<28|uint32(p.tclass)<<20)
	binary.BigEndian.PutUint16(h[4:], uint16(len(p.data)))
	h[6], h[7] = 0x1b, p.hops
	copy(h[8:24], p.sgid[:])
	copy(h[24:40], p.dgid[:])
}
