package pml

import (
	"errors"
	"fmt"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// recvState is where a receive stands. One from nobody is done without leaving idle.
type recvState uint8

const (
	recvIdle      recvState = iota // not started, or done
	recvPosted                     // waits for a message
	recvMatched                    // has one, being looked at
	recvStreaming                  // has answered, and waits for FRAGs, or for FIN after remote writes
	recvGetting                    // reads the message from where the sender has it
)

var recvNames = [...]string{"idle", "waiting for a message", "matched", "receiving", "reading"}

func (s recvState) String() string { return recvNames[s] }

// recvLegal is the table of transitions.
//
//	idle       posted     Start, and no message is there
//	           matched    Start, and one is; or Imrecv
//	           idle       Start, and nothing can come from there any more
//	posted     matched    a message arrived
//	           idle       it was cancelled, whom it waits for was lost or has left, or the
//	                      communicator was revoked
//	matched    streaming  it has answered by ACK or PUT, and pieces are still to come
//	           getting    RGET came, and there is something to read
//	           idle       all of the message that fits was there
//	getting    streaming  it cannot be read, or not any more, and ACK asks for fragments
//	           idle       all was read; or the peer was lost, and all reads called back
//	streaming  idle       the last piece arrived, or FIN; or the peer was lost; or no rail takes our answer, or
//	                      what the sender has; and PUT was called back
var recvLegal = [5][5]bool{
	recvIdle:      {recvPosted: true, recvMatched: true, recvIdle: true},
	recvPosted:    {recvMatched: true, recvIdle: true},
	recvMatched:   {recvStreaming: true, recvGetting: true, recvIdle: true},
	recvStreaming: {recvIdle: true},
	recvGetting:   {recvStreaming: true, recvIdle: true},
}

// RecvRequest is a receive. The PML makes and keeps them.
type RecvRequest struct {
	request.Object
	p   *PML
	ctx *Context

	// What is asked for.
	buf    []byte
	source int // rank in the communicator, AnySource or ProcNull
	world  int // the same in the job
	tag    int
	op     string

	node  node[RecvRequest] // in ctx.posted
	order uint64

	// What has come. From the match on:
	state     recvState
	from      *peer
	gotSource int // in the communicator; before the match, as gotTag, what is asked for
	gotTag    int
	name      handle // while streaming or getting
	send      handle // the sender's, if it waits for an answer
	length    int64  // of the whole message
	got, want int64  // bytes here, and to come here
	t         *bml.Transfer
	waits     int // operations posted or queued and not called back
	pumping   bool
	invite    *bml.Op // PUT, while it is under way
	restart   bool    // the sender has asked to begin anew
	restarts  int     // how often it was read anew
	err       error
}

// Irecv starts a receive. The buffer is the library's until the request is complete.
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

// Imrecv receives a message that Improbe or a matched probe took out of matching. A message
// is received once; later receives of it end with ErrRequest.
func (p *PML) Imrecv(m *Message, buf []byte, elem int, op string) *RecvRequest {
	r := p.newRecv(m.ctx, buf, elem, m.env.Source, m.env.Tag, op)
	r.Activate()
	if msg := m.msg; msg != nil {
		m.msg = nil
		p.taken.remove(msg)
		r.accept(msg)
	} else {
		r.finish(request.ErrRequest)
	}
	return r
}

func (p *PML) newRecv(c *Context, buf []byte, elem, source, tag int, op string) *RecvRequest {
	r := p.freeRecvs.get()
	if r == nil {
		r = &RecvRequest{p: p}
		r.Bind(p.eng, r)
	}
	r.ctx, r.buf, r.source, r.tag, r.op = c, buf, source, tag, op
	r.ElemBytes = elem
	r.world = c.world(source)
	r.gotSource, r.gotTag = source, tag
	return r
}

// Start implements request.Operation.
func (r *RecvRequest) Start() {
	r.gotSource, r.gotTag = r.source, r.tag
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
		err = r.p.expect(r.ctx, r.world)
	}
	if err != nil {
		r.finish(err)
		return
	}
	r.move(recvPosted)
	r.ctx.posted.add(r)
	r.p.demand(r.ctx, r.world)
}

// accept receives a message that was unexpected.
func (r *RecvRequest) accept(m *message) {
	pr := r.p.peer(m.source)
	r.matched(pr, m.tag)
	r.begin(&m.announcement, m.data)
	r.p.dropMessage(m)
}

// matched says which message the receive has got.
func (r *RecvRequest) matched(pr *peer, tag int) {
	r.move(recvMatched)
	r.from, r.gotTag = pr, tag
	if r.gotSource == request.AnySource {
		r.gotSource, _ = r.ctx.group.Rank(pr.Rank())
	}
}

// receive takes a message, from whom it waits for, that is all here.
func (r *RecvRequest) receive(tag int, data []byte) {
	r.move(recvMatched)
	r.gotTag = tag
	r.complete(data)
}

