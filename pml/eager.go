package pml

import "github.com/mpigo/mpigo/request"

// This file delivers a message that arrived in one fragment to its receive. Every path makes the
// same changes, in this order:
//
//  1. the number of the next fragment of the peer, and the counters;
//  2. the receive: its buffer, its place among the posted receives, its state, and its request or
//     the caller's status; and its communicator, if it was freed and this was its last receive;
//  3. the peer's credit, last, because it posts a fragment: rails may fail then, and other receives
//     may end.
//
// Usually a turn of progress delivers the message (arrive.go): Arrived, matchFast or deliver,
// complete. This file has a shorter path for a call that waits for a message of one source and tag.
// The call polls for exactly the fragment that it expects, whose header it knows. A rail that can
// deliver such a fragment (btl.ShortReceiver) copies it directly into the receive buffer. The next
// turn of progress handles any other fragment, and fragments of other rails.

const (
	// pollsAhead is the number of polls for the expected fragment before a turn of progress. They
	// delay other work by up to 1 µs. With fewer polls, more messages arrive during a turn and take
	// the longer path.
	pollsAhead = 32
	// maxShortReceives bounds the messages, and their KiB, that take the shorter path between two
	// turns of progress. Without it, a stream of messages from one peer would keep timers, other
	// peers and other rails waiting for as long as it lasts. The bound is some microseconds.
	maxShortReceives = 128
)

// Results of receiveShort that are not lengths.
const (
	notThere = -1 // the next MATCH has not arrived, or is a different one
	noWay    = -2 // no rail can deliver fragments this way now
)

// countReceived counts messages that are in their buffers. bytes is the sum of their lengths.
func (p *PML) countReceived(messages, bytes int) {
	p.stats.Received += uint64(messages)
	p.stats.ReceivedBytes += int64(bytes)
}

// countTaken counts messages that a rail has delivered directly.
func (p *PML) countTaken(pr *peer, messages, bytes int) {
	pr.TakeNext(messages)
	p.shortReceives += messages + bytes>>10
	p.countReceived(messages, bytes)
}

// IsTurnDue reports whether a turn of progress is due before more messages take the shorter path.
func (p *PML) IsTurnDue() bool { return p.shortReceives >= maxShortReceives }

// receiveShort receives the next MATCH of a peer into buf if it is of this context, has this tag
// and fits. It returns its length, or one of the negative results. The caller ends its receive, and
// then calls consumed.
func (c *Context) receiveShort(pr *peer, tag int, buf []byte) int {
	from, seq := pr.ShortReceiver()
	if from == nil {
		return noWay
	}
	if c.p.IsTurnDue() {
		return notThere
	}
	n := from.ReceiveShort(pollsAhead, tagMatch, c.firstWord, matchSecond(tag, seq), buf)
	if n >= 0 {
		c.p.countTaken(pr, 1, n)
	}
	return n
}

// RecvShort receives a message that has just arrived, or arrives within a fraction of a
// microsecond, if it is the next message of source, is short, and fits. It fills in the status,
// which was zero. If it reports false, it has changed nothing.
func (c *Context) RecvShort(st *request.Status, buf []byte, elem, source, tag int) bool {
	p := c.p
	if uint(source) >= uint(len(c.group.world)) || tag < 0 || elem == 0 || c.posted.count+c.unexpected.count > 0 ||
		c.handler != nil || p.blocking.ctx != nil || len(c.revoked) > 0 || p.blockedPeers > 0 {
		return false
	}
	pr := p.peers[c.group.world[source]]
	if pr == nil {
		return false
	}
	n := c.receiveShort(pr, tag, buf)
	if n < 0 {
		return false
	}
	st.Source, st.Tag, st.Bytes = source, tag, int64(n)
	if elem == n {
		st.Count = 1
	} else {
		st.Count = request.WholeElements(st.Bytes, elem)
	}
	p.consumed(pr, 1, n)
	return true
}

// Look implements progress.Ahead.
func (d *blockingRecv) Look() (events int, able bool) {
	pr := d.p.peers[d.world]
	n := d.ctx.receiveShort(pr, d.tag, d.buf)
	if n < 0 {
		return 0, n != noWay
	}
	d.end(pr, d.tag, n)
	return 1, true
}

