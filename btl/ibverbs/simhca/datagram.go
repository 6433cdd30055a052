package simhca

import (
	"encoding/binary"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// receiveUC handles a packet of UC. A missing packet aborts the message; the next message starts
// with any sequence number.
func (q *queuePair) receiveUC(p *packet) {
	r := &q.resp
	if p.psn != r.psn || p.first && (r.inSend || r.inWrite) {
		q.abortMessage()
	}
	r.psn = maskPSN(p.psn + 1)
	if p.first {
		r.skip = false
	}
	if r.skip {
		return
	}
	q.establish()
	if p.kind == pkSend {
		q.receiveSend(p)
	} else {
		q.receiveWrite(p)
	}
}

// abortMessage aborts the arriving message. The next message uses its receive (InfiniBand error
// model, 2.13).
func (q *queuePair) abortMessage() {
	q.resp.inSend, q.resp.inWrite, q.resp.skip = false, false, true
}

// receiveUD handles a packet of UD.
func (q *queuePair) receiveUD(p *packet) {
	r := &q.resp
	if !q.takeReceive() {
		return
	}
	sges := r.cur.SGE[:r.cur.NumSGE]
	if uint64(len(p.data))+verbs.GRHBytes > sgeLength(sges) {
		// Not an error for UD; the next datagram uses the receive (InfiniBand error model, 4.4.1).
		return
	}
	ok := q.hca.checkPieces(q.d, sges, verbs.AccessLocalWrite) && q.hca.scatter(q.d, sges, verbs.GRHBytes, p.data)
	if ok && p.global {
		var grh [verbs.GRHBytes]byte
		fillGRH(&grh, p)
		ok = q.hca.scatter(q.d, sges, 0, grh[:])
	}
	if !ok {
		q.refuse(p, verbs.OpSend, verbs.BadKey)
		return
	}
	r.total = uint32(len(p.data))
	q.completeMessage(p, verbs.WCRecv)
}

// fillGRH fills in a global route header: version and traffic class, length, next header, hop
// limit, source and destination.
func fillGRH(h *[verbs.GRHBytes]byte, p *packet) {
	binary.BigEndian.PutUint32(h[0:], 6<<28|uint32(p.tclass)<<20)
	binary.BigEndian.PutUint16(h[4:], uint16(len(p.data)))
	h[6], h[7] = 0x1b, p.hops
	copy(h[8:24], p.sgid[:])
	copy(h[24:40], p.dgid[:])
}
