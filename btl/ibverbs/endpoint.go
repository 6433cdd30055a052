package ibverbs

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

var (
	_ btl.Endpoint        = (*endpoint)(nil)
	_ btl.Putter          = (*endpoint)(nil)
	_ btl.Getter          = (*endpoint)(nil)
	_ btl.DeliveryCounter = (*endpoint)(nil)
	_ btl.StaleSender     = (*endpoint)(nil)
)

// phase is the state of an endpoint's connection.
type phase uint8

const (
	phaseAsking   phase = iota // REQ sent; the queue pair is in INIT
	phaseAccepted              // REP sent; RTR, until the peer's first packet
	phaseReady                 // RTS
	// phaseFlushing: in Error; sends may still be in flight, the marker is behind them.
	phaseFlushing
	// phaseFlushed: in Error, and the marker has completed, so no send accesses memory any more.
	phaseFlushed
	// phaseBroken: completions may never come, and the queue pair may even be in RTS. It may access
	// memory until it is destroyed, or no memory is registered any more. No later event changes
	// that.
	phaseBroken
	// phaseOver: all operations have ended, and the queue pair accesses no memory of theirs.
	phaseOver
)

// nextPhases are the legal transitions.
var nextPhases = [...][]phase{
	phaseAsking:   {phaseAccepted, phaseReady, phaseFlushing, phaseBroken, phaseOver},
	phaseAccepted: {phaseReady, phaseFlushing, phaseBroken, phaseOver},
	phaseReady:    {phaseFlushing, phaseBroken, phaseOver},
	phaseFlushing: {phaseFlushed, phaseBroken, phaseOver},
	phaseFlushed:  {phaseBroken, phaseOver},
	phaseBroken:   {phaseOver},
	phaseOver:     {},
}

// endpoint is this rank's end of one incarnation of the connection to a peer.
type endpoint struct {
	// Fields that a post reads, next to each other. plain: operations go straight to the device.
	plain                 bool
	credits               int    // fragments for which the peer still has receives
	sqHead                uint32 // work requests posted; the ring's next entry
	sqTail                uint32 // of those, completed
	sqMask                uint32
	maxInline             int
	sq                    []sqEntry
	qp                    verbs.QP
	m                     *module
	p                     *peer
	pendingCredits        int // credits to give back: receives that are posted again
	pendingControlCredits int
	reposting             int // credits to give back once their receives are posted
	repostingControl      int
	controlCredits        int // control messages that the peer still has receives for
	unsignaled            int // work requests posted since the last signaled one
	awaited               int // signaled work requests in flight

	base.Endpoint
	phase  phase
	listed bool // in m.toSettle
	behind bool // in m.behind
	leave  farewell

	number uint32 // in m.eps
	made   uint32 // counts the module's endpoints; part of the IDs of work requests
	qpn    uint32
	psn    uint32
	group  *group
	remote qpEnd
	mtu    verbs.MTU // at first the port's; from RTR on the MTU of both ends
	device uint32    // the peer's device, as in the keys of its regions

	bufs   *slab           // buffers of the receives, then of the endpoint's own sends (bounce.go)
	shared *sharedReceives // taken by the peer's messages in place of bufs; nil if they take bufs
	window int             // fragments that the peer may send
	share  bounceShare
	repost []int32 // receives to post again

	// The numbers of fragments and of control messages that the peer may send now.
	given, givenControl int

	acked uint32 // messages of this end that the peer's device has acknowledged

	// Small fragments by remote writes (ring.go).
	out   outRing // the peer's ring
	sent  uint64  // messages sent to the peer
	in    *slab   // this end's ring, nil if there is none
	next  uint64  // number of the peer's next message
	slot  []byte  // of in, for that message
	word  *uint64 // the last word of slot
	ahead int     // messages delivered before their completions
	small int     // small fragments received without a ring

	// symptomUntil: the deferred failure is a symptom, and the module looks for its cause until
	// then. 0: the deferred failure is the cause.
	symptomUntil int64
	// early are sends that were accepted before the connection was ready, in order. No other send
	// overtakes them.
	early btl.Queue

	// Times of the requests for the connection: the first one, the next one, the delay after that,
	// and the deadline.
	asked, askAt, askWait, askUntil int64
	// rejection is the peer's last REJ for a cause that may pass. REQ is repeated until
	// rejectUntil. nil and 0 if there was none.
	rejection   *btl.Error
	rejectUntil int64
	posted      int // receives of this endpoint that the device has
	// lastReceive: the device takes no receives of the shared queue any more.
	lastReceive bool
	// drainUntil bounds the wait for a queue pair in Error.
	drainUntil int64
	// destroyAt is when to destroy the queue pair, or to try that again after destroyTries
	// failures.
	destroyAt    int64
	destroyTries int
	// The last check of deadlines: whether a completion was awaited, sqTail, and how long the
	// endpoint has waited since that changed.
	watched  bool
	seenTail uint32
	waited   int64
	sign     sign
}

