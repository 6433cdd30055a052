package sm

import (
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/internal/fence"
	"github.com/mpigo/mpigo/internal/memcopy"
)

// A ring carries fragments from one producer to one consumer, through memory that both have mapped,
// each at an address of its own. It has slots of slotBytes and a data part.
//
// A slot begins with its word, and the word is all that the consumer polls:
//
//	bits  0–31  slotSequence of the number of the fragment, from 1; 0 if it was claimed
//	bits 32–39  tag
//	bits 40–51  length, if the fragment is in the slot; else inData
//	bits 52–63  epoch, its low 12 bits
//
// A fragment of up to slotData bytes follows the word. For a longer one the slot holds its position
// and length, how far the producer has read the data of the ring in the other direction, and the
// number under which the consumer is to measure how long it takes to read (package memcopy). The
// bytes are in the data part, in one piece. The header ends where a cache line does, because copies
// of whole lines are faster. Positions count from the beginning of the session, and their low bits
// are the place. With a lap for each short fragment they wrap after some weeks, so only their
// differences are compared.
//
// Who may write:
//
//   - Slots and data are the producer's until it stores the word. Then slots are the consumer's
//     until it has counted them in readSlots, and data until it has counted them in readData or in
//     a descriptor of the ring in the other direction, whichever the producer sees first.
//   - readSlots and readData are the consumer's. It stores them when a quarter of the ring has been
//     read, not each time: the producer's cached copy stays valid for long, and in between only the
//     lines of the fragments move between the processors.
//
// Either side checks what the other one wrote: whatever is in the memory, neither touches anything
// outside of the ring.
type ring struct {
	slots     unsafe.Pointer
	data      unsafe.Pointer
	slotMask  uint64 // number of slots − 1
	dataMask  uint64 // bytes of data − 1
	readSlots *uint64
	readData  *uint64
	// answer is the consumer's, for memcopy.Writer.
	answer *uint64
}

const (
	lineBytes = 64
	// slotBytes is an odd number of cache lines, so that consecutive slots spread over all sets of
	// a cache. Of one, two, three and five lines, three measured best: a message of 128 bytes
	// arrives sooner in its slot, one of 256 bytes sooner in the data, which reuses its lines.
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

// roundUp is the next power of two.
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
	dataHead  uint64 // position for the next fragment, or before the rest of a lap that stays empty
	dataFreed uint64 // position up to which the data is known to be read
	read      uint64 // how far this rank has read the data of the ring in the other direction
	epoch     uint64 // in its place in a word
	// writer copies to the data. timed is the serial number of its last copy, or 0.
	writer memcopy.Writer
	timed  uint16
	// fenced: a publish has to be a fence, because the receiver does not issue one, see idle.go.
	fenced bool
}

// reset begins a session on a ring that the consumer has released. It clears the words of the
// session before, which could pass for new ones.
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
	// corrupt: the other side wrote what cannot be right.
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

// fits reports whether a fragment of n bytes goes into the next slot, and the slot is free.
func (p *producer) fits(n int) bool { return n <= slotData && p.head-p.freed <= p.slotMask }

// word is the word of the next slot.
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

// slotsAhead is how far before its use a slot of a stream of fragments is asked for. The lock of
// the next post waits until the stores of this one have their lines, so without the hint each post
// takes as long as the transfer of a line. Farther slots, to 8, measured the same or worse.
const slotsAhead = 3

// commitAhead is commit in a stream of fragments. word has counted the fragment.
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

// place is where a position in the data is.
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
		// A copy of variable length is a call, and one move of 16 bytes has to wait until the
		// stores of the header's halves have reached the cache.
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

// padding is the number of bytes before a header in the data, so that the payload after it begins
// at a cache line.
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
// has been read. Fragments that are answered one by one then stay in the same lines of the caches.
// From 8 KiB on, it costs more to write to lines that the consumer has just read than to others.
const reuseBytes = 4<<10 + 64

