package sm

import (
	"sync/atomic"
	"unsafe"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

var (
	_ btl.Endpoint    = (*endpoint)(nil)
	_ btl.Inliner     = (*endpoint)(nil)
	_ btl.StaleSender = (*endpoint)(nil)
)

// endpoint is our end of one incarnation of the connection to a peer.
type endpoint struct {
	// What a post reads, together. plain: nothing stands against the short way.
	plain     bool
	blocked   bool    // the ring was full; Arm then asks to be woken
	seen      uint32  // attention as of our last look, awake
	attention *uint32 // of the peer
	longest   int
	out       producer

	// Its Pending are Gets that go on in later progress calls. All other operations complete in the
	// post.
	base.Endpoint
	m      *module
	p      *peer
	far    *farSegment         // nil if the peer could not be reached
	isOpen bool                // our session has begun
	_      [2 * lineBytes]byte // modules of one process must not share lines
}

func (m *module) newEndpoint(p *peer, epoch uint32) *endpoint {
	return &endpoint{Endpoint: base.MakeEndpoint(p.rank, epoch, true), m: m, p: p, longest: int(m.own.longest)}
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
	// producer.put, spelt out: a call less.
	s := e.out.slot(e.out.head)
	fill(unsafe.Add(s, 8), hdr, payload)
	e.out.commit(s, e.out.word(tag, uint64(n)))
	// In the receiver's ring it is delivered, unless the receiver has just turned away.
	if atomic.LoadUint32(e.attention) != e.seen {
		return e.attend()
	}
	return true
}

// sendSlow is SendInline for what is not short, or not simple.
func (e *endpoint) sendSlow(tag btl.Tag, hdr, payload []byte) bool {
	n := len(hdr) + len(payload)
	if n > e.longest || !e.plain && !(e.State() == btl.Up && e.passable(n)) {
		return false
	}
	return e.send(tag, hdr, payload)
}

// send publishes a fragment, and reports whether it did.
func (e *endpoint) send(tag btl.Tag, hdr, payload []byte) bool {
	if v := e.out.put(tag, hdr, payload); v != good {
		e.obstructed(v)
		return false
	}
	if atomic.LoadUint32(e.attention) != e.seen {
		return e.attend()
	}
	return true
}

// attend does what the peer's attention word asks for after a fragment was published. It
// reports false if the fragment was taken back.
func (e *endpoint) attend() bool {
	e.far.wake()
	if !e.look() {
		return true
	}
	taken := !e.out.retract()
	e.turnedAway()
	return taken
}

// obstructed notes why a fragment was not published.
func (e *endpoint) obstructed(v verdict) {
	switch {
	case e.refused():
		e.turnedAway()
	case v == nonsense:
		e.failDeferred(e.m.NewError(e.p.rank, btl.ClassProtocol, btl.SideRemote, "read counters", nil), nil)
	case !e.blocked:
		e.blocked = true
		e.m.blocked = append(e.m.blocked, e)
	}
}

// refused reports whether the peer no longer reads our session.
func (e *endpoint) refused() bool {
	s := loadSession(e.far.out.reader)
	return s.epoch() >= e.Epoch() && s.state() >= closing || atomic.LoadUint32(e.far.closed) != 0
}

// look is refused, and notes which attention word that was good for. That is loaded first: it
// is counted up last.
func (e *endpoint) look() bool {
	e.seen = atomic.LoadUint32(e.attention) &^ asleep
	return e.refused()
}

// turnedAway condemns the endpoint because the peer does not read any more.
func (e *endpoint) turnedAway() {
	e.failDeferred(e.m.turnedAway(e.p), nil)
}

func (m *module) turnedAway(p *peer) *btl.Error {
	switch {
	case m.hasLeft(p):
		return m.NewError(p.rank, btl.ClassClosed, btl.SideRemote, "", base.ErrPeerClosed)
	case p.dead:
		return m.NewError(p.rank, btl.ClassPeerGone, btl.SideRemote, "process ended", nil)
	}
	return m.NewError(p.rank, btl.ClassPath, btl.SideRemote, "the peer's end failed", nil)
}

// hasLeft finds out whether the peer's module was closed.
func (m *module) hasLeft(p *peer) bool {
	if !p.departed && p.far != nil && atomic.LoadUint32(p.far.closed) != 0 {
		p.departed = true
		m.unwatch(p)
	}
	return p.departed
}

// begin begins our session, if the peer is done with the one before. It reports whether
// the session has begun.
func (e *endpoint) begin() bool {
	if e.isOpen {
		return true
	}
	if e.far == nil {
		return false
	}
	out := &e.far.out
	e.attention = e.far.attention
	if e.look() {
		e.turnedAway()
		return false
	}
	reader, before := loadSession(out.reader), loadSession(out.session)
	if before != 0 && (reader.state() != done || reader.epoch() < before.epoch()) {
		return false
	}
	l := e.m.own.layout
	e.out.ring = out.ringOf(l)
	e.out.fenced = !publishFences && !(e.m.fences && e.far.card.fences)
	e.out.reset(e.Epoch(), before != 0)
	copy(out.mem[ctlCard:ctlCard+cardBytes], e.m.Card())
	storeSession(out.session, sessionOf(e.Epoch(), open))
	e.isOpen = true
	e.update()
	e.m.tell(e.p)
	return true
}

// update finds out which way posts take.
func (e *endpoint) update() {
	e.plain = e.isOpen && e.Accepts()
}

// ready finds out whether an endpoint that is Up can take anything now.
func (e *endpoint) ready() bool {
	return e.Deferred() == nil && e.begin()
}

// passable finds out whether a fragment of n bytes can be published now.
func (e *endpoint) passable(n int) bool {
	if !e.ready() {
		return false
	}
	if v := e.out.room(n); v != good {
		e.obstructed(v)
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

// Rebind implements btl.Endpoint. A fragment is copied when it is accepted; an injected fault may
// hold its operation, but does not read it.
func (e *endpoint) Rebind(op *btl.Op, payload []byte) bool {
	op.Payload = payload
	return true
}

// Fail implements btl.Endpoint.
func (e *endpoint) Fail(cause error) { e.m.FailBecause(e, cause) }

// Stop implements base.Incarnation.
func (e *endpoint) Stop() { e.update() }

// tearDown ends the sessions of a Failed endpoint, hands up what had arrived, and returns the number
// of events.
func (m *module) tearDown(e *endpoint) int {
	if e.isOpen {
		storeSession(e.far.out.session, sessionOf(e.Epoch(), failed))
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
