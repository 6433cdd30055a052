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
	// Synchronous sends complete only after the receive has matched.
	Synchronous
	// Ready is treated like Standard.
	Ready
	// Buffered sends use a copy and complete at once.
	Buffered
)

var errFreed = fmt.Errorf("%w: the receiver has freed it", request.ErrComm)

// SendRequest is a send. The PML makes sends, and pools them.
type SendRequest struct {
	request.Object
	p   *PML
	ctx *Context

	// The arguments of the call.
	buf  []byte
	dest int // rank in the communicator, or ProcNull
	tag  int
	mode Mode
	// flags of the message: the kind of its elements.
	flags uint8
	// mayShort: the shortest path, which has neither flags nor a request, is allowed.
	mayShort bool
	op       string
	// isBcopy: buf is a copy that the PML has made (bcopy.go).
	isBcopy bool
	// detached: buf is a copy, made by Detach.
	detached bool

	// The progress of the message, from launch to finish.
	state sendState
	peer  *peer
	name  handle  // of this send
	head  *bml.Op // MATCH, RNDV or RGET, while it is under way
	// outstanding counts operations that are posted or queued and not called back, except the
	// pieces of the transfer.
	outstanding int
	recv        handle // of the receive, from ACK or PUT
	t           *bml.Transfer
	writes      bool // the receiver has asked for remote writes, and waits for FIN
	finPosted   bool
	moves       bool         // OnTransfer was called for its transfer
	isRejected  bool         // the peer has rejected it in Finalize; it stays active until Close
	nextPending *SendRequest // in peer.pending
	isAdvancing bool
	err         error
	// pair, if not nil, is the pair of which the send is a half.
	pair *PairRequest
	// detachment, if not nil, is the buffer from before Detach, which devices may still read.
	detachment *Detachment
}

// Send starts a send that the caller will wait for. It returns nil if the send is complete.
func (p *PML) Send(c *Context, buf []byte, dest, tag int, mode Mode, op string) *SendRequest {
	if mode != Synchronous && p.SendNow(c, buf, dest, tag) {
		return nil
	}
	if dest == request.ProcNull {
		return nil
	}
	if (mode == Standard || mode == Ready) && p.mayBcopy(c, len(buf), dest) {
		return p.sendBcopy(c, buf, dest, tag, op)
	}
	return p.Isend(c, buf, dest, tag, mode, op)
}

// SendNow sends a message if the send can complete at once, and reports whether it did.
func (p *PML) SendNow(c *Context, buf []byte, dest, tag int) bool {
	if dest == request.ProcNull {
		return true
	}
	pr := p.peers[c.group.world[dest]]
	return pr != nil && p.sendInline(c, pr, buf, tag, 0)
}

// sendInline sends a short message without a request, if that is possible now.
func (p *PML) sendInline(c *Context, pr *peer, buf []byte, tag int, flags uint8) bool {
	if len(buf)+matchBytes > pr.InlineBytes() || len(c.revoked) > 0 || pr.pending.head != nil || !pr.credit.covers(len(buf)) {
		return false
	}
	pr.credit.spend(len(buf)) // first, because no CREDIT may report more than was counted
	h := matchHdr{context: c.id, flags: flags, tag: int32(tag), seq: pr.NextSeq()}
	h.encode(p.scratch[:])
	at := p.tracedAt()
	if !pr.SendInline(tagMatch, p.scratch[:matchBytes], buf) {
		pr.credit.unspend(len(buf))
		return false
	}
	p.stats.SentInline++
	p.traceSent(at, c, pr, tag, len(buf), h.seq)
	return true
}

// Isend starts a send. The buffer belongs to the library until the request is complete.
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
		s = p.makeSend()
	}
	s.ctx, s.buf, s.dest, s.tag, s.mode, s.op = c, buf, dest, tag, mode, op
	s.detached, s.flags, s.mayShort = false, 0, mode != Synchronous
	return s
}

func (p *PML) makeSend() *SendRequest {
	s := &SendRequest{p: p}
	s.Bind(p.eng, s)
	return s
}

// Start implements request.Operation.
func (s *SendRequest) Start() {
	if s.mayShort && s.ctx.SendShort(s.buf, s.dest, s.tag) {
		s.CompleteEmpty()
		return
	}
	s.launchOrPend()
}

