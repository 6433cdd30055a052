package simhca

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// response is an entry of the responder queue. Responses leave in the order of the requests; the
// response to a long read delays those after it.
type response struct {
	kind    packetKind
	code    nakCode
	more    bool // a read with data left to send
	counted bool // counts in resp.reads
	psn     uint32
	rkey    uint32
	left    uint32
	va      uint64
	value   uint64
}

// respond sends a response after those in the responder queue.
func (q *queuePair) respond(a response) {
	r := &q.resp
	if len(r.queue) == 0 && a.kind != pkReadResponse {
		q.sendResponse(&a)
		return
	}
	r.queue = append(r.queue, a)
	q.sendResponses()
}

// sendResponses sends the queued responses, a burst of packets at a time.
func (q *queuePair) sendResponses() {
	r := &q.resp
	for sent := 0; len(r.queue) > 0 && !r.continues; sent++ {
		if sent == burst {
			r.continues = true
			q.continueLater()
			return
		}
		q.sendFirstResponse()
	}
}

// sendAllResponses sends all queued responses.
func (q *queuePair) sendAllResponses() {
	for len(q.resp.queue) > 0 {
		q.sendFirstResponse()
	}
}

// sendFirstResponse sends a packet of the first queued response.
func (q *queuePair) sendFirstResponse() {
	r := &q.resp
	a := &r.queue[0]
	if !q.sendResponse(a) {
		// The memory was deregistered during the read.
		psn := a.psn
		r.queue = r.queue[:0]
		q.sendResponse(&response{kind: pkNak, psn: psn, code: nakAccess})
		q.raise(verbs.EventQPAccessErr)
		q.enterError()
		return
	}
	if !a.more {
		n := copy(r.queue, r.queue[1:])
		r.queue = r.queue[:n]
	}
}

func (r *responder) dropResponses() { r.queue = r.queue[:0] }

// sendResponse sends a packet of a response. It reports false if the memory to read is no longer
// registered.
func (q *queuePair) sendResponse(a *response) bool {
	f := q.f
	if a.kind != pkReadResponse {
		n := 0
		if a.kind == pkAtomicResponse {
			n = 8
		}
		p := f.newPacket(a.kind, n)
		p.psn, p.code, p.timer = a.psn, a.code, q.attr.MinRNRTimer
		if n > 0 {
			binary.NativeEndian.PutUint64(p.data, a.value)
		}
		q.finishRead(a, p)
		q.emit(p)
		return true
	}
	n := min(a.left, uint32(q.mtu()))
	p := f.newPacket(pkReadResponse, int(n))
	if n > 0 {
		mem := q.hca.regions.find(q.d, a.rkey, remoteKey, a.va, n, verbs.AccessRemoteRead)
		if mem == nil {
			f.free(p)
			return false
		}
		load(p.data, mem)
	}
	p.psn = a.psn
	a.psn = maskPSN(a.psn + 1)
	a.va += uint64(n)
	a.left -= n
	if a.left == 0 {
		a.more = false
		q.finishRead(a, p)
	}
	q.emit(p)
	return true
}

// finishRead makes p, the last packet of a response, decrement resp.reads when it leaves the
// network. A requester that respects max_dest_rd_atomic starts no further read before that.
func (q *queuePair) finishRead(a *response, p *packet) {
	if a.counted {
		p.reader, p.ownerGen = q, q.gen
	}
}

// atomically executes the atomic operation of p and returns the old value. It is compatible with
// Go's atomic operations on the same memory.
func atomically(mem []byte, p *packet) uint64 {
	w := word(mem)
	if p.opcode == verbs.WRAtomicFetchAndAdd {
		return atomic.AddUint64(w, p.compare) - p.compare
	}
	for {
		was := atomic.LoadUint64(w)
		if was != p.compare || atomic.CompareAndSwapUint64(w, was, p.swap) {
			return was
		}
	}
}