// farewell is whether a GOODBYE was sent or received on the connection.
type farewell uint8

const (
	staying farewell = iota
	sentGoodbye
	receivedGoodbye
)

// sqEntry describes a posted work request.
type sqEntry struct {
	op     *btl.Op // nil for control messages
	bounce int32   // buffer that the message was copied into, or noBuffer
	// isMessage: the request is a message, which takes one of the peer's receives.
	isMessage bool
}

// controlDepth is the number of receives for control messages, in addition to those for fragments:
// HELLO, the offer of a ring, two credit messages (creditsAreDue), and one that is kept for
// GOODBYE.
const controlDepth = 5

// Fragments on the wire, except those in rings, begin with a head: type, tag, credits (2 bytes),
// epoch (4), control credits, and 7 bytes of zeros.
const headBytes = 16

type wireType uint8

const (
	wireFrag    wireType = 1 + iota
	wireHello            // the first message on a connection, from the end that asked for it
	wireCredit           // only the credits in its head
	wireGoodbye          // the sender closes
	wireRing             // the offer of the sender's ring
)

// newEndpoint makes an endpoint with its queue pair in INIT and its receives posted. If the device
// has no room for it, the module first destroys queue pairs in m.toDestroy, which may block.
func (m *module) newEndpoint(p *peer, epoch uint32) (*endpoint, error) {
	e, err := m.tryEndpoint(p, epoch)
	if err != nil && len(m.toDestroy) > 0 {
		m.destroyDue(true)
		e, err = m.tryEndpoint(p, epoch)
	}
	return e, err
}