// complete ends the receive with all of its message.
func (r *RecvRequest) complete(data []byte) {
	var err error
	if len(data) > len(r.buf) {
		err = truncated(int64(len(data)), len(r.buf))
	}
	n := copy(r.buf, data)
	r.move(recvIdle)
	r.p.stats.Received++
	r.from = nil
	ctx := r.ctx
	r.CompleteTransfer(r.gotSource, r.gotTag, int64(n), err)
	if ctx.removed {
		ctx.settle()
	}
}

func truncated(length int64, room int) error {
	return fmt.Errorf("%w: it has %d bytes, and the buffer room for %d", request.ErrTruncate, length, room)
}

// begin takes what has come of the message: all of it, or its beginning, or where it is.
func (r *RecvRequest) begin(a *announcement, data []byte) {
	if a.withdrawn {
		r.finish(errRefusedThere)
		return
	}
	if a.kind == tagMatch {
		r.complete(data)
		return
	}
	r.length = a.length
	r.want = min(a.length, int64(len(r.buf)))
	r.send = a.send
	if a.kind == tagRget {
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
	case a.flags&flagPut != 0 && r.inviteWrites():
	default:
		r.ask()
	}
}

// ask wants the rest of the message in fragments.
func (r *RecvRequest) ask() {
	r.move(recvStreaming)
	r.named()
	r.p.sendAck(r.from, ackHdr{send: r.send, recv: r.name, from: r.got, to: r.want})
	r.settle()
}

// named gives the receive a name for the peer to use.
func (r *RecvRequest) named() {
	if r.name == 0 {
		r.name = r.p.recvs.add(r)
	}
}

// settle ends a receive that was named if its peer was lost meanwhile.
func (r *RecvRequest) settle() {
	if r.name != 0 && r.from != nil && r.from.IsLost() {
		r.fail(r.from.Err())
	}
}

// inviteWrites asks the sender to write the rest of the message into the buffer. It reports false if
// the sender cannot.
func (r *RecvRequest) inviteWrites() bool {
	p, pr := r.p, r.from
	if p.resolve(pr) != nil || pr.Putters() == 0 || !pr.IsRemote(r.want-r.got) {
		return false
	}
	keys := p.bml.Expose(r.transfer(), r.buf[:r.want], btl.AccessRemoteWrite)
	if keys == nil {
		return false
	}
	p.stats.ReceivedPut++
	r.move(recvStreaming)
	r.named()
	op := p.bml.GetOp()
	op.Tag, op.HdrLen, op.Request, op.Then, op.Payload = tagPut, ackBytes, r, p.inviteDone, keys
	r.invite = op
	h := ackHdr{send: r.send, recv: r.name, from: r.got, to: r.want}
	h.encode(op.Hdr[:])
	r.waits++
	p.send(pr, op)
	r.settle()
	return true
}

// onInviteDone is called when a PUT was delivered, or not.
func (p *PML) onInviteDone(op *bml.Op, err error) {
	r := op.Request.(*RecvRequest)
	if bml.IsRefused(err) {
		p.refused(op)
		r.err = err
	}
	p.bml.PutOp(op)
	r.invite = nil
	r.waits--
	r.advance()
}

// fetch begins to read the message from where list says that it is. It reports false if no rail
// can.
func (r *RecvRequest) fetch(list []byte) bool {
	p := r.p
	if p.resolve(r.from) != nil || !p.bml.Reach(r.transfer(), list, r.buf[:r.want], bml.Read) {
		return false
	}
	p.stats.ReceivedGet++
	r.move(recvGetting)
	r.named()
	r.t.Begin(0, r.want)
	r.advance()
	return true
}

// transfer is what the receive needs for a long message.
func (r *RecvRequest) transfer() *bml.Transfer {
	r.t = r.p.bml.Transfer(r.t, &r.from.Peer, r)
	return r.t
}

// onRecvPieceDone is called when a piece of a message was read, or not.
func (p *PML) onRecvPieceDone(op *bml.Op, err error) {
	r := op.Request.(*RecvRequest)
	switch {
	case err == nil:
		r.got += int64(len(op.Payload))
	case r.err == nil && !errors.Is(err, bml.ErrInterrupted):
		r.err = err
	}
	p.bml.PutOp(op)
	r.waits--
	r.advance()
}

// fail ends the receive with err as soon as its buffer is its own again.
func (r *RecvRequest) fail(err error) {
	r.err = err
	r.advance()
}

