package sm

import (
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/internal/fence"
	"github.com/mpigo/mpigo/internal/memcopy"
)

// A ring carries fragments from one producer to one consumer through memory that both have mapped,
// at different addresses. It has slots of slotBytes and a data part.
//
// A slot begins with its word. The consumer polls only this word:
//
//	bits  0–31  slotSequence of the number of the fragment, from 1; 0 if it was claimed
//	bits 32–39  tag
//	bits 40–51  length, if the fragment is in the slot; else inData
//	bits 52–63  epoch, its low 12 bits
//
// A fragment of up to slotData bytes follows the word. For a longer one, the slot holds its
// position and length, and how far the producer has read the data of the ring in the other
// direction. If the consumer must measure how long it takes to read the fragment, the slot also
// holds the serial number of that measurement (package memcopy). The bytes are in the data part, in
// one piece. The header ends at the end of a cache line, because copies of whole lines are faster.
//
// Positions count from the beginning of the session, and their low bits are the place in the data.
// If each short fragment takes a whole lap, positions wrap after some weeks. Therefore only their
// differences are compared.
//
// Who may write:
//
//   - The producer owns slots and data until it stores the word. Then the consumer owns the slot
//     until it has counted it in readSlots. The consumer owns the data until it has counted it in
//     readData or in a descriptor of the ring in the other direction, whichever the producer sees
//     first.
//   - The consumer owns readSlots and readData. It stores them only when it has read a quarter of
//     the ring. Thus the producer's cached copy stays valid for long, and meanwhile only the lines
//     of the fragments move between the processors.
//
// Each side checks what the other one wrote. Whatever the memory contains, neither side accesses
// anything outside of the ring.
type ring struct {
	slots     unsafe.Pointer
	data      unsafe.Pointer
	slotMask  uint64 // number of slots − 1
	dataMask  uint64 // bytes of data − 1
	readSlots *uint64
	readData  *uint64
	// answer is written by the consumer, for memcopy.Writer.
	answer *uint64
}

const (
	lineBytes = 64
	// slotBytes is an odd number of cache lines, so that consecutive slots spread over all sets of
	// a cache. Of one, two, three and five lines, three measured best: a message of 128 bytes
	// arrives sooner in its slot, and one of 256 bytes sooner in the data, which reuses its lines.
	slotBytes = 3 * lineBytes
	slotData  = slotBytes - 8

	inData     = 1<<12 - 1 // as a length
	epochShift = 52
)

// geometry of a ring. Both numbers are powers of two.
type geometry struct {
	slots     uint64
	dataBytes uint64
}

// roundUp rounds up to a power of two.
func roundUp(n uint64) uint64 { return 1 << bits.Len64(n-1) }

func (g geometry) slotArea() uint64 { return g.slots * slotBytes }

func (g geometry) ring(slots, data unsafe.Pointer, readSlots, readData, answer *uint64) ring {
	return ring{
		slots: slots, data: data, slotMask: g.slots - 1, dataMask: g.dataBytes - 1,
		readSlots: readSlots, readData: readData, answer: answer,
	}
}

func (r *ring) slot(i uint64) unsafe.Pointer {
	return unsafe.Add(r.slots, (i&r.slotMask)*slotBytes)
}

// align rounds a position in the data up to a cache line.
func align(n uint64) uint64 { return (n + lineBytes - 1) &^ (lineBytes - 1) }

// producer is the sending end of a ring.
type producer struct {
	ring
	head      uint64 // fragments published
	freed     uint64 // of those, known to be read
	dataHead  uint64 // position for the next fragment, or before the empty rest of a lap
	dataFreed uint64 // position up to which the data is known to be read
	read      uint64 // how far this rank has read the data of the ring in the other direction
	epoch     uint64 // in its place in a word
	// writer copies to the data. timed is the serial number of its last copy, or 0.
	writer memcopy.Writer
	timed  uint16
	// fenced: a publish must be a fence, because the receiver does not issue one, see idle.go.
	fenced bool
}

// reset begins a session on a ring that the consumer has released. It clears the words of the
// previous session, which could be taken for new ones.
func (p *producer) reset(epoch uint32, used bool) {
	if used {
		for i := range p.slotMask + 1 {
			atomic.StoreUint64((*uint64)(p.slot(i)), 0)
		}
	}
	p.head, p.freed, p.dataHead, p.dataFreed, p.read = 0, 0, 0, 0, 0
	p.epoch = uint64(epoch) << epochShift
	p.writer, p.timed = memcopy.Writer{Span: p.dataMask + 1}, 0
}

// result of an attempt to put or get a fragment.
type result uint8