func (m *module) tryEndpoint(p *peer, epoch uint32) (*endpoint, error) {
	if epoch == 0 {
		return nil, errors.New("no epoch is left")
	}
	h := m.h
	moved, err := h.queryMTU(&m.cfg)
	if err != nil {
		return nil, err
	}
	if moved || h.pkeyMoved(&m.cfg) {
		m.stale, m.Unsettled = true, true
		return nil, cmp.Or(h.pkeyErr, errMoved)
	}
	m.made++
	e := &endpoint{Endpoint: base.MakeEndpoint(p.rank, epoch), m: m, p: p, phase: phaseAsking, made: m.made, next: 1, mtu: h.port.ActiveMTU, share: wholeShare}
	entries := m.queueEntries()
	if h.share.on() {
		if err := h.makeShared(&m.cfg); err != nil {
			return nil, err
		}
	}
	g, err := h.reserve(entries)
	if err != nil {
		return nil, err
	}
	e.group = g
	e.window, e.given, e.givenControl = m.window(), m.window(), controlDepth
	depth := m.receives()
	queue := verbs.QPInit{Service: verbs.ServiceRC, SendCQ: g.cq, RecvCQ: g.cq, Cap: verbs.QPCap{
		MaxSendWR: m.cfg.SendDepth + controlDepth + 1, MaxRecvWR: depth, MaxSendSGE: 1, MaxRecvSGE: 1,
	}}
	if h.shared != nil {
		if err := h.shared.join(m); err != nil {
			return nil, errors.Join(err, h.release(g, entries))
		}
		e.shared = h.shared
		e.share.own = 0
		queue.SRQ, queue.Cap.MaxRecvWR, queue.Cap.MaxRecvSGE = h.shared.srq, 0, 0
	}
	undo := func(err error) (*endpoint, error) {
		if e.qp != nil {
			err = errors.Join(err, e.qp.Destroy())
		}
		if e.shared != nil {
			e.shared.leave(m, 0)
		}
		if e.bufs != nil {
			err = errors.Join(err, e.bufs.close())
		}
		return nil, errors.Join(err, h.release(g, entries))
	}
	if e.qp, err = h.createQP(queue); err != nil {
		return undo(h.noQueuePair(&m.cfg, err))
	}
	e.qpn, e.maxInline = e.qp.Num(), min(e.qp.Cap().MaxInlineData, headBytes+m.cfg.FragBytes)
	ring := uint32(1) << bits.Len32(uint32(m.cfg.SendDepth+controlDepth))
	e.sq, e.sqMask = make([]sqEntry, ring), ring-1
	e.psn = m.random.Uint32() & (1<<24 - 1)
	if e.shared == nil {
		if e.bufs, err = newSlab(h.pd, depth+ownBuffers, headBytes+m.cfg.FragBytes, verbs.AccessLocalWrite); err != nil {
			return undo(err)
		}
		for i := range int32(depth) {
			e.repost = append(e.repost, i)
		}
	}
	attr := verbs.QPAttr{State: verbs.StateInit, Port: m.cfg.Port, PKeyIndex: h.pkeyIndex, Access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite}
	if err := e.qp.Modify(&attr, verbs.AttrState|verbs.AttrPKeyIndex|verbs.AttrPort|verbs.AttrAccessFlags); err != nil {
		return undo(err)
	}
	m.number(e)
	if err := e.postReceives(); err != nil {
		m.forget(e)
		return undo(err)
	}
	e.pendingCredits = 0 // the peer starts with these credits
	p.ep, p.epoch = e, epoch
	return e, nil
}

// window returns how many fragments a peer may send.
func (m *module) window() int {
	if m.h.share.on() {
		return m.h.share.window
	}
	return m.cfg.RecvDepth
}

// receives returns how many messages a peer may send.
func (m *module) receives() int { return m.window() + controlDepth }

// queueEntries returns how many completions of an endpoint can be in its queue, except those of
// shared receives.
func (m *module) queueEntries() int {
	if m.h.share.on() {
		return ownEntries(m.cfg.SendDepth)
	}
	return m.cfg.queueEntries()
}

// number gives the endpoint its index in m.eps, by which completions find it.
func (m *module) number(e *endpoint) {
	m.byQPN[e.qpn] = e
	if n := len(m.freeSlots); n > 0 {
		e.number = m.freeSlots[n-1]
		m.freeSlots = m.freeSlots[:n-1]
		m.eps[e.number] = e
		return
	}
	e.number = uint32(len(m.eps))
	m.eps = append(m.eps, e)
}

func (m *module) forget(e *endpoint) {
	if m.byQPN[e.qpn] == e {
		delete(m.byQPN, e.qpn)
	}
	m.eps[e.number] = nil
	m.freeSlots = append(m.freeSlots, e.number)
}

// enter moves to another phase.
func (e *endpoint) enter(next phase) {
	if !slices.Contains(nextPhases[e.phase], next) {
		panic("ibverbs: illegal transition of a connection") // a bug of this package
	}
	e.phase = next
	e.update()
}

// update decides whether operations go straight to the device.
func (e *endpoint) update() { e.plain = e.mayPost() }

// DeliveryCounters implements btl.DeliveryCounter. It counts control messages as well as fragments.
func (e *endpoint) DeliveryCounters() (delivered, taken uint32) { return e.acked, uint32(e.next - 1) }