// launchOrPend is Start for a send that is not inline, or does not take the shortest path.
func (s *SendRequest) launchOrPend() {
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
	if s.mode != Synchronous && p.sendInline(s.ctx, pr, s.buf, s.tag, s.flags) {
		s.CompleteEmpty()
		return
	}
	if pr.finalized == finalizedNotReceiving && s.needsAnswer(pr) {
		s.Complete(request.Empty(), errFinalized)
		return
	}
	if s.mode == Buffered {
		b := p.newSend(s.ctx, slices.Clone(s.buf), s.dest, s.tag, Standard, s.op)
		b.flags = s.flags
		b.Activate()
		b.launchOrPend()
		b.Abandon()
		s.CompleteEmpty()
		return
	}
	s.peer, s.err, s.writes, s.finPosted, s.isRejected = pr, nil, false, false, false
	s.name = p.sends.add(s)
	p.busy++
	if pr.pending.head != nil || !s.launch() {
		p.stats.Deferred++
		s.move(sendPending)
		pr.pending.push(s)
	}
}

// Dest returns the destination, a rank in the communicator.
func (s *SendRequest) Dest() int { return s.dest }

// needsAnswer reports whether a send that cannot go inline would wait for an answer of the peer.
func (s *SendRequest) needsAnswer(pr *peer) bool {
	return s.mode == Synchronous || pr.pending.head != nil || !pr.credit.covers(len(s.buf)) ||
		!pr.fitsEager(len(s.buf), pr.mayRead(len(s.buf)))
}

// launch posts the first fragment: the whole message, or an RTS. It reports false if the peer's
// windows have no room for either.
func (s *SendRequest) launch() bool {
	p, pr := s.p, s.peer
	small := pr.fitsEager(len(s.buf), true)
	eagerly := small && pr.credit.covers(len(s.buf))
	var keys []byte // remote key descriptors
	if !eagerly {
		keys = s.expose()
	}
	exposed := keys != nil
	if !exposed && !small && s.mode != Synchronous && pr.fitsEager(len(s.buf), false) {
		small, eagerly = true, pr.credit.covers(len(s.buf))
	}
	if hasData := exposed || eagerly && (s.mode != Synchronous || len(s.buf) > 0); !hasData {
		if !pr.credit.mayRTS() {
			return false
		}
		pr.credit.rtsSent++
	}
	if small && !eagerly {
		p.stats.Throttled++
	}
	h := rndvHdr{matchHdr: matchHdr{context: s.ctx.id, flags: s.flags, tag: int32(s.tag)}, length: int64(len(s.buf)), send: s.name}
	s.head = p.bml.GetOp()
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
		s.move(sendRTS)
		p.stats.SentGet++
		s.head.Payload = keys
		s.makeRTS(tagRget, &h)
	default:
		s.move(sendRTS)
		p.stats.SentRendezvous++
		s.makeRTS(tagRndv, &h)
	}
	pr.posted.messages++
	pr.posted.bytes += int64(len(s.buf))
	if countsBytes(s.head.Tag, len(s.head.Payload)) {
		pr.credit.spend(len(s.head.Payload))
		pr.posted.cost += int64(len(s.head.Payload)) + fragmentCostBytes
	}
	s.outstanding = 1
	p.traceSent(p.tracedAt(), s.ctx, pr, s.tag, len(s.buf), pr.NextSeq())
	p.send(pr, s.head)
	return true
}

// makeRTS fills in the header of a RNDV or RGET.
func (s *SendRequest) makeRTS(tag btl.Tag, h *rndvHdr) {
	if s.peer.IsRemote(h.length) && s.peer.Putters() != 0 {
		h.flags |= flagPut
	}
	s.head.Tag, s.head.HdrLen = tag, rndvBytes
	h.encode(s.head.Hdr[:])
}

// expose makes the message readable for the receiver if remote read is the best protocol for it. It
// returns the remote key descriptors, or nil if it is not.
func (s *SendRequest) expose() []byte {
	if !s.peer.mayRead(len(s.buf)) {
		return nil
	}
	return s.p.bml.Expose(s.transfer(), s.buf, btl.AccessRemoteRead)
}

// transfer returns the send's transfer for a long message. It makes one if there is none.
func (s *SendRequest) transfer() *bml.Transfer {
	s.t = s.p.bml.Transfer(s.t, &s.peer.Peer, s)
	return s.t
}

// onHeadDone is called when a MATCH, RNDV or RGET is over.
func (p *PML) onHeadDone(op *bml.Op, err error) {
	s := op.Request.(*SendRequest)
	if bml.IsRefused(err) {
		p.nackOp(op)
	}
	s.head = nil
	p.bml.PutOp(op)
	s.opDone(err)
}

// onSendPieceDone is called when a piece of a message is over.
func (p *PML) onSendPieceDone(op *bml.Op, err error) {
	s := op.Request.(*SendRequest)
	p.bml.PutOp(op)
	if errors.Is(err, bml.ErrMovesAgain) {
		err = nil
	}
	s.failed(err)
	s.advance()
}

