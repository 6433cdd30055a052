package sm

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
	"github.com/mpigo/mpigo/internal/memcopy"
	"github.com/mpigo/mpigo/progress"
)

var (
	_ btl.Endpoint    = (*endpoint)(nil)
	_ btl.ShortSender = (*endpoint)(nil)
	_ btl.RunReceiver = (*endpoint)(nil)
	_ btl.StaleSender = (*endpoint)(nil)
)

// endpoint is this rank's end of one incarnation of the connection to a peer.
type endpoint struct {
	// The fields that a post reads are together. plain: posts go straight into the ring.
	plain     bool
	blocked   bool    // the ring was full; Arm then asks for a wakeup
	seen      uint32  // attention when last loaded, without the asleep bit
	attention *uint32 // of the peer
	longest   int
	out       producer

	// Its Pending queue has the Gets that later progress calls continue. All other operations
	// complete in the post.
	base.Endpoint
	m      *module
	p      *peer
	remote *remoteSegment      // nil if the peer could not be reached
	isOpen bool                // this end's session has begun
	_      [2 * lineBytes]byte // modules of one process must not share lines
}

func (m *module) newEndpoint(p *peer, epoch uint32) *endpoint {
	e := &endpoint{Endpoint: base.MakeEndpoint(p.rank, epoch), m: m, p: p, longest: int(m.own.longest)}
	e.Return(btl.Path{Peer: p.rank}) // its failure is reported in any case
	return e
}

// Send implements btl.Endpoint.
func (e *endpoint) Send(op *btl.Op) error {
	if e.State() != btl.Up {
		return btl.ErrFailed
	}
	if op.HdrLen > btl.MaxHeaderBytes || op.Len() > e.longest {
		return btl.ErrTooLong
	}
	if !e.plain && !e.passable(op.Len()) || !e.send(op.Tag, op.Hdr[:op.HdrLen], op.Payload) {
		return btl.ErrResource
	}
	op.Done(op, nil)
	return nil
}

// SendInline implements btl.Inliner.
func (e *endpoint) SendInline(tag btl.Tag, hdr, payload []byte) bool {
	n := len(hdr) + len(payload)
	if !e.plain || !e.out.fits(n) {
		return e.sendSlow(tag, hdr, payload)
	}
	// This is producer.put without the call.
	s := e.out.slot(e.out.head)
	fill(unsafe.Add(s, 8), hdr, payload)
	e.out.commit(s, e.out.word(tag, uint64(n)))
	// The fragment is delivered, unless the receiver has just stopped reading.
	if atomic.LoadUint32(e.attention) != e.seen {
		return e.attend()
	}
	return true
}

// SendShort implements btl.ShortSender.
func (e *endpoint) SendShort(tag btl.Tag, first, second uint64, payload []byte) bool {
	n := shortHeader + len(payload)
	if !e.plain {
		return false
	}
	switch {
	case e.out.fits(n):
		s := e.out.slot(e.out.head)
		fillShort(unsafe.Add(s, 8), first, second, payload)
		e.out.commitAhead(s, e.out.word(tag, uint64(n)))
	case n > slotData && n <= e.longest && e.out.head-e.out.freed <= e.out.slotMask:
		at, v := e.out.reserve(padding(shortHeader), uint64(n))
		if v != good {
			return false
		}
		e.out.read = e.dataRead()
		to := e.out.place(at)
		binary.LittleEndian.PutUint64((*[8]byte)(to)[:], first)
		binary.LittleEndian.PutUint64((*[8]byte)(unsafe.Add(to, 8))[:], second)
		e.out.fillPayload(at+shortHeader, payload)
		e.out.commitData(tag, at, uint64(n))
	default:
		return false
	}
	if atomic.LoadUint32(e.attention) != e.seen {
		return e.attend()
	}
	return true
}

// dataRead returns how far this rank has read the data of the peer's ring in the same incarnation.
func (e *endpoint) dataRead() uint64 {
	if in := e.p.in; in != nil && in.reads == e.Epoch() {
		return in.dataDone
	}
	return 0
}

// fillShort writes a short fragment in one piece.
func fillShort(to unsafe.Pointer, first, second uint64, payload []byte) {
	binary.LittleEndian.PutUint64((*[8]byte)(to)[:], first)
	binary.LittleEndian.PutUint64((*[8]byte)(unsafe.Add(to, 8))[:], second)
	to = unsafe.Add(to, shortHeader)
	if len(payload) == 8 {
		*(*[8]byte)(to) = [8]byte(payload)
	} else {
		copy(unsafe.Slice((*byte)(to), len(payload)), payload)
	}
}

