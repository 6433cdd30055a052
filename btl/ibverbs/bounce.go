package ibverbs

import (
	"math/bits"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// A message that the device does not take inline is copied into a registered buffer, which is free
// again once the peer's device has acknowledged the message. A peer that does not acknowledge keeps
// the buffers of its messages until its connection fails, so no peer may get all of them:
//
//   - Each endpoint has ownBuffers, which no other endpoint gets. With them alone, sends to every
//     peer that acknowledges progress, whatever the others do. There are none if the module shares
//     receives (shared.go): it has so many peers that their memory must not grow with each.
//   - The module has bounceBuffers in common, for bursts. An endpoint gets one only while it has
//     less than a third as many as are free. So each gets at most a quarter of those that the
//     endpoints before it have left: one endpoint alone gets as many as it has credits by default,
//     and if four keep all that they get, 20 are left for a fifth.
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

// wholeShare is the share of an endpoint with nothing in flight.
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

// buffer is the slab of a buffer, and its number there.
func (e *endpoint) buffer(i int32) (*slab, int) {
	if i >= bounceBuffers {
		return e.bufs, e.window + controlDepth + int(i) - bounceBuffers
	}
	return e.m.h.bounce, int(i)
}

// staging is the memory in which a message of n bytes is built: scratch if the device takes it
// inline, otherwise a buffer, which the entry then names. It is nil if there is no buffer.
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

// name makes wr the send of n bytes from the memory that staging gave.
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