// onFinDone is called when the FIN of a send is over.
func (p *PML) onFinDone(op *bml.Op, err error) {
	s := op.Request.(*SendRequest)
	if bml.IsRefused(err) {
		p.nackOp(op)
	}
	p.bml.PutOp(op)
	s.opDone(err)
}

// noteAnswered records that the receiver has acted on the RTS, so it was delivered even if its rail
// reports an error.
func (s *SendRequest) noteAnswered() {
	if s.head != nil {
		s.head.Answered = true
	}
}

// opDone records that an operation is over, and goes on with the send.
func (s *SendRequest) opDone(err error) {
	s.outstanding--
	s.failed(err)
	s.advance()
}

// failed records the first error.
func (s *SendRequest) failed(err error) {
	if err != nil && s.err == nil {
		s.err = err
	}
}

// sendOf returns the send that a peer names if it is in the given state, or nil.
func (p *PML) sendOf(pr *peer, send handle, in sendState) *SendRequest {
	s := p.sends.get(send)
	if s == nil || s.peer != pr || s.state != in {
		return nil
	}
	return s
}

// answered is sendOf for the answer to a send. An answer without a send is a harmless protocol
// error.
func (p *PML) answered(pr *peer, send handle, in sendState) *SendRequest {
	s := p.sendOf(pr, send, in)
	if s == nil {
		p.stats.Malformed++
	}
	return s
}

// ackArrived handles an ACK.
func (p *PML) ackArrived(pr *peer, frag []byte) error { return p.acknowledged(pr, frag, sendRTS) }

// acknowledged handles an ACK or RNDVRESTARTACK for a send in the given state: the receiver asks
// for fragments, or rejects the message.
func (p *PML) acknowledged(pr *peer, frag []byte, in sendState) error {
	var h ackHdr
	if err := h.decode(frag); err != nil {
		return err
	}
	if h.rejects() {
		// A send whose communicator was revoked meanwhile is over, which is not a protocol error.
		if s := p.sendOf(pr, h.send, in); s != nil {
			s.noteAnswered()
			s.rejectedBy(&h)
		}
		return nil
	}
	s, err := p.clearedBy(pr, &h, in)
	switch {
	case s == nil:
	case in == sendRestarting:
		s.carryOn(&h)
	default:
		s.stream(&h)
	}
	return err
}

// putArrived handles a PUT: the receiver asks for remote writes.
func (p *PML) putArrived(pr *peer, frag []byte) error {
	if len(frag) < ackBytes {
		return fmt.Errorf("%w: PUT of %d bytes", errMalformed, len(frag))
	}
	var h ackHdr
	if err := h.decode(frag[:ackBytes]); err != nil {
		return err
	}
	if h.rejects() {
		return fmt.Errorf("%w: PUT that rejects", errMalformed)
	}
	list := frag[ackBytes:]
	if err := bml.CheckRemoteKeys(list); err != nil {
		return err
	}
	s, err := p.clearedBy(pr, &h, sendRTS)
	if s == nil {
		return err
	}
	s.writes = true
	if !p.bml.Reach(s.transfer(), list, s.buf, bml.Write) {
		s.stream(&h) // the receiver takes fragments too
		return nil
	}
	p.stats.SentPut++
	s.clearToSend(sendPutting, &h)
	return nil
}

// clearedBy returns the send, in the given state, for which a CTS is, or nil if there is none.
func (p *PML) clearedBy(pr *peer, h *ackHdr, in sendState) (*SendRequest, error) {
	s := p.answered(pr, h.send, in)
	if s == nil {
		p.nackOrphanedRecv(pr, h)
		return nil, nil
	}
	if h.to > int64(len(s.buf)) {
		return nil, fmt.Errorf("%w: ACK or PUT for bytes up to %d of %d", errMalformed, h.to, len(s.buf))
	}
	return s, nil
}

// stream sends, in fragments, the bytes that the receiver asks for, which may be none.
func (s *SendRequest) stream(h *ackHdr) {
	s.transfer()
	s.clearToSend(sendStreaming, h)
}

// clearToSend begins to move the bytes that the receiver asks for.
func (s *SendRequest) clearToSend(to sendState, h *ackHdr) {
	s.move(to)
	s.recv = h.recv
	s.noteAnswered()
	if h.from < h.to && !s.moves {
		s.p.onTransfer(true)
		s.moves = true
	}
	s.t.Begin(h.from, h.to)
	s.advance()
}

// fail ends the send with err as soon as no operation uses its buffer.
func (s *SendRequest) fail(err error) {
	s.failed(err)
	s.advance()
}