// Send implements btl.Endpoint.
func (e *endpoint) Send(op *btl.Op) error {
	if e.State() != btl.Up {
		return btl.ErrFailed
	}
	if op.HdrLen > btl.MaxHeaderBytes || op.Len() > e.m.cfg.FragBytes {
		return btl.ErrTooLong
	}
	if !e.plain {
		if e.mayWait() {
			e.early.Push(op)
			return nil
		}
		return btl.ErrResource
	}
	return e.send(op, e.Epoch())
}

// Put implements btl.Putter.
func (e *endpoint) Put(op *btl.Op) error { return e.move(op, verbs.WRRDMAWrite, btl.AccessRemoteWrite) }

// Get implements btl.Getter.
func (e *endpoint) Get(op *btl.Op) error { return e.move(op, verbs.WRRDMARead, btl.AccessRemoteRead) }

// mayPost reports whether an operation may be posted to the device now.
func (e *endpoint) mayPost() bool {
	return e.Accepts() && e.phase == phaseReady && e.m.portUp && e.early.Len() == 0
}

// mayWait reports whether a send is accepted although the connection is not ready.
func (e *endpoint) mayWait() bool {
	return e.phase < phaseReady && e.Deferred() == nil && e.early.Len() < e.m.cfg.SendDepth
}

// catchUp posts sends that were accepted before the connection was ready, as far as there is room.
func (e *endpoint) catchUp() {
	for e.early.Len() > 0 && e.maySendControl() && e.credits > 0 && !e.full() {
		op := e.early.Pop()
		if e.send(op, e.Epoch()) != nil {
			e.early.PushFront(op)
			break
		}
	}
	if e.early.Len() > 0 && !e.behind {
		e.behind = true
		e.m.behind = append(e.m.behind, e)
	}
	e.update()
}

// catchUpAll continues with endpoints that could not post all early sends. Their own completions
// and messages may not trigger this, because the port was down, or other endpoints had all buffers.
func (m *module) catchUpAll() {
	list := m.behind
	m.behind = nil
	for _, e := range list {
		e.behind = false
		if e.State() == btl.Up {
			e.catchUp()
		}
	}
}

// full reports whether the send queue has no room for another operation.
func (e *endpoint) full() bool { return int(e.sqHead-e.sqTail) >= e.m.cfg.SendDepth }

// send posts a fragment. Its epoch is the endpoint's, except in tests.
func (e *endpoint) send(op *btl.Op, epoch uint32) error {
	if e.credits == 0 || e.full() {
		return btl.ErrResource
	}
	entry := sqEntry{op: op, bounce: noBuffer}
	n := headBytes + op.Len()
	wr := &e.m.sendWR[0]
	buf := e.staging(&entry, n)
	if buf == nil {
		return btl.ErrResource
	}
	e.name(wr, &entry, n)
	if e.writes(n) && epoch == e.Epoch() { // a write does not carry an epoch
		copy(buf[copy(buf, op.Header()):], op.Payload)
		writeTail(buf[:n], tail{length: op.Len(), credits: e.pendingCredits, tag: op.Tag, controlCredits: e.pendingControlCredits}, e.sent+1)
		e.nameWrite(wr, n)
	} else {
		e.writeHead(buf, wireFrag, op.Tag, epoch)
		copy(buf[headBytes+copy(buf[headBytes:], op.Header()):], op.Payload)
	}
	if err := e.post(wr, entry); err != nil {
		return err
	}
	e.credits--
	return nil
}

// sendControl posts a control message. It reports whether the device took it.
func (e *endpoint) sendControl(t wireType) bool {
	if int(e.sqHead-e.sqTail) >= e.m.cfg.SendDepth+controlDepth {
		return false // the peer has answered faster than its device has acknowledged
	}
	entry := sqEntry{bounce: noBuffer}
	n := headBytes
	if t == wireRing {
		n += ringBodyBytes
	}
	buf := e.staging(&entry, n)
	if buf == nil {
		return false
	}
	e.writeHead(buf, t, 0, e.Epoch())
	if t == wireRing {
		outRing{addr: e.in.mr.Addr(), rkey: e.in.mr.RKey(), slotBytes: uint32(e.in.stride)}.appendTo(buf[:headBytes])
	}
	wr := &e.m.sendWR[0]
	e.name(wr, &entry, n)
	if e.post(wr, entry) != nil {
		return false
	}
	e.controlCredits--
	return true
}