const (
	good result = iota
	// full: there is no room now.
	full
	// stale: a fragment of another epoch, to be dropped.
	stale
	// corrupt: the other side wrote an impossible value.
	corrupt
)

// put publishes a fragment. Its length is at most a quarter of the data part.
func (p *producer) put(tag btl.Tag, hdr, payload []byte) result {
	n := len(hdr) + len(payload)
	if !p.fits(n) {
		return p.putSlow(tag, hdr, payload)
	}
	s := p.slot(p.head)
	fill(unsafe.Add(s, 8), hdr, payload)
	p.commit(s, p.word(tag, uint64(n)))
	return good
}

// fits reports whether a fragment of n bytes fits into the next slot, and the slot is free.
func (p *producer) fits(n int) bool { return n <= slotData && p.head-p.freed <= p.slotMask }

// word makes the word of the next slot.
func (p *producer) word(tag btl.Tag, length uint64) uint64 {
	p.head++
	return p.epoch | length<<40 | uint64(tag)<<32 | uint64(slotSequence(p.head))
}

// commit publishes a slot.
func (p *producer) commit(s unsafe.Pointer, word uint64) {
	if p.fenced {
		fence.Store((*uint64)(s), word)
	} else {
		publish((*uint64)(s), word)
	}
}

// slotsAhead is how many slots ahead a stream of fragments prefetches. The lock of the next post
// waits until the stores of this one have their cache lines. Without the hint, each post therefore
// takes as long as the transfer of a line. Greater distances, up to 8, measured the same or worse.
const slotsAhead = 3

// commitAhead is commit in a stream of fragments. The caller has called word, which counts the
// fragment.
func (p *producer) commitAhead(s unsafe.Pointer, word uint64) {
	if p.fenced {
		fence.Store((*uint64)(s), word)
	} else {
		publishAhead((*uint64)(s), word, p.slot(p.head-1+slotsAhead))
	}
}

// putSlow is put for fragments that do not fit the next slot.
func (p *producer) putSlow(tag btl.Tag, hdr, payload []byte) result {
	n := len(hdr) + len(payload)
	if v := p.slotRoom(); v != good {
		return v
	}
	if n <= slotData {
		return p.put(tag, hdr, payload)
	}
	at, v := p.reserve(padding(len(hdr)), uint64(n))
	if v != good {
		return v
	}
	p.fillData(at, hdr, payload)
	p.commitData(tag, at, uint64(n))
	return good
}

// place returns the address of a position in the data.
func (p *producer) place(at uint64) unsafe.Pointer { return unsafe.Add(p.data, at&p.dataMask) }

// commitData publishes a fragment whose n bytes are in the data, at a position from reserve.
func (p *producer) commitData(tag btl.Tag, at, n uint64) {
	p.dataHead = align(at + n)
	s := p.slot(p.head)
	*(*uint64)(unsafe.Add(s, 8)) = at
	*(*uint64)(unsafe.Add(s, 16)) = n
	*(*uint64)(unsafe.Add(s, 24)) = p.read
	*(*uint64)(unsafe.Add(s, 32)) = uint64(p.timed)
	p.commit(s, p.word(tag, inData))
}

// fill writes a fragment in one piece.
func fill(to unsafe.Pointer, hdr, payload []byte) {
	if len(hdr) == 16 {
		// A copy of variable length is a call. One move of 16 bytes would wait until the stores of
		// the header's halves have reached the cache.
		from := unsafe.Pointer(&hdr[0])
		*(*uint64)(to) = *(*uint64)(from)
		*(*uint64)(unsafe.Add(to, 8)) = *(*uint64)(unsafe.Add(from, 8))
	} else {
		copy(unsafe.Slice((*byte)(to), len(hdr)), hdr)
	}
	to = unsafe.Add(to, len(hdr))
	if len(payload) == 8 {
		*(*[8]byte)(to) = [8]byte(payload)
	} else {
		copy(unsafe.Slice((*byte)(to), len(payload)), payload)
	}
}

// fillData writes a fragment into the data, at a position from reserve.
func (p *producer) fillData(at uint64, hdr, payload []byte) {
	copy(unsafe.Slice((*byte)(p.place(at)), len(hdr)), hdr)
	p.fillPayload(at+uint64(len(hdr)), payload)
}

// fillPayload writes the payload of a fragment to its position in the data.
func (p *producer) fillPayload(at uint64, payload []byte) {
	p.timed = p.writer.Copy(unsafe.Slice((*byte)(p.place(at)), len(payload)), payload, p.answer)
}

// padding returns the number of bytes before a header in the data, so that the payload begins at a
// cache line.
func padding(hdrBytes int) uint64 { return uint64(-hdrBytes) & (lineBytes - 1) }

