package tcp

import (
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

var _ btl.Endpoint = (*endpoint)(nil)

// phase is the state of an endpoint's connection.
type phase uint8

const (
	// phaseDialing: there is no connection yet. An attempt is under way, or the pause before the
	// next one.
	phaseDialing phase = iota
	// phaseReady: both ends have proved that they know the secret.
	phaseReady
	// phaseOver: the socket is closed.
	phaseOver
)

var phaseNames = [...]string{"dialing", "ready", "over"}

func (p phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return "invalid"
}

// nextPhases are the legal transitions.
var nextPhases = [...][]phase{
	phaseDialing: {phaseReady, phaseOver},
	phaseReady:   {phaseOver},
	phaseOver:    {},
}

// endpoint is this rank's end of one incarnation of the connection to a peer.
type endpoint struct {
	// The fields that posts and progress calls read are together.
	plain        bool // Send gives fragments to the socket
	phase        phase
	blocked      bool // the socket was full, and more is to be sent
	flushPending bool // in module.toFlush
	ackPending   bool // in module.pendingAcks
	moreFrames   bool // in module.unparsed: buf has frames that were not parsed
	piggybacks   bool // fragments to the peer carry the acknowledgements; see ack.go
	unconfirmed  bool // counted in module.unconfirmed
	fd           int  // -1 if there is no connection
	m            *module
	p            *peer
	base.Endpoint

	// Receiving: buf[r:w] was read and not yet parsed.
	buf             []byte // off-heap; nil without a connection
	r, w            int
	taken           uint32 // fragments that were handed up
	ackSent         uint32 // the value of taken that was acknowledged last
	pendingAckBytes int    // bytes of the fragments that were not acknowledged
	quiet           int    // progress calls since the last fragment
	loneAckTurn     uint64 // progress call of the last lone acknowledgement

	// Sent in this order: rest, the rest of current's payload, and unsent.
	rest     []byte
	current  *btl.Op
	offset   int // of current's payload, up to which it is sent
	unsent   btl.Queue
	unacked  btl.Queue
	acked    uint32 // fragments that the peer has acknowledged
	inFlight int    // fragments that were accepted and not acknowledged
	bytes    int    // bytes of those fragments
	posts    int    // fragments posted since the last progress call
	gathered int    // bytes of the posts that wait for others
	postTurn uint64 // the progress call that posts counts from
	bye      bool   // the last frame is due
	wantsOut bool   // the poller waits for room in the socket
	writeErr unix.Errno

	// local and remote are the addresses of the connection; invalid before there is one.
	local, remote netip.Addr
	attempt       *attempt // nil unless an attempt is under way
	pause         pause

	health health
}

// newEndpoint makes the next incarnation for a peer.
func (m *module) newEndpoint(p *peer, epoch uint32) *endpoint {
	e := &endpoint{Endpoint: base.MakeEndpoint(p.rank, epoch), m: m, p: p, fd: -1}
	p.ep, p.epoch = e, epoch
	e.update()
	return e
}

// enter moves to another phase.
func (e *endpoint) enter(next phase) {
	if !slices.Contains(nextPhases[e.phase], next) {
		// a bug of this package
		panic(fmt.Sprintf("tcp: a connection cannot go from %v to %v", e.phase, next))
	}
	e.phase = next
	e.update()
}

// update decides whether Send writes fragments to the socket.
func (e *endpoint) update() {
	e.plain = e.Accepts()
}

// Send implements btl.Endpoint.
func (e *endpoint) Send(op *btl.Op) error {
	if e.State() != btl.Up {
		return btl.ErrFailed
	}
	n := op.Len()
	if op.HdrLen > btl.MaxHeaderBytes || n > e.m.cfg.FragBytes {
		return btl.ErrTooLong
	}
	if e.inFlight >= e.m.cfg.WindowFrags || e.bytes+n > e.m.cfg.WindowBytes {
		return btl.ErrResource
	}
	if !e.plain {
		return btl.ErrResource
	}
	e.accept(op, n)
	return nil
}

// accept takes an operation of n bytes, and sends it unless it must wait.
func (e *endpoint) accept(op *btl.Op, n int) {
	e.inFlight++
	e.bytes += n
	m := e.m
	switch {
	case e.phase != phaseReady || e.blocked || e.writeErr != 0:
		e.unsent.Push(op)
	case m.inside:
		// Fragments posted inside a progress call are sent together, at its end.
		e.unsent.Push(op)
		m.flushLater(e)
	case n < gatherBytes && m.waker != nil && m.waker.asyncProgress != nil && e.mayWait():
		e.unsent.Push(op)
		if e.gathered += n; e.unsent.Len() >= maxBatch || e.gathered >= gatherBytes {
			e.flush()
		} else if !e.flushPending {
			m.flushLater(e)
			m.waker.turnMade(true)
		}
	case n <= maxPacked && e.unsent.Empty() && e.current == nil && len(e.rest) == 0:
		e.sendPacked(op)
	default:
		e.unsent.Push(op)
		e.flush()
	}
}

const (
	// promptPosts is the number of fragments to a peer, posted between two progress calls, that are
	// each sent at once.
	promptPosts = 4
	// gatherBytes: gathered bytes are sent at once when there are this many, and a fragment of that
	// length does not wait.
	gatherBytes = 256 << 10
)

// mayWait reports whether a fragment is one of many, which are cheaper to send together. It then
// waits for the others, until the next progress call or the timer (idle.go).
func (e *endpoint) mayWait() bool {
	if e.postTurn != e.m.turns {
		e.postTurn, e.posts = e.m.turns, 0
	}
	e.posts++
	return e.posts > promptPosts
}

// open begins to use a connection after both ends have proved that they know the secret.
func (e *endpoint) open(fd int) error {
	m := e.m
	e.stopAttempt()
	buf, err := m.takeBuffer()
	if err != nil {
		return err
	}
	if err := m.watchTraffic(fd, e); err != nil {
		m.giveBuffer(buf)
		return err
	}
	e.fd, e.buf = fd, buf
	e.local, e.remote = endsOf(fd)
	e.enter(phaseReady)
	e.p.everConnected, m.link.isMoved = true, false
	m.ready = append(m.ready, e)
	if e.Epoch() > 1 {
		e.unconfirmed = true
		m.unconfirmed++
	}
	if m.active == nil {
		m.active = e
	}
	m.look = true
	m.flushLater(e)
	return nil
}

// failDeferred makes the next progress call fail the endpoint.
func (e *endpoint) failDeferred(err *btl.Error) {
	if e.m.DeferFailure(e, err, nil) {
		e.update()
	}
}

// Rebind implements btl.Endpoint. The system copies the bytes that it takes. Therefore only calls
// that write to the socket read payloads, including the rest of a fragment that is half sent
// (current).
func (e *endpoint) Rebind(op *btl.Op, payload []byte) bool {
	op.Payload = payload
	return true
}

// Fail implements btl.Endpoint.
func (e *endpoint) Fail(cause error) { e.m.FailBecause(e, cause) }

// fail moves the endpoint to Failed and reports it.
func (e *endpoint) fail(err *btl.Error) { e.m.FailEndpoint(e, err) }

// Stop implements base.Incarnation.
func (e *endpoint) Stop() {
	e.update()
	e.m.forget(e)
	e.stopAttempt()
}

// tearDown closes the socket and calls back outstanding operations. The system has copied the
// written bytes, so once the socket is closed, nothing of this incarnation accesses memory.
func (e *endpoint) tearDown() int {
	e.disconnect()
	return e.flushOut()
}

// disconnect closes the socket. If the peer has sent bytes that were not read, the system resets
// the connection; otherwise it ends the connection.
func (e *endpoint) disconnect() {
	if e.phase == phaseOver {
		return
	}
	if e.fd >= 0 {
		e.m.byFD[e.fd] = nil
		_ = unix.Close(e.fd) // which also removes it from the poller
		e.fd = -1
		e.m.giveBuffer(e.buf)
		e.buf = nil
	}
	e.confirm()
	e.enter(phaseOver)
}

// confirm records that something has arrived on the connection, or that the connection is over.
// Until then, the module asks for progress calls even if the program computes. The reason is that
// the first fragment on a connection that replaces a failed one is a probe of the layer above, and
// operations wait for its answer.
func (e *endpoint) confirm() {
	if e.unconfirmed {
		e.unconfirmed = false
		e.m.unconfirmed--
	}
}

// flushOut calls back outstanding operations, in the order in which they were accepted.
func (e *endpoint) flushOut() int {
	m := e.m
	n := m.Flush(e, &e.unacked)
	if op := e.current; op != nil {
		e.current = nil
		op.Done(op, m.FlushError(e, op))
		n++
	}
	return n + m.Flush(e, &e.unsent)
}
