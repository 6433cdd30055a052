package pml

import (
	"fmt"

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
	t         *transfer
	waits     int // operations posted or queued and not called back
	pumping   bool
	broken    bool // a rail has failed with a read: all is to be read anew
	restart   bool // the sender has asked to begin anew
	restarts  int  // how often it was read anew
	trouble   trouble
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
		r.gotSource, _ = r.ctx.group.Rank(pr.rank)
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
		r.finish(errWithdrawn)
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
	case a.flags&flagPut != 0 && r.invite():
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
	if r.name != 0 && r.from != nil && r.from.lost != nil {
		r.fail(r.from.lost)
	}
}

// invite asks the sender to write the rest of the message into the buffer. It reports false if
// the buffer cannot be written to from there.
func (r *RecvRequest) invite() bool {
	p, pr := r.p, r.from
	if p.route(pr) != nil || pr.putters&pr.up == 0 || !pr.remote(r.want-r.got) {
		return false
	}
	t := r.transfer()
	p.register(&t.mine, pr, pr.putters&pr.up, r.buf[:r.want], btl.AccessRemoteWrite)
	if t.mine.set == 0 {
		return false
	}
	t.list = t.mine.expose(t.list[:0], pr.rails)
	p.stats.ReceivedPut++
	r.move(recvStreaming)
	r.named()
	op := p.getOp()
	op.Tag, op.HdrLen, op.Owner, op.Done, op.Payload = tagPut, ackBytes, r, p.inviteDone, t.list
	h := ackHdr{send: r.send, recv: r.name, from: r.got, to: r.want}
	h.encode(op.Hdr[:])
	r.waits++
	p.send(pr, op)
	r.settle()
	return true
}

// onInviteDone is called when a PUT was delivered, or not.
func (p *PML) onInviteDone(op *btl.Op, err error) {
	r := op.Owner.(*RecvRequest)
	isAnswered := r.restart || r.got == r.want // so it was delivered, whatever the rail says
	if err != nil && !isAnswered && p.saves(r.from, op, err) {
		return
	}
	p.putOp(op)
	r.waits--
	r.advance()
}

// fetch begins to read the message from where list says that it is. It reports false if no rail
// can.
func (r *RecvRequest) fetch(list []byte) bool {
	p, pr := r.p, r.from
	if p.route(pr) != nil {
		return false
	}
	t := r.transfer()
	t.theirs.decode(pr, list, pr.getters)
	if t.theirs.set == 0 {
		return false
	}
	p.register(&t.mine, pr, t.theirs.set&pr.up, r.buf[:r.want], btl.AccessLocal)
	if t.mine.set == 0 {
		return false
	}
	p.stats.ReceivedGet++
	r.move(recvGetting)
	r.named()
	t.begin(0, r.want)
	r.advance()
	return true
}

// transfer is what the receive needs for a long message.
func (r *RecvRequest) transfer() *transfer {
	if r.t == nil {
		r.t = r.p.getTransfer()
	}
	return r.t
}

// onRecvPieceDone is called when a piece of a message was read, or not.
func (p *PML) onRecvPieceDone(op *btl.Op, err error) {
	r, rail := op.Owner.(*RecvRequest), int(op.Hdr[opRail])
	r.t.done(rail, len(op.Payload))
	if err == nil {
		r.got += int64(len(op.Payload))
	} else if misused(err) || r.from.failing != nil || r.from.lost != nil || !p.mayTryAgain(r.from, &r.trouble, 1<<rail, err) {
		if r.err == nil {
			r.err = err
		}
	} else {
		r.broken = true
	}
	p.putOp(op)
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
	for r.state == recvGetting && r.err == nil && !r.broken && r.t.next < r.t.end {
		i, from, to := r.t.take(r.from.rails, r.readers(), true)
		if i < 0 {
			break
		}
		op := r.p.pieceOp(r, i, r.p.recvPieceDone)
		op.Tag, op.HdrLen, op.Payload = opGet, 0, r.buf[from:to]
		op.Local, op.Remote, op.RemoteOffset = r.t.mine.regions[i], r.t.theirs.key[i], r.t.theirs.offset[i]+uint64(from)
		r.waits++
		r.p.post(&r.from.rails[i], op)
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
		op := p.answerOp(pr, tagFin, finBytes)
		h.encode(op.Hdr[:])
		p.send(pr, op)
	case r.got == r.want && r.state == recvStreaming:
		if r.restart {
			r.p.tellNeedless(r.from, restartHdr{r.send, r.name})
		}
		r.finish(nil)
	case r.from.lost != nil:
		r.finish(r.from.lost)
	case r.from.failing != nil: // it ends when the peer is lost
	case (r.err != nil || r.broken) && r.from.isUnsettled():
	case misused(r.err):
		// The sender has taken the message away from there, or cannot have it read.
		r.p.stats.Unread++
		r.askAnew()
	case r.err != nil:
		r.finish(causeOf(r.err))
	case r.broken:
		if !r.from.isUnsettled() {
			r.readAnew()
		}
	case r.state == recvGetting && r.readers() == 0 && r.from.up != 0:
		r.p.stats.Unread++
		r.askAnew()
	case r.restart:
		r.receiveAnew()
	}
}

// readers is the rails that can read the message now.
func (r *RecvRequest) readers() railSet { return r.t.theirs.set & r.t.mine.set & r.from.up }

// askAnew wants all of the message in fragments, though it was to be read.
func (r *RecvRequest) askAnew() {
	r.err, r.broken, r.got = nil, false, 0
	r.ask()
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
		r.p.retire(&r.t, r.Persistent(), failed)
	}
	r.from, r.err, r.broken, r.restart, r.restarts, r.trouble.by = nil, nil, false, false, 0, 0
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
		r.p.retire(&r.t, false, false)
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
