package pml

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/bml"
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
	head        bml.Op // MATCH, RNDV or RGET
	outstanding int    // operations posted or queued and not called back
	recv        handle // the receiver's, from its ACK or PUT
	t           *bml.Transfer
	ended       bool // FIN is posted
	restarts    int
	rejected    bool         // nobody will receive it; it stays active until Close
	behind      *SendRequest // the next one in peer.pending
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
	if len(buf)+matchBytes > pr.InlineBytes() || len(c.revoked) > 0 || pr.pending.head != nil || !pr.credit.covers(len(buf)) {
		return false
	}
	h := matchHdr{context: c.id, tag: int32(tag), seq: pr.NextSeq()}
	h.encode(p.scratch[:])
	pr.credit.spend(len(buf)) // before it goes: no CREDIT may say more than was counted
	if !pr.SendInline(tagMatch, p.scratch[:matchBytes], buf) {
		pr.credit.unspend(len(buf))
		return false
	}
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
		p.bml.Init(&s.head)
		s.head.Request, s.head.Then = s, p.headDone
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
	if err := s.ctx.revokedFor(pr.Rank()); err != nil {
		s.Complete(request.Empty(), err)
		return
	}
	if !pr.IsResolved() || pr.IsLost() {
		if err := p.resolve(pr); err != nil && !pr.IsFailing() {
			s.Complete(request.Empty(), err)
			return
		}
	}
	if s.mode != Synchronous && p.sendInline(s.ctx, pr, s.buf, s.tag) {
		s.CompleteEmpty()
		return
	}
	if pr.finalized == finalizedNotReceiving && s.needsAnswer(pr) {
		s.Complete(request.Empty(), errFinalized)
		return
	}
	if s.mode == Buffered {
		p.Isend(s.ctx, slices.Clone(s.buf), s.dest, s.tag, Standard, s.op).Abandon()
		s.CompleteEmpty()
		return
	}
	s.peer, s.err, s.ended, s.restarts, s.rejected = pr, nil, false, 0, false
	s.name = p.sends.add(s)
	p.busy++
	if pr.pending.head != nil || !s.launch() {
		p.stats.Deferred++
		s.move(sendPending)
		pr.pending.push(s)
	}
}

// launch sends the message, or announces it. It reports false if it may not.
func (s *SendRequest) launch() bool {
	p, pr := s.p, s.peer
	small := len(s.buf) <= pr.EagerBytes()
	eagerly := small && pr.credit.covers(len(s.buf))
	var keys []byte // remote key descriptors
	if !eagerly {
		keys = s.expose()
	}
	exposed := keys != nil
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
	s.head.Reset()
	s.head.Request, s.head.Then = s, p.headDone
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
		s.head.Payload = keys
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
	if s.peer.IsRemote(h.length) && s.peer.Putters() != 0 {
		h.flags |= flagPut
	}
	s.head.Tag, s.head.HdrLen = tag, rndvBytes
	h.encode(s.head.Hdr[:])
}

// expose makes the message readable for the receiver, if it is best moved that way. It returns the remote key descriptors, nil
// if it is not.
func (s *SendRequest) expose() []byte {
	pr := s.peer
	if pr.Getters() == 0 || !pr.IsRemote(int64(len(s.buf))) || !pr.credit.covers(pr.RemoteKeysBytes()) {
		return nil
	}
	return s.p.bml.Expose(s.transfer(), s.buf, btl.AccessRemoteRead)
}

// transfer is what the send needs to move a long message.
func (s *SendRequest) transfer() *bml.Transfer {
	s.t = s.p.bml.Transfer(s.t, &s.peer.Peer, s)
	return s.t
}

// onHeadDone is called when a MATCH, RNDV or RGET was delivered, or not.
func (p *PML) onHeadDone(op *bml.Op, err error) {
	s := op.Request.(*SendRequest)
	if bml.IsRefused(err) {
		p.refused(op)
	}
	s.called(err)
}

