package ibverbs

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// A peer that sends much gets a ring: memory of the receiver into which the peer writes its small
// fragments. The receiver finds them there without a completion. A fragment is a remote write with
// immediate data. Therefore it takes a receive and a credit like any message. Its completion is in
// order with all others, wakes a sleeping receiver, and shows what has arrived if memory alone does
// not. If the receiver finds the next fragment in memory first, it delivers the fragment then, and
// the completion only gives the receive back.
//
// The messages of a connection that take a receive are numbered from 1. Message n is written to
// slot n modulo the number of slots, which equals the number of receives. Therefore a slot is free
// when the peer may send: a receive was given back, and all messages before it were delivered.
//
// A fragment ends where its slot does:
//
//	header, payload | length 2, credits 2, tag 1, control credits 1, zero 2 | number 4, check 4
//
// The receiver relies on the last 8 bytes, which are aligned, to appear at once. Usually they
// appear last. However, networks with adaptive routing may place the packets of a write in any
// order, and a software device may copy with an instruction that guarantees no order. Therefore the
// last 4 bytes are a checksum of all bytes before them: if it is wrong, the fragment is not
// complete yet. Once the completion has arrived, the checksum must be right.
//
// Writes without immediate data would need no completion at the receiver. But nothing would wake a
// sleeping receiver, so it would have to close the ring, and wait for the peer's answer, before
// each sleep.

const (
	tailBytes = headBytes // so that a fragment is as long in a slot as it is in a receive
	// slotBytes is enough for most messages that wait for each other, with their headers.
	slotBytes = 1024
	// ringBodyBytes is the length of the offer of a ring behind its head: address 8, remote key 4,
	// bytes of a slot 4.
	ringBodyBytes = 16
	maxSlotBytes  = 1 << 16
)

// outRing describes a peer's ring; it is zero if there is none.
type outRing struct {
	addr      uint64
	rkey      uint32
	slotBytes uint32
}

// appendTo appends the body of the offer.
func (r outRing) appendTo(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, r.addr)
	b = binary.LittleEndian.AppendUint32(b, r.rkey)
	return binary.LittleEndian.AppendUint32(b, r.slotBytes)
}

// parseRing reads the body of an offer of a ring with this number of slots. The peer's device
// checks whether the address and the key are valid.
func parseRing(b []byte, slots int) (r outRing, ok bool) {
	if len(b) != ringBodyBytes {
		return outRing{}, false
	}
	r.addr = binary.LittleEndian.Uint64(b)
	r.rkey = binary.LittleEndian.Uint32(b[8:])
	r.slotBytes = binary.LittleEndian.Uint32(b[12:])
	ok = r.addr%8 == 0 && r.slotBytes%8 == 0 && r.slotBytes > tailBytes && r.slotBytes <= maxSlotBytes &&
		r.addr+uint64(slots)*uint64(r.slotBytes) > r.addr
	return r, ok
}

// tail follows a fragment in a slot.
type tail struct {
	length, credits int
	tag             btl.Tag
	controlCredits  int
}

// writeTail ends the fragment in b, which has room for the tail.
func writeTail(b []byte, t tail, number uint64) {
	at := len(b) - tailBytes
	binary.LittleEndian.PutUint16(b[at:], uint16(t.length))
	binary.LittleEndian.PutUint16(b[at+2:], uint16(t.credits))
	b[at+4], b[at+5], b[at+6], b[at+7] = byte(t.tag), byte(t.controlCredits), 0, 0
	binary.LittleEndian.PutUint32(b[at+8:], uint32(number))
	binary.LittleEndian.PutUint32(b[at+12:], checkOf(b[:at+8]))
}

