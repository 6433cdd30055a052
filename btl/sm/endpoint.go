package sm

import (
	"sync/atomic"
	"unsafe"

	"github.com/mpigo/mpigo/btl"
)

var (
	_ btl.Endpoint = (*endpoint)(nil)
	_ btl.Inliner  = (*endpoint)(nil)
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

	m      *module
	p      *peer
	far    *farSegment // nil if the peer could not be reached
	epoch  uint32
	state  btl.State
	isOpen bool // our session has begun
	byRail bool // failed with the whole rail, whose Drained covers it

	// doom is set when a post finds out that the endpoint is to fail; the next turn of
	// progress then says so. Until then posts are refused for lack of resources.
	doom *btl.Error
	// cause of the failure, once Failed. culprit is the operation that it is of, if any.
	cause   *btl.Error
	culprit *btl.Op

	// held are operations that an injected fault keeps from completing, and Gets that go on in
	// later turns. All others complete within the post.
	held btl.Queue
	_    [2 * lineBytes]byte // modules of one process must not share lines
}

func (m *module) newEndpoint(p *peer, epoch uint32) *endpoint {
	return &endpoint{m: m, p: p, epoch: epoch, longest: int(m.own.longest)}
}

// Peer implements btl.Endpoint.
func (e *endpoint) Peer() int { return e.p.rank }

// Epoch implements btl.Endpoint.
func (e *endpoint) Epoch() uint32 { return e.epoch }

// State implements btl.Endpoint.
func (e *endpoint) State() btl.State { return e.state }

// Send implements btl.Endpoint.
func (e *endpoint) Send(op *btl.Op) error {
	if e.state != btl.Up {
		return btl.ErrFailed
	}
	if op.HdrLen > btl.MaxHeaderBytes || op.Len() > e.longest {
		return btl.ErrTooLong
	}
	if !e.plain {
		return e.post(op)
	}
	if !e.send(op.Tag, op.Hdr[:op.HdrLen], op.Payload) {
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
	if n > e.longest || !e.plain && !e.passInline(n) {
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
		e.condemn(e.m.errorf(e.p.rank, btl.ClassProtocol, btl.SideRemote, "read counters", nil), nil)
	case !e.blocked:
		e.blocked = true
		e.m.blocked = append(e.m.blocked, e)
	}
}

// refused reports whether the peer no longer reads our session.
func (e *endpoint) refused() bool {
	s := loadSession(e.far.out.reader)
	return s.epoch() >= e.epoch && s.state() >= closing || atomic.LoadUint32(e.far.closed) != 0
}

// look is refused, and notes which attention word that was good for. That is loaded first: it
// is counted up last.
func (e *endpoint) look() bool {
	e.seen = atomic.LoadUint32(e.attention) &^ asleep
	return e.refused()
}

// turnedAway condemns the endpoint because the peer does not read any more.
func (e *endpoint) turnedAway() {
	e.condemn(e.m.turnedAway(e.p), nil)
}

func (m *module) turnedAway(p *peer) *btl.Error {
	switch {
	case m.hasLeft(p):
		return m.errorf(p.rank, btl.ClassClosed, btl.SideRemote, "", errPeerClosed)
	case p.dead:
		return m.errorf(p.rank, btl.ClassPeerGone, btl.SideRemote, "process ended", nil)
	}
	return m.errorf(p.rank, btl.ClassPath, btl.SideRemote, "the peer's end failed", nil)
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
	e.out.reset(e.epoch, before != 0)
	e.haunt()
	copy(out.mem[ctlCard:ctlCard+cardBytes], e.m.card)
	storeSession(out.session, sessionOf(e.epoch, open))
	e.isOpen = true
	e.update()
	e.m.tell(e.p)
	return true
}

// update finds out which way posts take.
func (e *endpoint) update() {
	e.plain = e.state == btl.Up && e.isOpen && e.doom == nil && len(e.m.injector.faults) == 0
}

// post takes an operation the long way.
func (e *endpoint) post(op *btl.Op) error {
	if !e.passable(op.Len()) {
		return btl.ErrResource
	}
	if hit, struck := e.m.injector.strike(e.p.rank, true); struck {
		return e.strike(hit, op, false, e.sendOp)
	}
	if err := e.sendOp(op); err != nil {
		return err
	}
	op.Done(op, nil)
	return nil
}

// sendOp publishes the fragment of an operation.
func (e *endpoint) sendOp(op *btl.Op) error {
	if !e.send(op.Tag, op.Header(), op.Payload) {
		return btl.ErrResource
	}
	return nil
}

// passInline decides about a fragment to go the long way.
func (e *endpoint) passInline(n int) bool {
	return e.state == btl.Up && e.passable(n) && e.m.injector.passes(e.p.rank)
}

// ready finds out whether an endpoint that is Up can take anything now.
func (e *endpoint) ready() bool {
	return e.doom == nil && e.begin()
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

// condemn makes the next turn of progress fail the endpoint, at operation op if not nil.
func (e *endpoint) condemn(err *btl.Error, op *btl.Op) {
	if e.doom != nil || e.state != btl.Up {
		return
	}
	e.doom, e.culprit = err, op
	e.update()
	e.m.doomed = append(e.m.doomed, e)
	e.m.unsettled = true
}

// breakAt takes an operation that has met an error: the next turn fails the endpoint at it.
func (e *endpoint) breakAt(op *btl.Op, err *btl.Error) {
	e.held.Push(op)
	e.condemn(err, op)
}

// Rebind implements btl.Endpoint. A fragment is copied when it is accepted; an injected fault may
// hold its operation, but does not read it.
func (e *endpoint) Rebind(op *btl.Op, payload []byte) bool {
	op.Payload = payload
	return true
}

// Fail implements btl.Endpoint.
func (e *endpoint) Fail(cause error) {
	if e.state == btl.Up {
		e.fail(e.m.because(e.p.rank, btl.ClassClosed, cause))
	}
}

// fail is the first half of a failure; the next settle does the other.
func (e *endpoint) fail(err *btl.Error) {
	if e.state != btl.Up {
		return
	}
	e.state, e.cause = btl.Failed, err
	e.update()
	e.m.dying = append(e.m.dying, e)
	e.m.unsettled = true
	e.m.cfg.Events.Failed(e.m, e.p.rank, err)
}

// tearDown brings a Failed endpoint to Drained. What had arrived is handed up.
func (e *endpoint) tearDown() int {
	m, p := e.m, e.p
	if e.isOpen {
		storeSession(e.far.out.session, sessionOf(e.epoch, failed))
	}
	n := 0
	if m.listen(p) == nil {
		n += m.finish(p, e.epoch)
	}
	n += e.flush()
	e.state = btl.Drained
	return n
}

// flush calls back what is outstanding, in the order in which it was accepted.
func (e *endpoint) flush() int {
	n := 0
	for op := e.held.Pop(); op != nil; op = e.held.Pop() {
		err := e.m.errorf(e.p.rank, btl.ClassFlushed, btl.SideNone, "", e.cause)
		if op == e.culprit && e.doom != nil {
			err = e.doom
		}
		op.Done(op, err)
		n++
	}
	e.culprit = nil
	return n
}