// onSendPieceDone is called when a piece of a message was delivered, or not.
func (p *PML) onSendPieceDone(op *bml.Op, err error) {
	s := op.Request.(*SendRequest)
	p.bml.PutOp(op)
	if errors.Is(err, bml.ErrInterrupted) {
		err = nil
	}
	s.called(err)
}

// onFinDone is called when the FIN of a send was delivered, or not.
func (p *PML) onFinDone(op *bml.Op, err error) {
	s := op.Request.(*SendRequest)
	if bml.IsRefused(err) {
		p.refused(op)
	}
	p.bml.PutOp(op)
	s.called(err)
}

func (s *SendRequest) called(err error) {
	s.outstanding--
	if err != nil && s.err == nil {
		s.err = err
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

// acknowledged takes an ACK or RNDVRESTARTACK for a send in a state: what the receiver wants is to come in fragments, or
// it rejects the message.
func (p *PML) acknowledged(pr *peer, in sendState, h *ackHdr) error {
	if h.rejects() {
		// A send whose communicator was revoked meanwhile has ended before.
		if s := p.sends.get(h.send); s != nil && s.peer == pr && s.state == in {
			s.head.Answered = true
			s.rejectedBy(h)
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
	s.head.Answered = true
	s.transfer().Begin(h.from, h.to)
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
	if !p.bml.Reach(t, list, s.buf, bml.Write) {
		s.stream(h) // the receiver takes fragments too
		return nil
	}
	p.stats.SentPut++
	s.move(sendPutting)
	s.recv = h.recv
	s.head.Answered = true
	t.Begin(h.from, h.to)
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
	if s.err == nil {
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
	case s.err != nil && s.peer.IsFailing(): // it ends when the peer is lost
		return
	case s.err != nil, s.state == sendEager:
	case s.state == sendStreaming && s.t.IsDone():
	case s.state == sendPutting && s.ended:
	default:
		return
	}
	s.finish()
}

// pump posts pieces while rails have room for them, and FIN after the last one was written.
func (s *SendRequest) pump() {
	p, t := s.p, s.t
	by := bml.Fragments
	switch s.state {
	case sendStreaming:
	case sendPutting:
		by = bml.Write
	default:
		return
	}
	for s.err == nil {
		op, from, to := p.bml.NextPiece(t, by, fragBytes)
		if op == nil {
			break
		}
		op.Request, op.Then, op.Payload = s, p.sendPieceDone, s.buf[from:to]
		if by == bml.Fragments {
			op.Tag, op.HdrLen = tagFrag, fragBytes
			h := fragHdr{recv: s.recv, offset: from}
			h.encode(op.Hdr[:])
		}
		s.outstanding++
		p.bml.PostPiece(op)
	}
	if s.state == sendPutting && s.err == nil && t.IsDone() && !s.ended {
		s.ended = true
		s.outstanding++
		op := p.bml.GetOp()
		op.Tag, op.HdrLen, op.Request, op.Then = tagFin, finBytes, s, p.finDone
		finHdr{handle: s.recv, ofReceive: true}.encode(op.Hdr[:])
		p.send(s.peer, op)
	}
}

func (s *SendRequest) finish() {
	s.move(sendIdle)
	s.p.sends.remove(s.name)
	s.p.busy--
	s.head.Payload = nil
	s.p.endTransfer(&s.t, s.Persistent(), s.err != nil)
	err := s.err
	if err != nil {
		s.noteUndelivered(err)
	}
	if s.rejected {
		s.p.rejected--
	}
	s.peer, s.name = nil, 0
	s.err = nil
	s.Complete(request.Empty(), err)
}

// Cancel implements request.Operation. Sends are not cancelled (MPI 4.1, section 3.8.4,
// deprecates it, and lets it fail).
func (s *SendRequest) Cancel() {}

// Release implements request.Operation.
func (s *SendRequest) Release() {
	s.p.endTransfer(&s.t, false, false)
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
		GoesOn: s.state != sendPending && s.state != sendAnnounced || s.ctx.mayFail(s.peer.Rank()), Request: &s.Object,
	}
}