// advance reads what may be read now, and goes on when all is done. As for a send, it is not
// entered twice.
func (r *RecvRequest) advance() {
	if r.pumping {
		return
	}
	r.pumping = true
	for r.state == recvGetting && r.err == nil {
		op, from, to := r.p.bml.NextPiece(r.t, bml.Read, 0)
		if op == nil {
			break
		}
		op.Request, op.Then, op.Payload = r, r.p.recvPieceDone, r.buf[from:to]
		r.waits++
		r.p.bml.PostPiece(op)
	}
	r.pumping = false
	if r.waits > 0 {
		return
	}
	switch {
	case r.got == r.want && r.state == recvGetting:
		// It is over before FIN is posted: that may find the rail down, which ends what is not.
		p, pr, h := r.p, r.from, finHdr{handle: r.send}
		r.finish(nil)
		p.post(pr, tagFin, finBytes, h.encode)
	case r.got == r.want && r.state == recvStreaming:
		if r.restart {
			r.p.post(r.from, tagRestartNack, restartBytes, restartHdr{r.send, r.name}.encode)
		}
		r.finish(nil)
	case r.from.IsLost():
		r.finish(r.from.Err())
	case r.from.IsFailing(): // it ends when the peer is lost
	case r.err != nil:
		r.finish(r.err)
	case r.restart:
		r.receiveAnew()
	}
}

// isAnswered notes that the sender has acted on the PUT: it was delivered, whatever its rail says.
func (r *RecvRequest) isAnswered() {
	if r.invite != nil {
		r.invite.Answered = true
	}
}

// fragment takes a piece of a message.
func (p *PML) fragment(pr *peer, h *fragHdr, data []byte) error {
	r := p.awaiting(pr, h.recv)
	if r == nil {
		p.stats.StaleFragments++ // of an attempt that is over
		return nil
	}
	if h.offset+int64(len(data)) > r.want || r.got+int64(len(data)) > r.want {
		return fmt.Errorf("%w: %d bytes at %d, after %d of %d bytes", errMalformed, len(data), h.offset, r.got, r.want)
	}
	copy(r.buf[h.offset:], data)
	r.got += int64(len(data))
	if r.got == r.want {
		r.isAnswered()
		r.advance()
	}
	return nil
}

// awaiting is the receive, named by a peer, that waits for a message's rest; nil if that is over.
func (p *PML) awaiting(pr *peer, name handle) *RecvRequest {
	r := p.recvs.get(name)
	if r == nil || r.from != pr || r.state != recvStreaming {
		return nil
	}
	return r
}

// finished takes a FIN.
func (p *PML) finished(pr *peer, h *finHdr) {
	if !h.ofReceive {
		p.read(pr, h.handle)
		return
	}
	switch r := p.awaiting(pr, h.handle); {
	case r == nil:
		p.stats.Malformed++
	case r.t != nil: // else it waits for no end
		r.got = r.want
		r.isAnswered()
		r.advance()
	}
}

// finish completes the receive, which is in no queue. A nil error is for one that has got its
// message.
func (r *RecvRequest) finish(err error) {
	r.move(recvIdle)
	got := r.got
	failed := err != nil
	if !failed {
		r.p.stats.Received++
		if r.length > int64(len(r.buf)) {
			err = truncated(r.length, len(r.buf))
		}
	}
	if r.name != 0 {
		r.p.recvs.remove(r.name)
		r.name = 0
	}
	if r.t != nil {
		r.p.endTransfer(&r.t, r.Persistent(), failed)
	}
	r.from, r.err, r.restart, r.restarts = nil, nil, false, 0
	r.got, r.want, r.length = 0, 0, 0
	ctx := r.ctx
	r.CompleteTransfer(r.gotSource, r.gotTag, got, err)
	if ctx.removed {
		ctx.settle()
	}
}

func (r *RecvRequest) move(to recvState) {
	if !recvLegal[r.state][to] || r.p.onMove != nil {
		r.moving(to)
	}
	r.state = to
}

func (r *RecvRequest) moving(to recvState) {
	if !recvLegal[r.state][to] {
		r.p.illegal("receive: " + r.state.String() + " → " + to.String())
	}
	if r.p.onMove != nil {
		r.p.onMove(r, r.state, to)
	}
}

// Cancel implements request.Operation: a receive that has not matched is withdrawn.
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
		ctx.settle()
	}
}

// Release implements request.Operation.
func (r *RecvRequest) Release() {
	if r.Persistent() {
		r.ctx.persistent--
		r.ctx.settle()
	}
	if r.t != nil {
		r.p.endTransfer(&r.t, false, false)
	}
	r.ctx, r.buf = nil, nil
	if !r.p.freeRecvs.put(r) {
		r.Unbind()
	}
}

// Describe implements request.Operation.
func (r *RecvRequest) Describe(err error) error {
	return r.ctx.caller.Describe(r.op, r.gotSource, r.gotTag, err)
}

func (r *RecvRequest) pending() Pending {
	return Pending{
		Op: r.op, Context: r.ctx.id, Caller: r.ctx.caller, Peer: r.source, Tag: r.tag, Bytes: int64(len(r.buf)), Phase: r.state.String(),
		GoesOn: r.state != recvPosted || r.ctx.mayFail(r.world), Request: &r.Object,
	}
}
