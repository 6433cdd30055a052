package pml

import (
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// Mode of a send (MPI 4.1, section 3.4).
type Mode uint8

const (
	Standard Mode = iota
	// Synchronous completes only once the receive has matched.
	Synchronous
	// Ready is treated as Standard.
	Ready
	// Buffered sends from a copy and completes at once.
	Buffered
)

// SendRequest is a send. The PML makes and keeps them.
type SendRequest struct {
	request.Object
	p   *PML
	ctx *Context

	// What is asked for.
	buf  []byte
	dest int // rank in the communicator, or ProcNull
	tag  int
	mode Mode
	op   string
	// copied: buf is a copy of ours.
	copied bool
	// detached: buf is a copy, made by Detach.
	detached bool

	// What has become of it. From launch to finish:
	state       sendState
	peer        *peer
	name        handle
	head        btl.Op // MATCH, RNDV or RGET
	outstanding int    // operations posted or queued and not called back
	recv        handle // the receiver's, from its ACK or PUT
	t           *transfer
	ended       bool // FIN is posted
	broken      bool // a rail has failed with a piece: all is to be sent anew
	restarts    int
	rejected    bool // nobody will receive it; it stays active until Close
	trouble     trouble
	behind      *SendRequest // the next one in peer.held
	pumping     bool
	err         error
	// lent is what devices still read of the buffer before Detach.
	lent *Detachment
}

// Send starts a send that the caller will wait for. It returns nil if the send is complete already.
func (p *PML) Send(c *Context, buf []byte, dest, tag int, mode Mode, op string) *SendRequest {
	if mode != Synchronous && p.SendNow(c, buf, dest, tag) {
		return nil
	}
	if dest == request.ProcNull {
		return nil
	}
	if (mode == Standard || mode == Ready) && p.mayCopy(c, len(buf), dest) {
		return p.sendCopied(c, buf, dest, tag, op)
	}
	return p.Isend(c, buf, dest, tag, mode, op)
}

// SendNow sends what can be sent at once, with nothing left to wait for, and reports whether it
// did.
func (p *PML) SendNow(c *Context, buf []byte, dest, tag int) bool {
	if dest == request.ProcNull {
		return true
	}
	pr := p.peers[c.group.world[dest]]
	return pr != nil && p.sendInline(c, pr, buf, tag)
}

// sendInline sends a small message with nothing to remember, if that can be done now.
func (p *PML) sendInline(c *Context, pr *peer, buf []byte, tag int) bool {
	if len(buf)+matchBytes > pr.inlineBytes || len(c.revoked) > 0 || pr.barred || !pr.first.queue.Empty() || !pr.credit.covers(len(buf)) {
		return false
	}
	h := matchHdr{context: c.id, tag: int32(tag), seq: uint32(pr.sendSeq)}
	h.encode(p.scratch[:])
	pr.credit.spend(len(buf)) // before it goes: no CREDIT may say more than was counted
	if !pr.inliner.SendInline(tagMatch, p.scratch[:matchBytes], buf) {
		pr.credit.unspend(len(buf))
		return false
	}
	pr.sendSeq++
	p.stats.SentInline++
	return true
}

// Isend starts a send. The buffer is the library's until the request is complete.
func (p *PML) Isend(c *Context, buf []byte, dest, tag int, mode Mode, op string) *SendRequest {
	s := p.newSend(c, buf, dest, tag, mode, op)
	s.Activate()
	s.Start()
	return s
}

// SendInit makes a persistent send, not started.
func (p *PML) SendInit(c *Context, buf []byte, dest, tag int, mode Mode, op string) *SendRequest {
	s := p.newSend(c, buf, dest, tag, mode, op)
	s.InitPersistent()
	return s
}

func (p *PML) newSend(c *Context, buf []byte, dest, tag int, mode Mode, op string) *SendRequest {
	s := p.freeSends.get()
	if s == nil {
		s = &SendRequest{p: p}
		s.Bind(p.eng, s)
		s.head.Owner = s
		s.head.Done = p.headDone
	}
	s.ctx, s.buf, s.dest, s.tag, s.mode, s.op = c, buf, dest, tag, mode, op
	s.detached = false
	return s
}

// Start implements request.Operation.
func (s *SendRequest) Start() {
	p := s.p
	if s.dest == request.ProcNull {
		s.Complete(request.Empty(), nil)
		return
	}
	pr := p.peer(s.ctx.group.world[s.dest])
	if err := s.ctx.revokedFor(pr.rank); err != nil {
		s.Complete(request.Empty(), err)
		return
	}
	if pr.first == nil || pr.lost != nil { // else route, too, has nothing to say
		if err := p.route(pr); err != nil && !pr.isFailing() {
			s.Complete(request.Empty(), err)
			return
		}
	}
	if s.mode != Synchronous && p.sendInline(s.ctx, pr, s.buf, s.tag) {
		s.CompleteEmpty()
		return
	}
	if pr.deaf && s.needsAnswer(pr) {
		s.Complete(request.Empty(), pr.left)
		return
	}
	if s.mode == Buffered {
		p.Isend(s.ctx, slices.Clone(s.buf), s.dest, s.tag, Standard, s.op).Abandon()
		s.CompleteEmpty()
		return
	}
	s.peer, s.err, s.ended, s.broken, s.restarts, s.rejected, s.trouble.by = pr, nil, false, false, 0, false, 0
	s.name = p.sends.add(s)
	p.busy++
	if pr.barred || !s.launch() {
		p.stats.Deferred++
		s.move(sendHeld)
		pr.hold(s)
	}
}

// launch sends the message, or announces it. It reports false if it may not.
func (s *SendRequest) launch() bool {
	p, pr := s.p, s.peer
	small := len(s.buf) <= pr.eagerBytes
	eagerly := small && pr.credit.covers(len(s.buf))
	exposed := !eagerly && s.expose()
	if brings := exposed || eagerly && (s.mode != Synchronous || len(s.buf) > 0); !brings {
		if !pr.credit.mayAnnounce() {
			return false
		}
		pr.credit.announced++
	}
	if small && !eagerly {
		p.stats.Held++
	}
	h := rndvHdr{matchHdr: matchHdr{context: s.ctx.id, tag: int32(s.tag)}, length: int64(len(s.buf)), send: s.name}
	s.head.Payload = nil
	s.head.Hdr[opNumbered], s.head.Hdr[opTries], s.head.Hdr[opMistakes], s.head.Hdr[opTrouble] = 0, 0, 0, 0
	if eagerly {
		s.head.Payload = s.buf
	}
	switch {
	case eagerly && s.mode != Synchronous:
		s.move(sendEager)
		p.stats.SentEager++
		s.head.Tag, s.head.HdrLen = tagMatch, matchBytes
		h.matchHdr.encode(s.head.Hdr[:])
	case exposed:
		s.move(sendAnnounced)
		p.stats.SentGet++
		s.head.Payload = s.t.list
		s.announce(tagRget, &h)
	default:
		s.move(sendAnnounced)
		p.stats.SentRendezvous++
		s.announce(tagRndv, &h)
	}
	if counts(s.head.Tag, len(s.head.Payload)) {
		pr.credit.spend(len(s.head.Payload))
	}
	s.outstanding = 1
	p.send(pr, &s.head)
	return true
}

// announce fills in the header of a RNDV or RGET.
func (s *SendRequest) announce(tag btl.Tag, h *rndvHdr) {
	if s.peer.remote(h.length) && s.peer.putters&s.peer.up != 0 {
		h.flags |= flagPut
	}
	s.head.Tag, s.head.HdrLen = tag, rndvBytes
	h.encode(s.head.Hdr[:])
}

// expose makes the message readable for the receiver, if that is how it is best moved.
func (s *SendRequest) expose() bool {
	pr := s.peer
	if pr.getters&pr.up == 0 || !pr.remote(int64(len(s.buf))) || !pr.credit.covers(len(pr.rails)*exposureBytes) {
		return false
	}
	t := s.transfer()
	s.p.register(&t.mine, pr, pr.getters&pr.up, s.buf, btl.AccessRemoteRead)
	if t.mine.set == 0 {
		return false
	}
	t.list = t.mine.expose(t.list[:0], pr.rails)
	return true
}

// transfer is what the send needs to move a long message.
func (s *SendRequest) transfer() *transfer {
	if s.t == nil {
		s.t = s.p.getTransfer()
	}
	return s.t
}

// onHeadDone is called when a MATCH, RNDV or RGET was delivered, or not.
func (p *PML) onHeadDone(op *btl.Op, err error) {
	s := op.Owner.(*SendRequest)
	if s.lent != nil {
		s.lent.calledBack(s, op)
	}
	if err != nil && s.isAnswered() {
		err = nil // the answer says that it was delivered
	}
	if err != nil && len(op.Payload) > 0 && op.Tag != tagRget {
		op.Payload = s.buf // which Detach may have replaced
	}
	if err != nil && p.saves(s.peer, op, err) {
		return
	}
	s.called(err)
}

// isAnswered reports whether the receiver has answered the announcement.
func (s *SendRequest) isAnswered() bool {
	return s.rejected || s.state == sendStreaming || s.state == sendPutting || s.state == sendRestarting
}

// onSendPieceDone is called when a piece of a message was delivered, or not.
func (p *PML) onSendPieceDone(op *btl.Op, err error) {
	s, rail := op.Owner.(*SendRequest), int(op.Hdr[opRail])
	if s.lent != nil {
		s.lent.calledBack(s, op)
	}
	s.t.done(rail, len(op.Payload))
	s.t.forget(op)
	p.putOp(op)
	if err != nil && s.err == nil && s.peer.failing == nil && s.peer.lost == nil && !(s.state == sendPutting && misused(err)) {
		if misused(err) {
			if !s.broken {
				s.t.mistakes++
			}
			s.t.avoid |= 1 << rail
			s.t.wrong = err
			s.broken, err = true, nil
		} else if p.mayTryAgain(s.peer, &s.trouble, 1<<rail, err) {
			s.broken, err = true, nil
		}
	}
	s.called(err)
}

// onFinDone is called when the FIN of a send was delivered, or not.
func (p *PML) onFinDone(op *btl.Op, err error) {
	s := op.Owner.(*SendRequest)
	if err != nil && p.saves(s.peer, op, err) {
		return
	}
	p.putOp(op)
	s.called(err)
}

func (s *SendRequest) called(err error) {
	s.outstanding--
	if err != nil && s.err == nil {
		s.err = causeOf(err)
		if s.peer.failing != nil {
			s.err = s.peer.failing // and not what followed from it
		}
	}
	s.advance()
}

// answered is the send, in a state, that an answer from a peer is for; nil if that is over.
func (p *PML) answered(pr *peer, send handle, in sendState) *SendRequest {
	s := p.sends.get(send)
	if s == nil || s.peer != pr || s.state != in {
		p.stats.Malformed++
		return nil
	}
	return s
}

// acknowledged takes an ACK or RNDVRESTARTACK: what the receiver wants is to come in fragments, or, of an
// ACK, it will never want it.
func (p *PML) acknowledged(pr *peer, kind btl.Tag, h *ackHdr) error {
	in := sendAnnounced
	if kind == tagRestartAck {
		in = sendRestarting
	}
	if h.refuses() {
		// A send whose communicator was revoked meanwhile has ended before.
		if s := p.sends.get(h.send); s != nil && s.peer == pr && s.state == in {
			s.refused(h)
		}
		return nil
	}
	s := p.answered(pr, h.send, in)
	if s == nil {
		p.answersNobody(pr, h)
		return nil
	}
	if h.to > int64(len(s.buf)) {
		return fmt.Errorf("%w: acknowledgement up to %d of %d bytes", errMalformed, h.to, len(s.buf))
	}
	s.stream(h)
	return nil
}

func (s *SendRequest) stream(h *ackHdr) {
	s.move(sendStreaming)
	s.recv = h.recv
	s.transfer().begin(h.from, h.to)
	s.advance()
}

// invited takes a PUT: what the receiver wants is to be written to where it says.
func (p *PML) invited(pr *peer, h *ackHdr, list []byte) error {
	s := p.answered(pr, h.send, sendAnnounced)
	if s == nil {
		p.answersNobody(pr, h)
		return nil
	}
	if h.to > int64(len(s.buf)) {
		return fmt.Errorf("%w: put up to %d of %d bytes", errMalformed, h.to, len(s.buf))
	}
	t := s.transfer()
	t.theirs.decode(pr, list, pr.putters)
	p.register(&t.mine, pr, t.theirs.set&pr.up, s.buf, btl.AccessLocal)
	if t.mine.set == 0 {
		s.stream(h) // the receiver takes either
		return nil
	}
	p.stats.SentPut++
	s.move(sendPutting)
	s.recv = h.recv
	t.begin(h.from, h.to)
	s.advance()
	return nil
}

// read takes the FIN of a receiver that has read the message.
func (p *PML) read(pr *peer, send handle) {
	if s := p.answered(pr, send, sendAnnounced); s != nil {
		s.stream(&ackHdr{})
	}
}

// fail ends the send with err as soon as its buffer is its own again.
func (s *SendRequest) fail(err error) {
	if s.err == nil || misused(s.err) { // for which there would have been another way
		s.err = err
	}
	s.advance()
}

// advance sends what may be sent now, and finishes when all is done. Operations that
// complete while being posted come back here, which is why the loop is not entered twice.
func (s *SendRequest) advance() {
	if s.pumping {
		return
	}
	s.pumping = true
	s.pump()
	s.pumping = false
	if s.outstanding > 0 {
		return
	}
	switch {
	case s.err != nil && s.peer.isFailing(): // it ends when the peer is lost
		return
	case s.broken && s.err == nil:
		if s.peer.isUnsettled() {
			return
		}
		if !s.peer.isHopeless(s.t.mistakes) {
			s.restart()
			return
		}
		s.withdraw()
	case s.state == sendPutting && !s.ended && misused(s.err):
		s.p.stats.Unwritten++
		s.err = nil
		s.stream(&ackHdr{recv: s.recv, from: s.t.from, to: s.t.end}) // the receiver takes either
		return
	case s.err != nil, s.state == sendEager:
	case s.state == sendStreaming && s.t.next == s.t.end:
	case s.state == sendPutting && s.ended:
	default:
		return
	}
	s.finish()
}

// pump posts pieces while rails have room for them, and FIN after the last one was written.
func (s *SendRequest) pump() {
	p, pr, t := s.p, s.peer, s.t
	set := pr.up
	switch s.state {
	case sendStreaming:
		if others := set &^ t.avoid; others != 0 {
			set = others
		}
	case sendPutting:
		set &= t.theirs.set & t.mine.set
		if set == 0 && pr.up != 0 && t.next < t.end {
			s.broken = true // no rail that is left can write
		}
	default:
		return
	}
	for s.err == nil && !s.broken && t.next < t.end {
		i, from, to := t.take(pr.rails, set, s.state == sendPutting)
		if i < 0 {
			return
		}
		rl := &pr.rails[i]
		op := p.pieceOp(s, i, p.sendPieceDone)
		if s.state == sendStreaming {
			h := fragHdr{recv: s.recv, offset: from}
			op.Tag, op.HdrLen = tagFrag, fragBytes
			h.encode(op.Hdr[:])
			op.Payload = s.buf[from:to]
		} else {
			op.Tag, op.HdrLen, op.Payload = opPut, 0, s.buf[from:to]
			op.Local, op.Remote, op.RemoteOffset = t.mine.regions[i], t.theirs.key[i], t.theirs.offset[i]+uint64(from)
		}
		s.outstanding++
		t.pieces = append(t.pieces, op)
		p.post(rl, op)
	}
	if s.state == sendPutting && s.err == nil && !s.broken && t.next == t.end && t.under == 0 && !s.ended {
		s.ended = true
		s.outstanding++
		p.end(pr, &finHdr{handle: s.recv, ofReceive: true}, s, p.finDone)
	}
}

// end sends a FIN.
func (p *PML) end(pr *peer, h *finHdr, owner any, done func(*btl.Op, error)) {
	op := p.getOp()
	op.Tag, op.HdrLen, op.Owner, op.Done = tagFin, finBytes, owner, done
	h.encode(op.Hdr[:])
	p.send(pr, op)
}

func (s *SendRequest) finish() {
	s.move(sendIdle)
	s.p.sends.remove(s.name)
	s.p.busy--
	s.head.Payload = nil
	s.p.retire(&s.t, s.Persistent(), s.err != nil)
	err := s.err
	if err != nil {
		s.noteUndelivered(err)
	}
	if s.rejected {
		s.p.rejected--
	}
	s.peer, s.name = nil, 0
	s.err, s.broken = nil, false
	s.Complete(request.Empty(), err)
}

// Cancel implements request.Operation. Sends are not cancelled (MPI 4.1, section 3.8.4,
// deprecates it, and lets it fail).
func (s *SendRequest) Cancel() {}

// Release implements request.Operation.
func (s *SendRequest) Release() {
	s.p.retire(&s.t, false, false)
	if s.copied {
		s.copied = false
		s.p.copied--
		s.p.freeCopies = append(s.p.freeCopies, s.buf[:0])
	}
	s.ctx, s.buf = nil, nil
	if !s.p.freeSends.put(s) {
		s.Unbind()
	}
}

// Describe implements request.Operation.
func (s *SendRequest) Describe(err error) error {
	return s.ctx.caller.Describe(s.op, s.dest, s.tag, err)
}

func (s *SendRequest) pending() Pending {
	return Pending{
		Op: s.op, Sends: true, Context: s.ctx.id, Caller: s.ctx.caller, Peer: s.dest, Tag: s.tag, Bytes: int64(len(s.buf)), Phase: s.state.String(),
		GoesOn: s.state != sendHeld && s.state != sendAnnounced || s.ctx.mayFail(s.peer.rank), Request: &s.Object,
	}
}
