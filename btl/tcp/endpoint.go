package tcp

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

var _ btl.Endpoint = (*endpoint)(nil)

// phase is how far the connection of an endpoint is.
type phase uint8

const (
	phaseDialing phase = iota // there is none yet: an attempt is under way, or the pause before the next
	phaseReady                // both ends have proved the secret
	phaseOver                 // the socket is closed
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

// endpoint is our end of one incarnation of the connection to a peer.
type endpoint struct {
	// What a post and a turn read, together.
	plain   bool // nothing stands against the short way
	phase   phase
	blocked bool // the socket took no more, and there is more
	dirty   bool // in module.dirty
	owing   bool // in module.owing
	more    bool // in module.leftover: there are frames in buf that were not looked at
	chatty  bool // what goes the other way carries our acknowledgements; see ack.go
	unheard bool // in module.unheard
	fd      int  // -1 if there is no connection
	m       *module
	p       *peer
	base.Endpoint

	// Receiving: buf[r:w] was read and not looked at.
	buf       []byte // off-heap; nil without a connection
	r, w      int
	taken     uint32 // fragments that were handed up
	told      uint32 // of those, what the peer knows of
	owedBytes int    // of the fragments that it does not know of
	quiet     int    // turns without anything, since the last fragment
	loneTurn  uint64 // in which the last acknowledgement of its own was sent

	// Sending, in this order: rest, what is left of current's payload, and what is unsent.
	rest     []byte
	current  *btl.Op
	offset   int // of current's payload, up to which it is sent
	unsent   btl.Queue
	unacked  btl.Queue
	acked    uint32 // fragments that the peer has acknowledged
	inFlight int    // fragments that were accepted and not acknowledged
	bytes    int    // of those
	posts    int    // that could wait for others, since the turn
	gathered int    // bytes of those that do
	postTurn uint64 // of this number
	bye      bool   // the last frame is due
	wantsOut bool   // the poller looks whether there is room in the socket
	writeErr unix.Errno

	attempt *attempt // nil but while dialing
	pause   pause

	health health
}

// newEndpoint makes the next incarnation for a peer.
func (m *module) newEndpoint(p *peer, epoch uint32) *endpoint {
	e := &endpoint{Endpoint: base.MakeEndpoint(p.rank, epoch, false), m: m, p: p, fd: -1}
	p.ep, p.epoch = e, epoch
	e.update()
	return e
}

// enter moves to another phase.
func (e *endpoint) enter(next phase) {
	if !slices.Contains(nextPhases[e.phase], next) {
		panic(fmt.Sprintf("tcp: a connection cannot go from %v to %v", e.phase, next)) // a bug of this package
	}
	e.phase = next
	e.update()
}

// update finds out which way posts take.
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

// accept takes an operation, and sends it unless it has to wait.
func (e *endpoint) accept(op *btl.Op, n int) {
	e.inFlight++
	e.bytes += n
	m := e.m
	switch {
	case e.phase != phaseReady || e.blocked || e.writeErr != 0:
		e.unsent.Push(op)
	case m.inside:
		// What is posted from inside of what this turn hands up goes out together, at the turn's end.
		e.unsent.Push(op)
		m.soil(e)
	case n < gatherBytes && m.alarm != nil && m.alarm.kick != nil && e.mayWait():
		e.unsent.Push(op)
		if e.gathered += n; e.unsent.Len() >= mostBatch || e.gathered >= gatherBytes {
			e.flush()
		} else if !e.dirty {
			m.soil(e)
			m.alarm.turned(true)
		}
	case n <= mostPacked && e.unsent.Empty() && e.current == nil && len(e.rest) == 0:
		e.sendPacked(op)
	default:
		e.unsent.Push(op)
		e.flush()
	}
}

const (
	// promptPosts is how many fragments to a peer that are posted between two turns go out at once, each by itself.
	promptPosts = 4
	// gatherBytes: so much goes out at once, and fragments of that length do not wait.
	gatherBytes = 256 << 10
)

// mayWait reports whether a fragment is one of many, which cost the system less together: it then waits for the others, for the next turn, or,
// if the program turns to something else, for the timer (idle.go).
func (e *endpoint) mayWait() bool {
	if e.postTurn != e.m.turns {
		e.postTurn, e.posts = e.m.turns, 0
	}
	e.posts++
	return e.posts > promptPosts
}

// open begins to use a connection whose two ends have proved the secret.
func (e *endpoint) open(fd int) error {
	m := e.m
	e.abandon()
	buf, err := m.takeBuffer()
	if err != nil {
		return err
	}
	if err := m.watchTraffic(fd, e); err != nil {
		m.giveBuffer(buf)
		return err
	}
	e.fd, e.buf = fd, buf
	e.enter(phaseReady)
	e.p.reached = true
	m.ready = append(m.ready, e)
	if e.Epoch() > 1 {
		e.unheard = true
		m.unheard++
	}
	if m.hot == nil {
		m.hot = e
	}
	m.look = true
	m.soil(e)
	return nil
}

// failDeferred makes the next progress call fail the endpoint.
func (e *endpoint) failDeferred(err *btl.Error) {
	if e.m.DeferFailure(e, err, nil) {
		e.update()
	}
}

// Rebind implements btl.Endpoint. The system copies what it takes, so payloads are read only by
// calls that write to the socket: also the rest of a fragment that is half sent (current).
func (e *endpoint) Rebind(op *btl.Op, payload []byte) bool {
	op.Payload = payload
	return true
}

// Fail implements btl.Endpoint.
func (e *endpoint) Fail(cause error) { e.m.FailBecause(e, cause) }

// fail takes the endpoint to Failed and reports it.
func (e *endpoint) fail(err *btl.Error) { e.m.FailEndpoint(e, err) }

// Stop implements base.Incarnation.
func (e *endpoint) Stop() {
	e.update()
	e.m.forget(e)
	e.abandon()
}

// tearDown brings a Failed endpoint to Drained, but for saying so. The system has copied what was written, so once the socket is closed
// nothing of this incarnation reaches memory.
func (e *endpoint) tearDown() int {
	e.disconnect()
	return e.flushOut()
}

// disconnect closes the socket. If the peer has sent what we have not read the system resets the connection, else it ends it.
func (e *endpoint) disconnect() {
	if e.phase == phaseOver {
		return
	}
	if e.fd >= 0 {
		e.m.byFD[e.fd] = nil
		_ = unix.Close(e.fd) // which also takes it out of the poller
		e.fd = -1
		e.m.giveBuffer(e.buf)
		e.buf = nil
	}
	e.hear()
	e.enter(phaseOver)
}

// hear notes that something has come, or that nothing will. Until then turns are asked for even if the program computes: what comes first by a
// connection in place of one that failed is the layer above trying it, and what was under way waits for the answer.
func (e *endpoint) hear() {
	if e.unheard {
		e.unheard = false
		e.m.unheard--
	}
}

// flushOut calls back what is outstanding, in the order in which it was accepted.
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
