package loop

import (
	"sync/atomic"

	"github.com/mpigo/mpigo/btl"
)

const (
	// slotBytes is the longest fragment that a slot itself carries. A slot is then two cache lines.
	slotBytes = 128 - 16
	cacheLine = 64

	// A slot's word says which side owns the slot. Empty: the sender. Full, with tag and length:
	// the receiver. Closed: neither, and no fragment follows.
	slotEmpty  = uint64(0)
	slotFull   = uint64(1) << 62
	slotClosed = uint64(1) << 63
)

// slot carries one fragment. The sender moves word from empty to full, the receiver from full to
// empty, and at the end of the incarnation from either to closed. Both sides leave the empty state
// by an atomic exchange. Therefore a fragment is either delivered or refused. The owner of the slot
// may write the other fields.
type slot struct {
	word  atomic.Uint64
	epoch uint32
	_     uint32
	data  [slotBytes]byte
}

// lane carries the fragments of one incarnation from one rank to one rank.
type lane struct {
	inc                 *incarnation
	fromRank, fromPlace int
	from, to            *port
	slots               []slot // nil if the fabric is virtual
	// buffers holds, for each slot, the fragment if it did not fit into the slot. The slot's owner
	// may write there.
	buffers []*buffer
	mask    uint32

	_ [cacheLine]byte
	// starved is set by the sender when it finds no room, and cleared by the receiver, which then
	// wakes the sender.
	starved atomic.Uint32
	// watched says that the receiver polls this lane in every progress call. Otherwise the sender
	// sets a flag of the receiver's port. The receiver writes watched.
	watched atomic.Uint32

	_    [cacheLine]byte
	tail uint32 // only the sender uses it

	// Only the receiver uses the fields from here on.
	_    [cacheLine]byte
	head uint32
	idle uint32 // empty looks since the last fragment

	// Of a virtual fabric: the fragments that were delivered and not yet handed up, until when the
	// lane emits posted operations, when the last one arrives, and when its last late
	// acknowledgement arrives.
	queue                           []arrival
	busyUntil, lastArrival, lastAck int64
}

func newLane(inc *incarnation, from, to *port) *lane {
	l := &lane{inc: inc, fromRank: from.name.Rank, fromPlace: from.place, from: from, to: to}
	if f := from.fabric; f.sim == nil {
		l.slots = make([]slot, f.cfg.Slots)
		l.buffers = make([]*buffer, f.cfg.Slots)
		l.mask = uint32(f.cfg.Slots - 1)
	}
	return l
}

type result uint8

const (
	published result = iota
	laneFull
	laneClosed
)

// room returns what publish would return now. The lane may still be closed at any time.
func (l *lane) room() result {
	w := l.slots[l.tail&l.mask].word.Load()
	if w&slotFull != 0 {
		l.starved.Store(1)
		// If the receiver made room before the flag was set, no wakeup comes.
		w = l.slots[l.tail&l.mask].word.Load()
	}
	switch {
	case w&slotFull != 0:
		return laneFull
	case w&slotClosed != 0:
		return laneClosed
	}
	return published
}

// publish sends a fragment. Only the sender may call it.
func (l *lane) publish(bufs *pool, epoch uint32, tag btl.Tag, hdr, payload []byte) result {
	if l.next().word.Load() != slotEmpty {
		if v := l.room(); v != published {
			return v
		}
	}
	n := len(hdr) + len(payload)
	dst := l.place(bufs, n)
	copy(dst, hdr)
	copy(dst[len(hdr):], payload)
	return l.commit(epoch, tag, n)
}

// next is the slot for the next fragment.
func (l *lane) next() *slot { return &l.slots[l.tail&l.mask] }

// place returns where to write a fragment of n bytes, if the next slot is empty.
func (l *lane) place(bufs *pool, n int) []byte {
	if n <= slotBytes {
		return l.next().data[:]
	}
	b := bufs.get(n)
	l.buffers[l.tail&l.mask] = b
	return b.mem
}

// commit publishes a fragment of n bytes that was written to its place.
func (l *lane) commit(epoch uint32, tag btl.Tag, n int) result {
	s := l.next()
	s.epoch = epoch
	if !s.word.CompareAndSwap(slotEmpty, slotFull|uint64(tag)<<32|uint64(n)) {
		return laneClosed // the lane keeps the buffer
	}
	l.tail++
	if l.watched.Load() == 0 {
		l.to.flag(l.fromPlace)
	}
	l.to.wake()
	return published
}

// ready reports whether there is a fragment.
func (l *lane) ready() bool {
	if l.slots == nil {
		return len(l.queue) > 0
	}
	return l.slots[l.head&l.mask].word.Load()&slotFull != 0
}

// fragment returns the fragment at the head, which is full, and its slot.
func (l *lane) fragment() (s *slot, tag btl.Tag, frag []byte) {
	i := l.head & l.mask
	s = &l.slots[i]
	w := s.word.Load()
	n := int(uint32(w))
	if n > slotBytes {
		return s, btl.Tag(w >> 32), l.buffers[i].mem[:n]
	}
	return s, btl.Tag(w >> 32), s.data[:n]
}

// pass releases the slot at the head: for the next fragment, or closed.
func (l *lane) pass(s *slot, to uint64) {
	i := l.head & l.mask
	if b := l.buffers[i]; b != nil {
		l.buffers[i] = nil
		b.giveBack()
	}
	s.word.Store(to)
	l.head++
	if l.starved.Load() != 0 && l.starved.Swap(0) != 0 {
		l.from.wakeNow()
	}
}

// seal closes the slot at the head if it is empty. It reports whether that slot is now closed: then
// the sender cannot publish any more.
func (l *lane) seal() bool {
	w := &l.slots[l.head&l.mask].word
	return w.CompareAndSwap(slotEmpty, slotClosed) || w.Load() == slotClosed
}