// writeHead writes the head of a message, with all pending credits.
func (e *endpoint) writeHead(b []byte, t wireType, tag btl.Tag, epoch uint32) {
	b[0], b[1] = byte(t), byte(tag)
	binary.LittleEndian.PutUint16(b[2:], uint16(e.pendingCredits))
	binary.LittleEndian.PutUint32(b[4:], epoch)
	binary.LittleEndian.PutUint64(b[8:], uint64(e.pendingControlCredits))
}

// post sets the ID and the signal of the work request in m.sendWR, and posts it. After an error,
// nothing was sent.
func (e *endpoint) post(wr *verbs.SendWR, entry sqEntry) error {
	i := e.sqHead & e.sqMask
	wr.ID = uint64(makeID(wrSend, e.made, e.number, i))
	// Operations complete by their own completion; control messages share one.
	if entry.op != nil || e.unsignaled+1 >= signalEvery {
		wr.Flags |= verbs.SendSignaled
	}
	if _, err := e.qp.PostSend(e.m.sendWR[:]); err != nil {
		e.giveBack(&entry)
		if !errors.Is(err, verbs.ErrQueueFull) {
			e.deviceFails(err)
		}
		return btl.ErrResource
	}
	if wr.Flags&verbs.SendSignaled != 0 {
		e.unsignaled = 0
		e.awaited++
	} else {
		e.unsignaled++
	}
	// The head, or the tail, carries all pending credits.
	if wr.Opcode == verbs.WRSend || wr.Opcode == verbs.WRRDMAWriteWithImm {
		e.given, e.givenControl = e.given+e.pendingCredits, e.givenControl+e.pendingControlCredits
		e.pendingCredits, e.pendingControlCredits = 0, 0
		e.sent++
		entry.isMessage = true
	}
	e.sq[i] = entry
	e.sqHead++
	return nil
}

// signalEvery is the number of control messages that share a completion. It is less than
// controlDepth, so that their room is freed in time.
const signalEvery = 2

// failDeferred makes the next progress call fail the endpoint.
func (e *endpoint) failDeferred(err *btl.Error) {
	if e.m.DeferFailure(e, err, nil) {
		e.update()
	}
}

// deviceFails makes the next progress call fail the endpoint because of an error of this end's
// device.
func (e *endpoint) deviceFails(err error) {
	e.failDeferred(e.m.NewError(e.p.rank, btl.ClassDevice, btl.SideLocal, "", err))
}

// Rebind implements btl.Endpoint. It succeeds for fragments, which post copies to a buffer of this
// package or into the work request, and for operations that are not posted yet. The device reads a
// Put from the caller's memory until the Put completes.
func (e *endpoint) Rebind(op *btl.Op, payload []byte) bool {
	for i := e.sqTail; i != e.sqHead; i++ {
		if entry := &e.sq[i&e.sqMask]; entry.op == op && !entry.isMessage {
			return false
		}
	}
	op.Payload = payload
	return true
}

// Fail implements btl.Endpoint.
func (e *endpoint) Fail(cause error) { e.m.FailBecause(e, cause) }

// sayGoodbye posts GOODBYE, if the connection is ready.
func (e *endpoint) sayGoodbye() bool {
	if e.phase != phaseReady || e.controlCredits == 0 || !e.m.portUp {
		return false
	}
	e.unsignaled = signalEvery // so that its completion is signaled
	if !e.sendControl(wireGoodbye) {
		return false
	}
	e.leave = sentGoodbye
	return true
}

// SendStale implements btl.StaleSender. It is for tests.
func (e *endpoint) SendStale(epoch uint32, tag btl.Tag, frag []byte) bool {
	op := &btl.Op{Tag: tag, Payload: frag, Done: func(*btl.Op, error) {}}
	return e.plain && e.send(op, epoch) == nil
}
