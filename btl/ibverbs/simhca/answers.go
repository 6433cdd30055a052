package simhca

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// answer is what a responder has to say. Answers leave in the order of the requests; a long read's holds up those behind it.
type answer struct {
	kind    packetKind
	code    nakCode
	more    bool // a read: not all was sent
	counted bool // one of resp.reads
	psn     uint32
	rkey    uint32
	left    uint32
	va      uint64
	value   uint64
}

// respond sends an answer, after those that wait.
func (q *queuePair) respond(a answer) {
	r := &q.resp
	if len(r.answers) == 0 && a.kind != pkReadResponse {
		q.sendAnswer(&a)
		return
	}
	r.answers = append(r.answers, a)
	q.answerMore()
}

// answerMore sends what waits, some packets at a time.
func (q *queuePair) answerMore() {
	r := &q.resp
	for sent := 0; len(r.answers) > 0 && !r.continues; sent++ {
		if sent == burst {
			r.continues = true
			q.continueLater()
			return
		}
		q.answerFirst()
	}
}

// answerAll sends all that waits.
func (q *queuePair) answerAll() {
	for len(q.resp.answers) > 0 {
		q.answerFirst()
	}
}

// answerFirst sends a packet of the first answer.
func (q *queuePair) answerFirst() {
	r := &q.resp
	a := &r.answers[0]
	ok := q.sendAnswer(a)
	if !ok {
		// The memory went away under the read.
		psn := a.psn
		r.answers = r.answers[:0]
		q.sendAnswer(&answer{kind: pkNak, psn: psn, code: nakAccess})
		q.raise(verbs.EventQPAccessErr)
		q.enterError()
		return
	}
	if !a.more {
		n := copy(r.answers, r.answers[1:])
		r.answers = r.answers[:n]
	}
}

func (r *responder) stopAnswering() { r.answers = r.answers[:0] }

// sendAnswer sends a packet of an answer. It reports false if there is no memory to read any more.
func (q *queuePair) sendAnswer(a *answer) bool {
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
		q.credit(a, p)
		q.emit(p)
		return true
	}
	n := min(a.left, uint32(q.mtu()))
	p := f.newPacket(pkReadResponse, int(n))
	if n > 0 {
		mem := q.hca.regions.find(q.d, a.rkey, remoteKey, a.va, n, verbs.AccessRemoteRead)
		if mem == nil {
			f.drop(p)
			return false
		}
		load(p.data, mem)
	}
	p.psn = a.psn
	a.psn = r24(a.psn + 1)
	a.va += uint64(n)
	a.left -= n
	if a.left == 0 {
		a.more = false
		q.credit(a, p)
	}
	q.emit(p)
	return true
}

// credit: the count of reads that max_dest_rd_atomic bounds goes down when the last packet of the answer has left the wire. A requester
// that keeps to its own bound never begins another before that.
func (q *queuePair) credit(a *answer, p *packet) {
	if a.counted {
		p.credit, p.creditGen = q, q.gen
	}
}

// atomically does an atomic, one that Go's own atomic operations on that memory go together with, and gives what was there.
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