// Look implements progress.Ahead.
func (r *RecvRequest) Look() (events int, able bool) {
	pr := r.expects()
	if pr == nil {
		return 0, false
	}
	c := r.ctx
	n := c.receiveShort(pr, r.tag, r.buf)
	if n < 0 {
		return 0, n != noWay
	}
	c.posted.remove(r)
	r.move(recvMatched)
	r.gotTag = r.tag
	r.received(n, nil)
	c.p.consumed(pr, 1, n)
	return 1, true
}

// expects returns the peer whose next message with the tag of the receive would match it. It
// returns nil if another receive may match that message, or if the peer is unknown.
func (r *RecvRequest) expects() *peer {
	if r.state != recvPosted || r.tag < 0 || !r.ctx.posted.isNext(r) || r.p.blocking.ctx == r.ctx {
		return nil
	}
	return r.p.peers[r.world]
}

// TakeShort implements request.Shortcut. It does what Look and the observation of the completion
// do.
func (r *RecvRequest) TakeShort() (source, tag int, bytes int64, ok bool) {
	pr := r.expects()
	if pr == nil {
		return 0, 0, 0, false
	}
	n := r.ctx.receiveShort(pr, r.tag, r.buf)
	if n < 0 {
		return 0, 0, 0, false
	}
	c, in, next := r.ctx, r.node.in, r.node.next
	source, tag = r.source, r.tag
	r.take(nil, n)
	c.taken(pr, in, 1, next, n)
	return source, tag, int64(n), true
}

// take ends a posted receive whose message of n bytes is in its buffer, and which is observed at
// once. The caller takes it out of its queue.
func (r *RecvRequest) take(st *request.Status, n int) {
	r.node = node[RecvRequest]{}
	if r.p.onMove != nil {
		r.move(recvMatched)
		r.move(recvIdle)
	}
	r.state = recvIdle
	if st != nil {
		r.Fill(st, r.source, r.tag, int64(n))
	}
	if r.Taken() {
		r.Release()
	}
}

// taken removes from a queue the first receives, which take has ended. next is the receive after
// them.
func (c *Context) taken(pr *peer, in *queue[RecvRequest], receives int, next *node[RecvRequest], bytes int) {
	c.posted.removeRun(in, receives, next)
	c.p.eng.CountCompletions(receives)
	c.p.consumed(pr, receives, bytes)
	if c.removed {
		c.freeIfUnused()
	}
}

// noRun is a result of TakeRun: the requests have to be taken one by one.
const noRun = -1

// run is a TakeRun that is under way. It implements btl.Run.
type run struct {
	r    *RecvRequest       // whose message comes next
	next *node[RecvRequest] // the receive after those that were taken
	reqs []request.Request
	sts  []request.Status
	// taken counts the messages, and bytes their bytes. mostBytes bounds the bytes, so that the
	// credit is reported, and a turn made, in time.
	taken, bytes, mostBytes int
}

// TakeRun implements request.Shortcut. Receives of one source and tag that were posted one after
// another, and are waited for in this order, take their messages from the rail in one call: TakeRun
// does the work of TakeShort for each, and updates the counters once.
func (r *RecvRequest) TakeRun(reqs []request.Request, sts []request.Status) int {
	c, p := r.ctx, r.p
	pr := r.expects()
	if pr == nil {
		return noRun
	}
	from, seq := pr.RunReceiver()
	switch {
	case from == nil:
		return noRun
	case p.IsTurnDue() || !r.MayTake(reqs[0]):
		return 0
	}
	in := r.node.in
	x := &p.run
	*x = run{r: r, reqs: reqs, sts: sts, mostBytes: min(pr.credit.unreported(), (maxShortReceives-p.shortReceives)<<10)}
	n := from.ReceiveRun(pollsAhead, min(len(reqs), maxShortReceives-p.shortReceives), tagMatch, c.firstWord, matchSecond(r.tag, seq), r.buf, x)
	if n > 0 {
		p.countTaken(pr, n, x.bytes)
		c.taken(pr, in, n, x.next, x.bytes)
	}
	*x = run{}
	return n
}

// Taken implements btl.Run.
func (x *run) Taken(bytes int) (next []byte, more bool) {
	r := x.r
	var st *request.Status
	if x.sts != nil {
		st = &x.sts[x.taken]
	}
	x.taken++
	x.bytes += bytes
	x.next = r.node.next
	r.take(st, bytes)
	if x.next == nil || x.taken == len(x.reqs) || x.bytes+x.taken*fragmentCostBytes > x.mostBytes {
		return nil, false
	}
	if x.r = x.next.item; !x.r.MayTake(x.reqs[x.taken]) {
		return nil, false
	}
	return x.r.buf, true
}