// room reports whether a fragment of n bytes can be put, whatever the length of its header.
func (p *producer) room(n int) result {
	v := p.slotRoom()
	if v == good && n > slotData {
		_, v = p.reserve(lineBytes-1, uint64(n))
	}
	return v
}

// slotRoom reports whether the next slot is free.
func (p *producer) slotRoom() result {
	if p.head-p.freed <= p.slotMask {
		return good
	}
	if v := p.refresh(); v != good {
		return v
	}
	if p.head-p.freed > p.slotMask {
		return full
	}
	return good
}

// reuseBytes is the longest fragment that goes to the beginning of the data if everything before it
// has been read. Fragments that are answered one by one then stay in the same cache lines. From 8
// KiB on, writing to lines that the consumer has just read costs more than writing to others.
const reuseBytes = 4<<10 + 64

// reserve finds the position of n bytes in one piece, behind pad bytes that stay empty. If
// everything has been read, it may move dataHead and dataFreed to the beginning of the next lap,
// even if no fragment follows.
func (p *producer) reserve(pad, n uint64) (at uint64, v result) {
	at, n = p.dataHead, pad+n
	switch {
	case at == p.dataFreed && at&p.dataMask != 0 && n <= reuseBytes:
		at = (at | p.dataMask) + 1
		p.dataHead, p.dataFreed = at, at
	case at&p.dataMask+n > p.dataMask+1:
		at = (at | p.dataMask) + 1 // the rest of the lap stays empty
	}
	if at+align(n)-p.dataFreed > p.dataMask+1 {
		if v := p.refresh(); v != good {
			return 0, v
		}
		if at+align(n)-p.dataFreed > p.dataMask+1 {
			return 0, full
		}
	}
	return at + pad, good
}

// refresh reads how far the consumer has read.
func (p *producer) refresh() result {
	slots, data := atomic.LoadUint64(p.readSlots), atomic.LoadUint64(p.readData)
	if slots-p.freed > p.head-p.freed || int64(data-p.dataHead) > 0 {
		return corrupt
	}
	p.freed = slots
	p.freeData(data)
	return good
}

// freeData records that the consumer has read the data up to a position. It ignores older and
// impossible positions.
func (p *producer) freeData(read uint64) {
	if read-p.dataFreed <= p.dataHead-p.dataFreed {
		p.dataFreed = read
	}
}

// retract takes back the last fragment. It reports false if the consumer has it: a closing consumer
// marks such fragments with keepLast and claim.
func (p *producer) retract() bool {
	word := (*uint64)(p.slot(p.head - 1))
	w := atomic.LoadUint64(word)
	return uint32(w) == slotSequence(p.head) && atomic.CompareAndSwapUint64(word, w, 0)
}

// consumer is the receiving end of a ring.
type consumer struct {
	// word points to the word of the next slot, and the sequence is the one that it will have.
	word *uint64
	seq  uint32

	ring
	tail     uint64 // fragments read
	told     uint64 // of those, counted in readSlots
	dataTail uint64 // position after the last fragment taken
	dataDone uint64 // the same for the last fragment handed up; the module advances it
	dataDue  uint64 // bytes read and not counted in readData
	epoch    uint64 // in its place in a word
	// longest fragment, in bytes.
	longest uint64
}

// reset begins a session. It must be called before the producer can see that the ring is free.
func (c *consumer) reset() {
	c.tail, c.told, c.dataTail, c.dataDone, c.dataDue = 0, 0, 0, 0, 0
	c.look()
	atomic.StoreUint64(c.readSlots, 0)
	atomic.StoreUint64(c.readData, 0)
}

func (c *consumer) setEpoch(epoch uint32) { c.epoch = uint64(epoch) << epochShift }

// slotSequence is the part of a fragment's number that its slot's word holds. It is never 0,
// because 0 is the word of a slot without a fragment.
func slotSequence(number uint64) uint32 { return uint32(number) | 1<<31 }

// advance moves to the next slot.
func (c *consumer) advance() {
	c.tail++
	c.look()
}

func (c *consumer) look() {
	c.word = (*uint64)(c.slot(c.tail))
	c.seq = slotSequence(c.tail + 1)
}

// ready reports whether there is a next fragment, and returns its word.
func (c *consumer) ready() (w uint64, ok bool) {
	w = atomic.LoadUint64(c.word)
	return w, uint32(w) == c.seq
}

// inSlot reports whether the next fragment, whose word is w, is in its slot and has the right
// epoch. If so, slotted takes it; otherwise getSlow does.
func (c *consumer) inSlot(w uint64) bool {
	return w>>40&inData <= slotData && (w^c.epoch)>>epochShift == 0
}