// reserve finds the position of n bytes in one piece, behind pad bytes that stay empty. It may move
// dataHead, and dataFreed with it, to the beginning of the next lap if everything has been read,
// whether a fragment follows or not.
func (p *producer) reserve(pad, n uint64) (at uint64, v result) {
	at, n = p.dataHead, pad+n
	switch {
	case at == p.dataFreed && at&p.dataMask != 0 && n <= reuseBytes:
		at = (at | p.dataMask) + 1
		p.dataHead, p.dataFreed = at, at
	case at&p.dataMask+n > p.dataMask+1:
		at = (at | p.dataMask) + 1 // the rest up to the end stays empty
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

// refresh reads how far the consumer has come.
func (p *producer) refresh() result {
	slots, data := atomic.LoadUint64(p.readSlots), atomic.LoadUint64(p.readData)
	if slots-p.freed > p.head-p.freed || int64(data-p.dataHead) > 0 {
		return corrupt
	}
	p.freed = slots
	p.freeData(data)
	return good
}

// freeData notes that the consumer has read the data up to a position. It ignores an older one, and
// what cannot be.
func (p *producer) freeData(read uint64) {
	if read-p.dataFreed <= p.dataHead-p.dataFreed {
		p.dataFreed = read
	}
}

// retract takes back the last fragment. It reports false if the consumer has it, which a consumer
// that is closing says by keepLast and claim.
func (p *producer) retract() bool {
	word := (*uint64)(p.slot(p.head - 1))
	w := atomic.LoadUint64(word)
	return uint32(w) == slotSequence(p.head) && atomic.CompareAndSwapUint64(word, w, 0)
}

// consumer is the receiving end of a ring.
type consumer struct {
	// word of the next slot, and the sequence that it will have.
	word *uint64
	seq  uint32

	ring
	tail     uint64 // fragments read
	told     uint64 // of those, counted in readSlots
	dataTail uint64 // position after the last fragment taken
	dataDone uint64 // the same of the last fragment that was handed up; the module advances it
	dataDue  uint64 // bytes read and not counted in readData
	epoch    uint64 // in its place in a word
	// longest fragment, in bytes.
	longest uint64
}

// reset begins a session. It has to be called before the producer can see that the ring is free.
func (c *consumer) reset() {
	c.tail, c.told, c.dataTail, c.dataDone, c.dataDue = 0, 0, 0, 0, 0
	c.look()
	atomic.StoreUint64(c.readSlots, 0)
	atomic.StoreUint64(c.readData, 0)
}

func (c *consumer) setEpoch(epoch uint32) { c.epoch = uint64(epoch) << epochShift }

// slotSequence is what a slot's word has of the number of its fragment: never 0, which is the word
// of a slot without one.
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

// inSlot reports whether the next fragment, whose word is w, is in its slot and of the right epoch:
// then slotted takes it, otherwise getSlow does.
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

// keepLast claims the fragment that was read last without claim. A consumer that is about to close
// calls it: the producer may not have looked yet, and must not take that fragment back.
func (c *consumer) keepLast() {
	if c.tail == 0 {
		return
	}
	word := (*uint64)(c.slot(c.tail - 1))
	if w := atomic.LoadUint64(word); uint32(w) == slotSequence(c.tail) {
		atomic.CompareAndSwapUint64(word, w, 0)
	}
}

// claim is get while the producer may take back its last fragment. ok is false if there is none.
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
// the data. ok is false if they cannot be right.
func (c *consumer) described(w uint64) (at, n uint64, ok bool) {
	// Loaded once each, because the producer could change them after the check.
	at = atomic.LoadUint64((*uint64)(unsafe.Add(unsafe.Pointer(c.word), 8)))
	n = atomic.LoadUint64((*uint64)(unsafe.Add(unsafe.Pointer(c.word), 16)))
	first := at &^ (lineBytes - 1) // the line that it begins in
	ok = w>>40&inData == inData && n <= c.longest && first-c.dataTail <= c.dataMask && at&c.dataMask+n <= c.dataMask+1 &&
		(first&c.dataMask == 0 || align(at+n)-c.dataTail <= c.dataMask+1)
	return at, n, ok
}

// dataRead is how far the producer of the next fragment, which is in the data, has read the data of
// the ring in the other direction.
func (c *consumer) dataRead() uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Add(unsafe.Pointer(c.word), 24)))
}

// timed is the serial number of the copy of the next fragment, which is in the data, if the
// consumer has to measure how long it takes to read it; else 0.
func (c *consumer) timed() uint16 {
	return uint16(atomic.LoadUint64((*uint64)(unsafe.Add(unsafe.Pointer(c.word), 32))))
}

// answerTimed tells the producer how long it took to read a fragment.
func (c *consumer) answerTimed(serial uint16, ticks uint64) {
	atomic.StoreUint64(c.answer, memcopy.Answer(serial, ticks))
}

// place is where a position in the data is.
func (c *consumer) place(at uint64) unsafe.Pointer { return unsafe.Add(c.data, at&c.dataMask) }

// takeData takes the next fragment, of n bytes, out of the data, and returns where it is.
func (c *consumer) takeData(at, n uint64) unsafe.Pointer {
	c.dataTail = align(at + n)
	c.dataDue += c.dataTail - at&^(lineBytes-1)
	return c.place(at)
}

// due reports whether it is time for a release: a quarter of the ring has been read.
func (c *consumer) due() bool {
	return c.tail-c.told > c.slotMask>>2 || c.dataDue > c.dataMask>>2
}

// untilDue is the number of fragments in slots after which due is true.
func (c *consumer) untilDue() int { return int(c.slotMask>>2 + 1 - (c.tail - c.told)) }

// release gives what was read back to the producer.
func (c *consumer) release() {
	c.told, c.dataDue = c.tail, 0
	atomic.StoreUint64(c.readSlots, c.told)
	atomic.StoreUint64(c.readData, c.dataTail)
}