// takeSlot copies the next fragment to buf, as ReceiveShort does, if it is in its slot. It returns
// the length of its payload, or −1. The caller advances.
func (c *consumer) takeSlot(polls int, tag btl.Tag, first, second uint64, buf []byte) int {
	want := c.epoch | uint64(tag)<<32 | uint64(c.seq)
	w := atomic.LoadUint64(c.word)
	for uint32(w) != c.seq {
		if polls--; polls <= 0 {
			return -1
		}
		progress.Relax()
		w = atomic.LoadUint64(c.word)
	}
	n, from := w>>40&inData, unsafe.Add(unsafe.Pointer(c.word), 8)
	payload := n - shortHeader
	if (w^want)&^(inData<<40) != 0 || n > slotData || payload > uint64(len(buf)) || !hasWords(from, first, second) {
		return -1
	}
	copyShort(buf, unsafe.Add(from, shortHeader), payload)
	return int(payload)
}

// takeData is takeSlot for a fragment that is in the data.
func (e *endpoint) takeData(in *inbound, tag btl.Tag, first, second uint64, buf []byte) int {
	w := atomic.LoadUint64(in.word)
	if uint32(w) != in.seq || btl.Tag(w>>32) != tag || (w^in.epoch)>>epochShift != 0 || w>>40&inData <= slotData {
		return -1
	}
	at, n, ok := in.described(w)
	payload := n - shortHeader
	if !ok || payload > uint64(len(buf)) { // the next progress call reports an error
		return -1
	}
	from := in.place(at)
	timed, begin := in.timed(), uint64(0)
	if timed != 0 {
		begin = memcopy.Ticks()
	}
	if !hasWords(from, first, second) {
		return -1
	}
	copyShort(buf, unsafe.Add(from, shortHeader), payload)
	if timed != 0 {
		in.answerTimed(timed, memcopy.Ticks()-begin)
	}
	e.out.freeData(in.dataRead())
	in.takeData(at, n)
	in.dataDone = in.dataTail
	return int(payload)
}

// hasWords reports whether a fragment begins with two words.
func hasWords(from unsafe.Pointer, first, second uint64) bool {
	return binary.LittleEndian.Uint64((*[8]byte)(from)[:]) == first &&
		binary.LittleEndian.Uint64((*[8]byte)(unsafe.Add(from, 8))[:]) == second
}

// copyShort copies n bytes, often 8.
func copyShort(to []byte, from unsafe.Pointer, n uint64) {
	if n == 8 {
		*(*[8]byte)(to) = *(*[8]byte)(from)
	} else {
		copy(to, unsafe.Slice((*byte)(from), n))
	}
}

// ReceiveShort implements btl.ShortReceiver.
func (e *endpoint) ReceiveShort(polls int, tag btl.Tag, first, second uint64, buf []byte) int {
	in := e.p.in
	if !e.plain || in == nil || in.reads != e.Epoch() {
		return -1
	}
	n := in.takeSlot(polls, tag, first, second, buf)
	if n < 0 {
		if n = e.takeData(in, tag, first, second, buf); n < 0 {
			return n
		}
	}
	in.advance()
	if in.due() {
		e.m.release(in)
	}
	return n
}

// ReceiveRun implements btl.RunReceiver. It takes only fragments that are in slots.
func (e *endpoint) ReceiveRun(polls, most int, tag btl.Tag, first, second uint64, buf []byte, to btl.Run) (taken int) {
	in := e.p.in
	if !e.plain || in == nil || in.reads != e.Epoch() {
		return -1
	}
	most = min(most, in.untilDue())
	for more := true; more && taken < most; taken++ {
		n := in.takeSlot(polls, tag, first, second, buf)
		if n < 0 {
			break
		}
		in.advance()
		second += 1 << 32
		buf, more = to.Taken(n)
	}
	if in.due() {
		e.m.release(in)
	}
	return taken
}

// shortHeader is the length of the header that SendShort and ReceiveShort take in two words.
const shortHeader = 16

// sendSlow is SendInline for fragments that do not fit the next slot, and for endpoints that are
// not plain.
func (e *endpoint) sendSlow(tag btl.Tag, hdr, payload []byte) bool {
	n := len(hdr) + len(payload)
	if n > e.longest || !e.plain && !(e.State() == btl.Up && e.passable(n)) {
		return false
	}
	return e.send(tag, hdr, payload)
}

// send publishes a fragment, and reports whether it did.
func (e *endpoint) send(tag btl.Tag, hdr, payload []byte) bool {
	e.out.read = e.dataRead()
	if v := e.out.put(tag, hdr, payload); v != good {
		e.notPublished(v)
		return false
	}
	if atomic.LoadUint32(e.attention) != e.seen {
		return e.attend()
	}
	return true
}

// attend acts on the peer's attention word after a fragment was published. It reports false if the
// fragment was taken back.
func (e *endpoint) attend() bool {
	e.remote.wake()
	if !e.look() {
		return true
	}
	taken := !e.out.retract()
	e.rejected()
	return taken
}