// advance posts the pieces for which rails have room now, and finishes the send when everything has
// ended. An operation may complete while it is posted and call advance, which then does nothing.
func (s *SendRequest) advance() {
	if s.isAdvancing {
		return
	}
	s.isAdvancing = true
	s.postPieces()
	s.isAdvancing = false
	if s.outstanding > 0 || s.t != nil && s.t.HasPieces() {
		return
	}
	switch {
	case s.err != nil && s.peer.IsFailing(): // the send ends when the peer is lost
		return
	case s.err != nil, s.state == sendEager:
	case s.isMoving() && s.t.IsDone():
	default:
		return
	}
	if s.t != nil && !s.peer.IsLost() && !s.p.bml.IsSettled(s.t) {
		return // a failed rail may still read the buffer
	}
	s.finish()
}

// isMoving reports whether the send transfers the bytes that the receiver has asked for.
func (s *SendRequest) isMoving() bool { return s.state == sendStreaming || s.state == sendPutting }

// postPieces posts pieces while rails have room for them, and FIN after the last one if the
// receiver waits for it.
func (s *SendRequest) postPieces() {
	p, t := s.p, s.t
	by := bml.Fragments
	if s.state == sendPutting {
		by = bml.Write
	}
	for s.isMoving() && s.err == nil && !t.IsRefused() {
		op, from, to := p.bml.NextPiece(t, by, fragBytes)
		if op == nil {
			break
		}
		op.Request, op.Then, op.Payload = s, p.sendPieceDone, s.buf[from:to]
		if op.Tag != bml.TagPut {
			op.Tag, op.HdrLen = tagFrag, fragBytes
			h := fragHdr{recv: s.recv, offset: from}
			h.encode(op.Hdr[:])
		}
		p.bml.PostPiece(op)
	}
	switch {
	case !s.isMoving() || s.err != nil || t.HasPieces():
	case t.IsRefused():
		p.stats.Refused++
		s.err = &bml.RefusedError{Cause: t.LastMistake()}
		p.nackRecv(s.peer, s.recv)
	case t.IsDone():
		if s.writes && !s.finPosted {
			s.postFin()
		}
	case !t.CanMove(by):
		s.restart()
	}
}

// postFin tells the receiver that its message has arrived, and which rails may still write.
func (s *SendRequest) postFin() {
	s.finPosted = true
	s.outstanding++
	op := s.p.bml.GetOp()
	op.Tag, op.HdrLen, op.Request, op.Then = tagFin, finBytes, s, s.p.finDone
	op.Payload = s.t.AppendFences(nil)
	finHdr{handle: s.recv, ofReceive: true, fragments: s.t.FragmentBytes()}.encode(op.Hdr[:])
	s.p.send(s.peer, op)
}

// finish completes the send, with s.err if it is set.
func (s *SendRequest) finish() {
	s.move(sendIdle)
	if s.moves {
		s.moves = false
		s.p.onTransfer(false)
	}
	s.p.sends.remove(s.name)
	s.p.busy--
	s.p.endTransfer(&s.t, s.Persistent(), s.err != nil)
	err := s.err
	if err != nil {
		s.noteUndelivered(err)
	}
	if s.isRejected {
		s.p.rejected--
	}
	s.peer, s.name = nil, 0
	s.err = nil
	s.Complete(request.Empty(), err)
}

// Cancel implements request.Operation. It does nothing: MPI 4.1, section 3.8.4, deprecates the
// cancellation of sends, and allows it to fail.
func (s *SendRequest) Cancel() {}

// Release implements request.Operation.
func (s *SendRequest) Release() {
	if s.t != nil {
		s.p.endTransfer(&s.t, false, false)
	}
	if s.isBcopy {
		s.isBcopy = false
		s.p.bcopies--
		s.p.freeBcopies = append(s.p.freeBcopies, s.buf[:0])
	}
	s.ctx, s.buf, s.pair = nil, nil, nil
	if !s.p.freeSends.put(s) {
		s.Unbind()
	}
}

// Describe implements request.Operation.
func (s *SendRequest) Describe(err error) error {
	return s.ctx.caller.Describe(s.op, s.dest, s.tag, err)
}

func (s *SendRequest) pending() Pending {
	req := s.pair.or(&s.Object)
	return Pending{
		Op: s.op, Sends: true, Context: s.ctx.id, Caller: s.ctx.caller, Peer: s.dest, Tag: s.tag, Bytes: int64(len(s.buf)),
		Phase: s.state.String(), GoesOn: !s.AwaitsMatch() || s.ctx.mayFail(s.peer.Rank()),
		Abandoned: req.Abandoned(), Request: req,
	}
}