// checkOf returns a checksum for which processors have an instruction: 1 KiB takes about 70 ns. The
// checksum of Ethernet would take 300 ns.
func checkOf(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// checkBehind continues the checksum of the bytes before a word. It takes a word instead of a
// slice, because the slice would be allocated on the heap.
func checkBehind(check uint32, word uint64) uint32 {
	check = ^check
	for range 8 {
		check = castagnoli[byte(check)^byte(word)] ^ check>>8
		word >>= 8
	}
	return ^check
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli) // never written

// readSlot returns the message with a number from a slot whose last 8 bytes were word. ok is false
// if it is not complete. Everything is checked, because the peer can write there at any time.
func readSlot(slot []byte, word, number uint64) (frag []byte, t tail, ok bool) {
	if uint32(word) != uint32(number) {
		return nil, tail{}, false
	}
	at := len(slot) - tailBytes
	// Loaded once, because a device may store there after the last word.
	rest := stored((*uint64)(unsafe.Pointer(&slot[at])))
	t = tail{length: int(uint16(rest)), credits: int(uint16(rest >> 16)), tag: btl.Tag(rest >> 32), controlCredits: int(uint8(rest >> 40))}
	if t.length > at || rest>>48 != 0 || checkBehind(checkOf(slot[at-t.length:at]), rest) != uint32(word>>32) {
		return nil, tail{}, false
	}
	return slot[at-t.length : at : at], t, true
}

// writes reports whether a fragment of n bytes, with its head or tail, fits the peer's ring.
func (e *endpoint) writes(n int) bool { return n <= int(e.out.slotBytes) }

// nameWrite makes wr the write of the next message. The memory of wr is a fragment of n bytes.
func (e *endpoint) nameWrite(wr *verbs.SendWR, n int) {
	next := e.sent + 1
	slot := next % uint64(int(e.remote.recvDepth)+controlDepth)
	wr.Opcode, wr.Imm = verbs.WRRDMAWriteWithImm, uint32(next)
	wr.RemoteAddr, wr.RKey = e.out.addr+(slot+1)*uint64(e.out.slotBytes)-uint64(n), e.out.rkey
}

// wantsRing reports whether to offer the peer a ring, because it has sent enough and has none.
func (e *endpoint) wantsRing() bool {
	m := e.m
	return e.small >= m.cfg.EagerAfter && e.in == nil && len(m.rings) < m.cfg.EagerPeers
}

// offerRing makes a ring and offers it to the peer, if that is possible now. The last control
// message is kept for GOODBYE.
func (e *endpoint) offerRing() {
	m := e.m
	if e.controlCredits <= 1 || e.full() {
		return // later fragments of the peer try again
	}
	in, err := newSlab(m.h.pd, e.window+controlDepth, slotBytes, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	if err != nil {
		e.small = math.MinInt // no memory can be registered: no ring for this connection
		return
	}
	e.in = in
	if !e.sendControl(wireRing) {
		_ = in.close()
		e.in = nil
		return
	}
	m.rings = append(m.rings, e)
	e.locateNext()
}

// locateNext finds the slot of the next message, and its last word.
func (e *endpoint) locateNext() {
	e.slot = e.in.buffer(int(e.next % uint64(e.in.count)))
	e.word = (*uint64)(unsafe.Pointer(&e.slot[len(e.slot)-8]))
}

// nextMessage makes the peer's next message the one after it.
func (e *endpoint) nextMessage() {
	e.next++
	if e.in != nil {
		e.locateNext()
	}
}

// shown loads the word that the device usually stores last.
func (e *endpoint) shown() uint64 { return stored(e.word) }

// stored loads an aligned word of a slot. The peer has written it in little-endian order.
func stored(word *uint64) uint64 {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], atomic.LoadUint64(word))
	return binary.LittleEndian.Uint64(b[:])
}

// pollRings delivers the fragments in rings, a batch of each ring at most.
func (m *module) pollRings() int {
	n := 0
	for i := 0; i < len(m.rings); i++ { // the list may get shorter
		e := m.rings[i]
		for range pollBatch {
			word := e.shown()
			if uint32(word) != uint32(e.next) || e.State() != btl.Up || !e.takeAhead(word) {
				break
			}
			n++
		}
	}
	return n
}

// deliverRest delivers the fragments in the ring when no completions come any more, because their
// sends may have succeeded.
func (e *endpoint) deliverRest() {
	for e.in != nil && e.takeAhead(e.shown()) {
	}
}

// takeAhead delivers the next message in the ring before its completion, if it is complete.
func (e *endpoint) takeAhead(word uint64) bool {
	// Each message takes a receive until its completion, so no correct peer sends more than there
	// are receives.
	if e.ahead >= e.in.count {
		return false
	}
	frag, t, ok := readSlot(e.slot, word, e.next)
	if !ok {
		return false
	}
	e.ahead++
	e.m.ahead++
	e.take(frag, t)
	return true
}

// take delivers the next fragment. It clears the slot's last word, so that the fragment is not
// found again if its number comes again.
func (e *endpoint) take(frag []byte, t tail) {
	atomic.StoreUint64(e.word, 0)
	e.nextMessage()
	if e.spend(wireFrag) && e.credit(t.credits, t.controlCredits) {
		e.m.Events.Arrived(e.m, e.p.rank, t.tag, frag)
	}
}

// written handles the completion of a write, in receive i.
func (e *endpoint) written(i uint32, wc *verbs.WC) {
	number := e.next - uint64(e.ahead)
	switch {
	case e.in == nil || wc.Imm != uint32(number):
		e.protocolError("write with number %d, but %d is next", wc.Imm, uint32(number))
		return
	case e.ahead > 0:
		e.ahead--
	default:
		frag, t, ok := readSlot(e.slot, e.shown(), number)
		if !ok {
			e.protocolError("message %d is not in its ring", number)
			return
		}
		e.take(frag, t)
	}
	e.again(i, wireFrag)
}

// closeRing releases the ring's memory, once no device can write there any more.
func (e *endpoint) closeRing() error {
	if e.in == nil {
		return nil
	}
	in := e.in
	e.in, e.slot, e.word = nil, nil, nil
	return in.close()
}
