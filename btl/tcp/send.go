package tcp

import (
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
)

const (
	// maxPacked is the longest fragment, in bytes, that is copied next to its head. Longer ones are
	// sent from where they lie. For shorter ones, a copy is cheaper than one more piece for the
	// system to gather.
	maxPacked = 2048
	// maxBatch bounds the fragments that go to the system in one call. If they are long, the system
	// takes as many bytes as fit into its buffer.
	maxBatch = 32
	// packedBytes is room for the heads of a batch, its headers and its short fragments.
	packedBytes = maxBatch * (headBytes + btl.MaxHeaderBytes + maxPacked)
)

// sending is a module's memory for assembling a batch.
type sending struct {
	packed  [packedBytes]byte
	vectors [2*maxBatch + 3]unix.Iovec
	msg     unix.Msghdr
	ops     [maxBatch]*btl.Op
	inline  [maxBatch]int // for each operation, how many bytes of its frame are in packed
}

// putHead writes the head of a frame, with an acknowledgement of all taken fragments.
func (e *endpoint) putHead(b []byte, k kind, tag btl.Tag, length int) {
	h := head{length: uint32(length), ack: e.taken, epoch: e.Epoch(), kind: k, tag: tag}
	h.put(b)
}

// sendPacked sends a short fragment at once. Nothing else waits to be sent.
func (e *endpoint) sendPacked(op *btl.Op) {
	n := op.Len()
	b := e.m.out.packed[:headBytes+n]
	e.putHead(b, frameFrag, op.Tag, n)
	copy(b[headBytes:], op.Hdr[:op.HdrLen])
	copy(b[headBytes+int(op.HdrLen):], op.Payload)
	sent, errno := send(e.fd, b)
	if sent == len(b) {
		e.unacked.Push(op)
		e.ackCarried()
		return
	}
	if errno != 0 {
		e.unsent.Push(op)
		e.refused(errno)
		return
	}
	e.rest = append(e.rest[:0], b[sent:]...)
	e.unacked.Push(op)
	e.ackCarried()
	e.refused(unix.EAGAIN)
}

// refused records that the socket has not taken everything.
func (e *endpoint) refused(errno unix.Errno) {
	m := e.m
	if !m.inside && m.waker != nil {
		m.waker.turnMade(true) // the program may do something else now
	}
	if isTransient(errno) {
		if !e.blocked {
			e.blocked = true
			m.blocked = append(m.blocked, e)
		}
		return
	}
	// Unread bytes of the peer may explain why.
	if e.writeErr == 0 {
		e.writeErr = errno
		m.unwritable = append(m.unwritable, e)
		m.Unsettled = true
	}
}

// flush sends as much as the socket takes.
func (e *endpoint) flush() {
	e.gathered = 0
	for e.phase == phaseReady && e.State() == btl.Up && e.writeErr == 0 && e.hasToSend() {
		if !e.flushBatch() {
			return
		}
	}
}

func (e *endpoint) hasToSend() bool {
	return !e.unsent.Empty() || e.current != nil || len(e.rest) > 0 || e.bye
}

// flushBatch sends a batch, and reports whether the socket took all of it.
func (e *endpoint) flushBatch() bool {
	s := &e.m.out
	vectors := s.vectors[:0]
	total := 0
	add := func(b []byte) {
		if len(b) > 0 {
			v := unix.Iovec{Base: &b[0]}
			v.SetLen(len(b))
			vectors = append(vectors, v)
			total += len(b)
		}
	}
	add(e.rest)
	if e.current != nil {
		add(e.current.Payload[e.offset:])
	}
	before := total
	used, from, n := 0, 0, 0 // packed[from:used] is not yet in vectors
	for n < maxBatch {
		op := e.unsent.Pop()
		if op == nil {
			break
		}
		size := op.Len()
		start := used
		e.putHead(s.packed[used:used+headBytes], frameFrag, op.Tag, size)
		used += headBytes
		used += copy(s.packed[used:], op.Hdr[:op.HdrLen])
		if size <= maxPacked {
			used += copy(s.packed[used:], op.Payload)
		} else {
			add(s.packed[from:used])
			from = used
			add(op.Payload)
		}
		s.ops[n], s.inline[n] = op, used-start
		n++
	}
	bye := e.bye && e.unsent.Empty()
	if bye {
		e.putHead(s.packed[used:used+headBytes], frameBye, 0, 0)
		used += headBytes
	}
	add(s.packed[from:used])
	s.msg = unix.Msghdr{Iov: &vectors[0]}
	s.msg.SetIovlen(len(vectors))
	sent, errno := sendVectors(e.fd, &s.msg)
	if errno != 0 {
		sent = 0
	}
	if sent > before {
		e.ackCarried() // the first of these frames was begun, so it will be finished
	}
	e.settleBatch(sent, n, bye)
	clear(vectors)
	clear(s.ops[:n])
	if sent == total {
		e.blocked = false
		return true
	}
	if errno == 0 {
		errno = unix.EAGAIN
	}
	e.refused(errno)
	return false
}

// settleBatch accounts for the sent bytes of a batch of n operations.
func (e *endpoint) settleBatch(sent, n int, bye bool) {
	s := &e.m.out
	k := min(sent, len(e.rest))
	e.rest = e.rest[:copy(e.rest, e.rest[k:])]
	sent -= k
	if op := e.current; op != nil {
		k := min(sent, len(op.Payload)-e.offset)
		e.offset += k
		sent -= k
		if e.offset == len(op.Payload) {
			e.current = nil
			e.unacked.Push(op)
		}
	}
	at, i := 0, 0
	for ; i < n && sent > 0; i++ {
		op, inline := s.ops[i], s.inline[i]
		if sent < inline {
			e.rest = append(e.rest, s.packed[at+sent:at+inline]...)
		}
		at += inline
		sent = max(sent-inline, 0)
		outside := 0
		if op.Len() > maxPacked {
			outside = len(op.Payload)
		}
		if sent < outside || len(e.rest) > 0 && outside > 0 {
			e.current, e.offset = op, sent
			sent = 0
		} else {
			sent -= outside
			e.unacked.Push(op)
		}
	}
	for j := n - 1; j >= i; j-- {
		e.unsent.PushFront(s.ops[j])
	}
	if bye && i == n && sent > 0 {
		e.rest = append(e.rest, s.packed[at+sent:at+headBytes]...)
		e.bye = false
	}
}

// flushLater flushes an endpoint at the end of this progress call, or of the next one.
func (m *module) flushLater(e *endpoint) {
	if !e.flushPending {
		e.flushPending = true
		m.toFlush = append(m.toFlush, e)
	}
}

// flushPosted sends the fragments that were posted inside the progress call.
func (m *module) flushPosted() {
	for i := 0; i < len(m.toFlush); i++ {
		e := m.toFlush[i]
		e.flushPending = false
		if !e.blocked {
			e.flush()
		}
	}
	m.toFlush = m.toFlush[:0]
}

// flushBlocked retries the endpoints whose sockets were full.
func (m *module) flushBlocked() {
	list := m.blocked
	m.blocked = m.blocked[:0]
	for _, e := range list {
		e.blocked = false
		e.flush()
	}
}