// slotted takes the next fragment out of its slot. The bytes stay where they are until release.
func (c *consumer) slotted(w uint64) []byte {
	frag := (*[slotData]byte)(unsafe.Add(unsafe.Pointer(c.word), 8))[:w>>40&inData]
	c.advance()
	return frag
}

// get takes the next fragment, whose word is w. frag stays where it is until release. After corrupt
// the ring cannot be used any more.
func (c *consumer) get(w uint64) (tag btl.Tag, frag []byte, v result) {
	if c.inSlot(w) {
		return btl.Tag(w >> 32), c.slotted(w), good
	}
	return c.getSlow(w)
}

// keepLast claims the last fragment that was read without claim. A consumer that is about to close
// calls it, so that the producer does not take that fragment back.
func (c *consumer) keepLast() {
	if c.tail == 0 {
		return
	}
	word := (*uint64)(c.slot(c.tail - 1))
	if w := atomic.LoadUint64(word); uint32(w) == slotSequence(c.tail) {
		atomic.CompareAndSwapUint64(word, w, 0)
	}
}

// claim does what get does, while the producer may take back its last fragment. ok is false if
// there is none.
func (c *consumer) claim() (tag btl.Tag, frag []byte, v result, ok bool) {
	w, ok := c.ready()
	if !ok || !atomic.CompareAndSwapUint64(c.word, w, 0) {
		return 0, nil, good, false
	}
	tag, frag, v = c.get(w)
	return tag, frag, v, true
}

// getSlow is get for fragments that are not in their slot, or not of this epoch.
func (c *consumer) getSlow(w uint64) (tag btl.Tag, frag []byte, v result) {
	from, n := unsafe.Add(unsafe.Pointer(c.word), 8), w>>40&inData
	if n > slotData {
		at, long, ok := c.described(w)
		if !ok {
			return 0, nil, corrupt
		}
		from, n = c.takeData(at, long), long
	}
	c.advance()
	if (w^c.epoch)>>epochShift != 0 {
		return 0, nil, stale
	}
	return btl.Tag(w >> 32), unsafe.Slice((*byte)(from), n), good
}

// described returns the position and length of the next fragment, whose word is w, and which is in
// the data. ok is false if they are impossible.
func (c *consumer) described(w uint64) (at, n uint64, ok bool) {
	// Loaded once each, because the producer could change them after the check.
	at = atomic.LoadUint64((*uint64)(unsafe.Add(unsafe.Pointer(c.word), 8)))
	n = atomic.LoadUint64((*uint64)(unsafe.Add(unsafe.Pointer(c.word), 16)))
	first := at &^ (lineBytes - 1) // the cache line in which it begins
	ok = w>>40&inData == inData && n <= c.longest && first-c.dataTail <= c.dataMask && at&c.dataMask+n <= c.dataMask+1 &&
		(first&c.dataMask == 0 || align(at+n)-c.dataTail <= c.dataMask+1)
	return at, n, ok
}

// dataRead returns how far the producer of the next fragment has read the data of the ring in the
// other direction. The next fragment is in the data.
func (c *consumer) dataRead() uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Add(unsafe.Pointer(c.word), 24)))
}

// timed returns the serial number of the copy of the next fragment, if the consumer must measure
// how long it takes to read it. Otherwise it returns 0. The next fragment is in the data.
func (c *consumer) timed() uint16 {
	return uint16(atomic.LoadUint64((*uint64)(unsafe.Add(unsafe.Pointer(c.word), 32))))
}

// answerTimed tells the producer how long it took to read a fragment.
func (c *consumer) answerTimed(serial uint16, ticks uint64) {
	atomic.StoreUint64(c.answer, memcopy.Answer(serial, ticks))
}

// place returns the address of a position in the data.
func (c *consumer) place(at uint64) unsafe.Pointer { return unsafe.Add(c.data, at&c.dataMask) }

// takeData takes the next fragment, of n bytes, out of the data, and returns its address.
func (c *consumer) takeData(at, n uint64) unsafe.Pointer {
	c.dataTail = align(at + n)
	c.dataDue += c.dataTail - at&^(lineBytes-1)
	return c.place(at)
}

// due reports whether it is time for a release, because a quarter of the ring has been read.
func (c *consumer) due() bool {
	return c.tail-c.told > c.slotMask>>2 || c.dataDue > c.dataMask>>2
}

// untilDue returns the number of fragments in slots after which due is true.
func (c *consumer) untilDue() int { return int(c.slotMask>>2 + 1 - (c.tail - c.told)) }

// release gives the room of read fragments back to the producer.
func (c *consumer) release() {
	c.told, c.dataDue = c.tail, 0
	atomic.StoreUint64(c.readSlots, c.told)
	atomic.StoreUint64(c.readData, c.dataTail)
}