// notPublished acts on the reason why a fragment was not published.
func (e *endpoint) notPublished(v result) {
	switch {
	case e.refused():
		e.rejected()
	case v == corrupt:
		e.failDeferred(e.m.NewError(e.p.rank, btl.ClassProtocol, btl.SideRemote, "read counters", nil), nil)
	case !e.blocked:
		e.blocked = true
		e.m.blocked = append(e.m.blocked, e)
	}
}

// refused reports whether the peer no longer reads this end's session.
func (e *endpoint) refused() bool {
	s := loadSession(e.remote.out.reader)
	return s.epoch() >= e.Epoch() && s.state() >= closing || atomic.LoadUint32(e.remote.closed) != 0
}

// look does what refused does, and records the attention word for which the result is valid. It
// loads that word first, because the peer changes it last.
func (e *endpoint) look() bool {
	e.seen = atomic.LoadUint32(e.attention) &^ asleep
	return e.refused()
}

// rejected defers the failure of the endpoint, because the peer has stopped reading.
func (e *endpoint) rejected() {
	e.failDeferred(e.m.rejected(e.p), nil)
}

func (m *module) rejected(p *peer) *btl.Error {
	switch {
	case m.hasClosed(p):
		return m.NewError(p.rank, btl.ClassClosed, btl.SideRemote, "", base.ErrPeerClosed)
	case p.dead:
		return m.NewError(p.rank, btl.ClassPeerGone, btl.SideRemote, "process ended", nil)
	}
	return m.NewError(p.rank, btl.ClassPath, btl.SideRemote, "the peer's end failed", nil)
}

// hasClosed checks whether the peer's module was closed.
func (m *module) hasClosed(p *peer) bool {
	if !p.closed && p.remote != nil && atomic.LoadUint32(p.remote.closed) != 0 {
		p.closed = true
		m.unwatch(p)
	}
	return p.closed
}

// begin begins this end's session, if the peer is done with the previous one. It reports whether
// the session has begun.
func (e *endpoint) begin() bool {
	if e.isOpen {
		return true
	}
	if e.remote == nil {
		return false
	}
	out := &e.remote.out
	e.attention = e.remote.attention
	if e.look() {
		e.rejected()
		return false
	}
	reader, before := loadSession(out.reader), loadSession(out.session)
	if before != 0 && (reader.state() != done || reader.epoch() < before.epoch()) {
		return false
	}
	l := e.m.own.layout
	e.out.ring = out.ringOf(l)
	e.out.fenced = !publishFences && !(e.m.fences && e.remote.address.fences)
	e.out.reset(e.Epoch(), before != 0)
	copy(out.mem[ctlAddress:ctlAddress+addressBytes], e.m.Address())
	storeSession(out.session, sessionOf(e.Epoch(), open))
	e.isOpen = true
	e.update()
	e.m.tell(e.p)
	return true
}

// update decides whether posts go straight into the ring.
func (e *endpoint) update() {
	e.plain = e.isOpen && e.Accepts()
}

// ready reports whether an endpoint that is Up can take anything now.
func (e *endpoint) ready() bool {
	return e.Deferred() == nil && e.begin()
}

// passable reports whether a fragment of n bytes can be published now.
func (e *endpoint) passable(n int) bool {
	if !e.ready() {
		return false
	}
	if v := e.out.room(n); v != good {
		e.notPublished(v)
		return false
	}
	return true
}

// failDeferred makes the next progress call fail the endpoint, at operation op if that is not nil.
func (e *endpoint) failDeferred(err *btl.Error, op *btl.Op) {
	if e.m.DeferFailure(e, err, op) {
		e.update()
	}
}

// Rebind implements btl.Endpoint. A fragment is copied when it is accepted, and a Get does not read
// its payload.
func (e *endpoint) Rebind(op *btl.Op, payload []byte) bool {
	op.Payload = payload
	return true
}

// Fail implements btl.Endpoint.
func (e *endpoint) Fail(cause error) { e.m.FailBecause(e, cause) }

// Stop implements base.Incarnation.
func (e *endpoint) Stop() { e.update() }

// tearDown ends the sessions of a Failed endpoint, hands up what had arrived, and returns the
// number of events.
func (m *module) tearDown(e *endpoint) int {
	if e.isOpen {
		storeSession(e.remote.out.session, sessionOf(e.Epoch(), failed))
	}
	n := 0
	if m.listen(e.p) == nil {
		n += m.finish(e.p, e.Epoch())
	}
	return n + m.Flush(e, &e.Pending)
}

// SendStale implements btl.StaleSender. It is for tests.
func (e *endpoint) SendStale(epoch uint32, tag btl.Tag, frag []byte) bool {
	if e.State() != btl.Up || !e.passable(len(frag)) {
		return false
	}
	now := e.out.epoch
	e.out.epoch = uint64(epoch) << epochShift
	sent := e.send(tag, frag, nil)
	e.out.epoch = now
	return sent
}
