package ibverbs

import (
	"math/bits"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// A message that the device does not take inline is copied into a registered buffer. The buffer is
// free again once the peer's device has acknowledged the message. If a peer does not acknowledge,
// its messages keep their buffers until the connection fails. Therefore no peer may get all
// buffers:
//
//   - Each endpoint has ownBuffers, which no other endpoint gets. With them, sends to each peer
//     that acknowledges make progress, whatever other peers do. If the module shares receives
//     (shared.go), endpoints have no buffers of their own: then there are many peers, and memory
//     must not grow with each of them.
//   - All endpoints share bounceBuffers more, for bursts. An endpoint gets one only while it has
//     less than a third as many as are free. Therefore each endpoint gets at most a quarter of the
//     buffers that earlier endpoints have left. One endpoint alone gets as many as it has credits
//     by default. If four endpoints keep all that they get, 20 are left for a fifth.
//
// A fragment for which there is no buffer is refused (btl.ErrResource).
const (
	bounceBuffers = 256
	ownBuffers    = 4
	noBuffer      = -1
)

// bounceShare is an endpoint's share of the buffers. The numbers of its own buffers begin at
// bounceBuffers.
type bounceShare struct {
	own    uint8 // a bit for each own buffer that is free
	common int   // common buffers that the endpoint has
}

// wholeShare is the initial share of an endpoint, with nothing in flight.
var wholeShare = bounceShare{own: 1<<ownBuffers - 1}

// take takes a free buffer, or returns noBuffer if there is none for this endpoint now.
func (s *bounceShare) take(h *hca) int32 {
	if s.own != 0 {
		i := bits.TrailingZeros8(s.own)
		s.own &^= 1 << i
		return int32(bounceBuffers + i)
	}
	n := len(h.bounceFree)
	if 3*s.common >= n {
		return noBuffer
	}
	s.common++
	i := h.bounceFree[n-1]
	h.bounceFree = h.bounceFree[:n-1]
	return i
}

// giveBack frees a buffer.
func (s *bounceShare) giveBack(h *hca, i int32) {
	if i >= bounceBuffers {
		s.own |= 1 << (i - bounceBuffers)
		return
	}
	s.common--
	h.bounceFree = append(h.bounceFree, i)
}

// buffer returns the slab of a buffer, and its number in the slab.
func (e *endpoint) buffer(i int32) (*slab, int) {
	if i >= bounceBuffers {
		return e.bufs, e.window + controlDepth + int(i) - bounceBuffers
	}
	return e.m.h.bounce, int(i)
}

// staging returns memory for building a message of n bytes: scratch if the device takes the message
// inline, otherwise a buffer, which it records in entry. It returns nil if there is no buffer.
func (e *endpoint) staging(entry *sqEntry, n int) []byte {
	h := e.m.h
	if n <= e.maxInline {
		return h.scratch
	}
	if entry.bounce = e.share.take(h); entry.bounce == noBuffer {
		return nil
	}
	s, i := e.buffer(entry.bounce)
	return s.buffer(i)
}

// name makes wr a send of n bytes from the memory that staging returned.
func (e *endpoint) name(wr *verbs.SendWR, entry *sqEntry, n int) {
	*wr = verbs.SendWR{Opcode: verbs.WRSend, NumSGE: 1}
	if entry.bounce == noBuffer {
		wr.Flags = verbs.SendInline
		wr.SGE[0] = verbs.SGE{Addr: addressOf(e.m.h.scratch), Length: uint32(n)}
		return
	}
	s, i := e.buffer(entry.bounce)
	wr.SGE[0] = s.sge(i, n)
}

// giveBack frees the buffer of an entry.
func (e *endpoint) giveBack(entry *sqEntry) {
	if entry.bounce != noBuffer {
		e.share.giveBack(e.m.h, entry.bounce)
		entry.bounce = noBuffer
	}
}
