package pml

import (
	"errors"
	"fmt"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// RecvRequest is a receive. The PML makes receives, and pools them.
type RecvRequest struct {
	request.Object

	// A receive of a short message uses the fields up to state.

	// The arguments of the call.
	buf    []byte
	ctx    *Context
	source int // rank in the communicator, AnySource or ProcNull
	world  int // the same as a rank in the job
	tag    int
	op     string

	node  node[RecvRequest] // place in ctx.posted
	order uint64            // in which receives were posted
	p     *PML

	// The message, from the match on. Before it, gotSource and gotTag are the arguments.
	gotSource int // rank in the communicator
	gotTag    int
	state     recvState
	from      *peer
	name      handle // of this receive, while it is streaming or getting
	send      handle // of the send, if the sender waits for an answer
	length    int64  // of the whole message
	// got is the number of contiguous bytes from the first that have arrived with the RTS or were
	// read. want is the number of bytes that fit. have are the bytes that have arrived in
	// fragments.
	got, want int64
	have      ranges
	t         *bml.Transfer
	// awaitsFin: the sender writes, and ends with FIN. hasFin: FIN has arrived. fragments is the
	// number of bytes that were sent in fragments before FIN.
	awaitsFin, hasFin bool
	fragments         int64
	// outstanding counts operations that are posted or queued and not called back, except the
	// pieces of the transfer.
	outstanding int
	isAdvancing bool
	put         *bml.Op // PUT, while it is under way
	restart     bool    // the sender has sent RNDVRESTARTNOTIFY
	err         error
	pair        *PairRequest // the pair of which the receive is a half, or nil
}

// Irecv starts a receive. The buffer belongs to the library until the request is complete.
func (p *PML) Irecv(c *Context, buf []byte, elem, source, tag int, op string) *RecvRequest {
	r := p.newRecv(c, buf, elem, source, tag, op)
	r.Activate()
	r.Start()
	return r
}

// RecvInit makes a persistent receive, not started.
func (p *PML) RecvInit(c *Context, buf []byte, elem, source, tag int, op string) *RecvRequest {
	r := p.newRecv(c, buf, elem, source, tag, op)
	r.InitPersistent()
	c.persistent++
	return r
}

// Imrecv receives a message that Improbe or a matched probe took out of matching. A second receive
// of the same message ends with ErrRequest.
func (p *PML) Imrecv(m *Message, buf []byte, elem int, op string) *RecvRequest {
	r := p.newRecv(m.ctx, buf, elem, m.env.Source, m.env.Tag, op)
	r.receiveMessage(m)
	return r
}

// receiveMessage starts a receive of a message that was taken out of matching.
func (r *RecvRequest) receiveMessage(m *Message) {
	r.Activate()
	if msg := m.msg; msg != nil {
		m.msg = nil
		r.p.taken.remove(msg)
		r.accept(msg)
	} else {
		r.finish(request.ErrRequest)
	}
}

func (p *PML) newRecv(c *Context, buf []byte, elem, source, tag int, op string) *RecvRequest {
	r := p.freeRecvs.get()
	if r == nil {
		r = p.makeRecv()
	}
	r.ctx, r.buf, r.source, r.tag, r.op = c, buf, source, tag, op
	r.ElemBytes = elem
	r.world = c.world(source)
	r.gotSource, r.gotTag = source, tag
	return r
}

func (p *PML) makeRecv() *RecvRequest {
	r := &RecvRequest{p: p}
	r.Bind(p.eng, r)
	r.LookAhead(r, r)
	return r
}

// Start implements request.Operation.
func (r *RecvRequest) Start() {
	r.gotSource, r.gotTag = r.source, r.tag
	if r.ctx.mayPost(r.source, r.tag) {
		r.post()
		return
	}
	if r.source == request.ProcNull {
		r.Complete(request.Status{Source: request.ProcNull, Tag: request.AnyTag}, nil)
		return
	}
	if m := r.ctx.unexpected.oldest(keyOf(r.world, r.tag)); m != nil {
		r.ctx.unexpected.remove(m)
		r.accept(m)
		return
	}
	err := r.ctx.receiveError(r.tag)
	if err == nil {
		err = r.p.waitError(r.ctx, r.world)
	}
	if err != nil {
		r.finish(err)
		return
	}
	r.move(recvPosted)
	r.ctx.posted.add(r)
	r.p.grant(r.ctx, r.world)
}

// accept receives a message that was unexpected, and frees it.
func (r *RecvRequest) accept(m *message) {
	p, pr := r.p, r.p.peer(m.source)
	r.matched(pr, &m.matchHdr, m.length)
	r.begin(&m.incoming, m.data)
	p.unbuffer(pr, m.kind, len(m.data))
	p.consumedMessage(pr, m.kind, len(m.data))
	p.messages.put(m)
}

// matched records the message that the receive has matched.
func (r *RecvRequest) matched(pr *peer, h *matchHdr, length int64) {
	r.move(recvMatched)
	r.from, r.gotTag = pr, int(h.tag)
	if r.gotSource == request.AnySource {
		r.gotSource, _ = r.ctx.group.Rank(pr.Rank())
	}
	r.p.traceMatched(pr, h, length)
}

// complete ends a receive that has matched, with its whole message.
func (r *RecvRequest) complete(data []byte) {
	var err error
	if len(data) > len(r.buf) {
		err = truncated(int64(len(data)), len(r.buf))
	}
	n := copy(r.buf, data)
	r.p.countReceived(1, n)
	r.received(n, err)
}

// received ends a receive whose whole message, of n bytes, is in its buffer.
func (r *RecvRequest) received(n int, err error) {
	r.move(recvIdle)
	r.from = nil
	ctx := r.ctx
	r.CompleteTransfer(r.gotSource, r.gotTag, int64(n), err)
	if ctx.removed {
		ctx.freeIfUnused()
	}
}

func truncated(length int64, room int) error {
	return fmt.Errorf("%w: it has %d bytes, and the buffer room for %d", request.ErrTruncate, length, room)
}

// begin takes the first fragment of the message, and chooses how the rest moves. If the buffer is
// too short, the receive asks only for the bytes that fit, and ends with ErrTruncate when they are
// here. The send succeeds all the same.
func (r *RecvRequest) begin(in *incoming, data []byte) {
	if in.isNack {
		r.finish(errPeerRefused)
		return
	}
	if in.flags > flagPut {
		r.tellKind(in.flags >> kindShift)
	}
	if in.kind == tagMatch {
		r.complete(data)
		return
	}
	r.length = in.length
	r.want = min(in.length, int64(len(r.buf)))
	r.send = in.send
	if in.kind == tagRget {
		if r.want > 0 && r.fetch(data) {
			return
		}
		data = nil
	}
	r.got = int64(copy(r.buf[:r.want], data))
	switch {
	case r.got == r.want:
		r.p.sendAck(r.from, ackHdr{send: r.send, from: r.got, to: r.want})
		r.finish(nil)
	case in.flags&flagPut != 0 && r.askForWrites():
	default:
		r.ask()
	}
}

// ask asks for the rest of the message in fragments.
func (r *RecvRequest) ask() {
	r.move(recvStreaming)
	r.makeHandle()
	r.p.sendAck(r.from, ackHdr{send: r.send, recv: r.name, from: r.got, to: r.want})
	r.failIfLost()
}

// makeHandle makes a handle by which the peer can name the receive.
func (r *RecvRequest) makeHandle() {
	if r.name == 0 {
		r.name = r.p.recvs.add(r)
		r.p.onTransfer(true)
	}
}

// failIfLost ends a receive whose peer was lost when it posted its answer.
func (r *RecvRequest) failIfLost() {
	if r.name != 0 && r.from != nil && r.from.IsLost() {
		r.fail(r.from.Err())
	}
}

// askForWrites asks the sender to write the rest of the message into the buffer. It reports false
// if that is not possible.
func (r *RecvRequest) askForWrites() bool {
	p, pr := r.p, r.from
	if p.resolve(pr) != nil || pr.Putters() == 0 || !pr.IsRemote(r.want-r.got) {
		return false
	}
	keys := p.bml.Expose(r.transfer(), r.buf[:r.want], btl.AccessRemoteWrite)
	if keys == nil {
		return false
	}
	p.stats.ReceivedPut++
	r.awaitsFin = true
	r.move(recvStreaming)
	r.makeHandle()
	op := p.bml.GetOp()
	op.Tag, op.HdrLen, op.Request, op.Then, op.Payload = tagPut, ackBytes, r, p.putDone, keys
	r.put = op
	h := ackHdr{send: r.send, recv: r.name, from: r.got, to: r.want}
	h.encode(op.Hdr[:])
	r.outstanding++
	p.send(pr, op)
	r.failIfLost()
	return true
}

// onPutDone is called when a PUT is over.
func (p *PML) onPutDone(op *bml.Op, err error) {
	r := op.Request.(*RecvRequest)
	if bml.IsRefused(err) {
		p.nackOp(op)
		r.err = err
	}
	r.put = nil
	r.opDone(op)
}

// fetch starts to read the message from the memory that a list of remote key descriptors names. It
// reports false if no rail can read it.
func (r *RecvRequest) fetch(list []byte) bool {
	p := r.p
	if p.resolve(r.from) != nil || !p.bml.Reach(r.transfer(), list, r.buf[:r.want], bml.Read) {
		return false
	}
	p.stats.ReceivedGet++
	r.move(recvGetting)
	r.makeHandle()
	r.t.Begin(0, r.want)
	r.advance()
	return true
}

// transfer returns the receive's transfer for a long message. It makes one if there is none.
func (r *RecvRequest) transfer() *bml.Transfer {
	r.t = r.p.bml.Transfer(r.t, &r.from.Peer, r)
	return r.t
}

// onRecvPieceDone is called when the read of a piece is over.
func (p *PML) onRecvPieceDone(op *bml.Op, err error) {
	r := op.Request.(*RecvRequest)
	p.bml.PutOp(op)
	if err != nil && r.err == nil && !errors.Is(err, bml.ErrMovesAgain) {
		r.err = err
	}
	r.advance()
}

// opDone frees an operation that is over, and goes on with the receive.
func (r *RecvRequest) opDone(op *bml.Op) {
	r.p.bml.PutOp(op)
	r.outstanding--
	r.advance()
}

// fail ends the receive with err as soon as no operation uses its buffer.
func (r *RecvRequest) fail(err error) {
	r.err = err
	r.advance()
}

// advance posts the reads for which rails have room now, and finishes the receive when everything
// has ended. An operation may complete while it is posted and call advance, which then does
// nothing.
func (r *RecvRequest) advance() {
	if r.isAdvancing {
		return
	}
	r.isAdvancing = true
	for r.state == recvGetting && r.err == nil {
		op, from, to := r.p.bml.NextPiece(r.t, bml.Read, 0)
		if op == nil {
			break
		}
		op.Request, op.Then, op.Payload = r, r.p.recvPieceDone, r.buf[from:to]
		r.p.bml.PostPiece(op)
	}
	r.isAdvancing = false
	if r.outstanding > 0 || r.t != nil && r.t.HasPieces() {
		return
	}
	isWhole := r.isWhole()
	if isWhole || r.err != nil {
		if r.t != nil && !r.from.IsLost() && !r.p.bml.IsSettled(r.t) {
			return // a failed rail may still write into the buffer
		}
	}
	switch {
	case isWhole && r.state == recvGetting:
		// The receive finishes before FIN is posted: posting may find the peer lost, which fails
		// all receives that are not finished.
		p, pr, h := r.p, r.from, finHdr{handle: r.send}
		r.finish(nil)
		p.post(pr, tagFin, finBytes, h.encode)
	case isWhole:
		if r.restart {
			r.p.post(r.from, tagRestartNack, restartBytes, restartHdr{r.send, r.name}.encode)
		}
		r.finish(nil)
	case r.from.IsLost():
		r.finish(r.from.Err())
	case r.from.IsFailing(): // the receive ends when the peer is lost
	case r.err != nil:
		r.finish(r.err)
	case r.state == recvGetting && !r.t.CanMove(bml.Read):
		// The send ends with the fragments, and its user may write into its buffer: a late read
		// would copy that new content here.
		if r.p.bml.IsSettled(r.t) {
			r.askAgain()
		}
	case r.restart:
		r.receiveAgain()
	}
}

// noteAnswered records that the sender has acted on the PUT, so it was delivered even if its rail
// reports an error.
func (r *RecvRequest) noteAnswered() {
	if r.put != nil {
		r.put.Answered = true
	}
}

// fragArrived handles a FRAG.
func (p *PML) fragArrived(pr *peer, frag []byte) error {
	var h fragHdr
	if err := h.decode(frag); err != nil {
		return err
	}
	r := p.awaiting(pr, h.recv)
	if r == nil {
		p.stats.StaleFragments++ // it belongs to an attempt that is over
		return nil
	}
	data := frag[fragBytes:]
	if h.offset < r.got || h.offset+int64(len(data)) > r.want {
		return fmt.Errorf("%w: FRAG of %d bytes at %d, not between %d and %d", errMalformed, len(data), h.offset, r.got, r.want)
	}
	if r.have.add(h.offset, h.offset+int64(len(data))) == 0 {
		p.stats.StaleFragments++ // another rail has brought it
		return nil
	}
	copy(r.buf[h.offset:], data)
	if r.isWhole() {
		r.noteAnswered()
		r.advance()
	}
	return nil
}

// isWhole reports whether the whole part of the message that fits has arrived.
func (r *RecvRequest) isWhole() bool {
	switch {
	case r.state == recvGetting:
		return r.err == nil && r.t.IsDone()
	case r.awaitsFin:
		return r.hasFin && r.have.bytes >= r.fragments
	}
	return r.state == recvStreaming && r.got+r.have.bytes == r.want
}

// awaiting returns the receive that a peer names if it waits for the rest of its message, or nil.
func (p *PML) awaiting(pr *peer, name handle) *RecvRequest {
	r := p.recvs.get(name)
	if r == nil || r.from != pr || r.state != recvStreaming {
		return nil
	}
	return r
}

// finArrived handles a FIN: the peer has read the message of a send, or written the message of a
// receive.
func (p *PML) finArrived(pr *peer, frag []byte) error {
	var h finHdr
	if err := h.decode(frag); err != nil {
		return err
	}
	if !h.ofReceive {
		if s := p.answered(pr, h.handle, sendRTS); s != nil {
			s.stream(&ackHdr{})
		}
		return nil
	}
	switch r := p.awaiting(pr, h.handle); {
	case r == nil:
		p.stats.Malformed++
	case h.fragments > r.want-r.got:
		return fmt.Errorf("%w: FIN after %d bytes of fragments, of %d to %d", errMalformed, h.fragments, r.got, r.want)
	case r.awaitsFin && !r.hasFin:
		r.hasFin, r.fragments = true, h.fragments
		p.bml.Fence(r.t, h.fences)
		r.noteAnswered()
		r.advance()
	}
	return nil
}

// finish completes the receive, which is in no queue. A nil error means that it has its message.
func (r *RecvRequest) finish(err error) {
	r.move(recvIdle)
	got := int64(0)
	failed := err != nil
	if !failed {
		got = r.want
		r.p.countReceived(1, int(got))
		if r.length > int64(len(r.buf)) {
			err = truncated(r.length, len(r.buf))
		}
	}
	if r.name != 0 {
		r.p.recvs.remove(r.name)
		r.name = 0
		r.p.onTransfer(false)
	}
	r.p.endTransfer(&r.t, r.Persistent(), failed)
	r.from, r.err, r.restart, r.awaitsFin, r.hasFin = nil, nil, false, false, false
	r.got, r.want, r.length, r.fragments = 0, 0, 0, 0
	r.have.reset()
	ctx := r.ctx
	r.CompleteTransfer(r.gotSource, r.gotTag, got, err)
	if ctx.removed {
		ctx.freeIfUnused()
	}
}

// AwaitsMatch reports whether the receive has not matched a message.
func (r *RecvRequest) AwaitsMatch() bool { return r.state == recvPosted }

// Cancel implements request.Operation. It cancels a receive that has not matched.
func (r *RecvRequest) Cancel() {
	if r.state != recvPosted {
		return
	}
	r.ctx.posted.remove(r)
	r.move(recvIdle)
	ctx := r.ctx
	st := request.Empty()
	st.Cancelled = true
	r.Complete(st, nil)
	if ctx.removed {
		ctx.freeIfUnused()
	}
}

// Release implements request.Operation.
func (r *RecvRequest) Release() {
	if r.Persistent() {
		r.ctx.persistent--
		r.ctx.freeIfUnused()
	}
	if r.t != nil {
		r.p.endTransfer(&r.t, false, false)
	}
	r.ctx, r.buf, r.pair = nil, nil, nil
	if !r.p.freeRecvs.put(r) {
		r.Unbind()
	}
}

// Describe implements request.Operation.
func (r *RecvRequest) Describe(err error) error {
	return r.ctx.caller.Describe(r.op, r.gotSource, r.gotTag, err)
}

func (r *RecvRequest) pending() Pending {
	req := r.pair.or(&r.Object)
	return Pending{
		Op: r.op, Context: r.ctx.id, Caller: r.ctx.caller, Peer: r.source, Tag: r.tag, Bytes: int64(len(r.buf)),
		Phase: r.state.String(), GoesOn: r.state != recvPosted || r.ctx.mayFail(r.world),
		Abandoned: req.Abandoned(), Request: req,
	}
}
