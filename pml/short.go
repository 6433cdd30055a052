package pml

import "github.com/mpigo/mpigo/request"

// The shortest way of a short message: while a call waits for the message of one source and tag, it
// polls for exactly the fragment that it expects, whose header it knows. A rail that can hand such
// a fragment over (btl.ShortReceiver) copies it straight to where it belongs. What arrives instead,
// or by another rail, the next turn of progress takes by the general path. The outcome is the same
// by both ways, and so are the counts.

const (
	// pollsAhead is how often the expected fragment is looked for before a turn of progress, which
	// delays what else there is to do by up to 1 µs. With fewer polls, more messages arrive during
	// a turn, and take the general path.
	pollsAhead = 32
	// maxShortReceives bounds the messages, and their KiB, that are received the short way between
	// two turns of progress. Without it, a stream of messages from one peer would keep timers,
	// other peers and other rails waiting for as long as it lasts. The bound is some microseconds.
	maxShortReceives = 128
)

// Results of receiveShort that are not lengths.
const (
	notThere = -1 // the next MATCH has not come, or is another one
	noWay    = -2 // no rail hands fragments over now
)

// receiveShort receives the next MATCH of a peer into buf if it is of this context, has this tag
// and fits. It returns its length, or one of the negative results. The caller makes its receive
// what it is after a match, and then calls consumed.
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
		pr.TakeNext()
		c.p.shortReceives += 1 + n>>10
		c.p.countReceived(n)
	}
	return n
}

// IsTurnDue reports whether no more messages are received the short way before a turn of progress.
func (p *PML) IsTurnDue() bool { return p.shortReceives >= maxShortReceives }

// RecvShort receives a message that has just arrived, or arrives within a fraction of a
// microsecond, if it is the next one of source, short, and fits. It fills in the status, which was
// zero. If it reports false, nothing has happened.
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
	p.consumed(pr, n)
	st.Source, st.Tag, st.Bytes = source, tag, int64(n)
	if elem == n {
		st.Count = 1
	} else {
		st.Count = request.WholeElements(st.Bytes, elem)
	}
	return true
}

// IrecvShort posts a receive if its message has not arrived and could be the next one of source:
// that is, nothing has to be checked or found out before. It returns the null request otherwise,
// and then nothing has happened. It does what newRecv, Activate and post do, in one function, which
// takes less time than their calls.
func (c *Context) IrecvShort(buf []byte, elem, source, tag int, op string) request.Request {
	if !c.mayPost(source, tag) {
		return request.Request{}
	}
	p := c.p
	r := p.freeRecvs.get()
	if r == nil {
		r = p.makeRecv()
	}
	world := c.group.world[source]
	r.buf, r.ctx, r.op = buf, c, op
	r.source, r.world, r.tag = source, world, tag
	r.ElemBytes = elem
	r.gotSource, r.gotTag = source, tag
	r.ActivateIdle()
	if r.state != recvIdle || p.onMove != nil {
		r.reportMove(recvPosted)
	}
	r.state = recvPosted
	q := &c.posted
	q.order++
	r.order = q.order
	q.count++
	key := keyOf(world, tag)
	// As push, in short.
	if last := q.table.last; last != nil && last.key == key && last.tail != nil {
		n := &r.node
		n.item, n.prev, n.next, n.in = r, last.tail, nil, last
		last.tail.next = n
		last.tail = n
	} else {
		q.table.push(key, &r.node, r)
	}
	return r.Handle()
}

// mayPost reports whether a receive can be posted without a look at anything else. source and tag
// are no wildcards then.
func (c *Context) mayPost(source, tag int) bool {
	return uint(source) < uint(len(c.group.world)) && tag >= 0 && c.unexpected.count == 0 && c.handler == nil &&
		len(c.revoked) == 0 && c.p.blockedPeers == 0 && c.p.isReachable(c.group.world[source])
}

// post posts a receive for which mayPost is true. It does what posted.add does.
func (r *RecvRequest) post() {
	r.move(recvPosted)
	q := &r.ctx.posted
	q.order++
	r.order = q.order
	q.table.push(keyOf(r.world, r.tag), &r.node, r)
	q.count++
}

// SendShort sends a short message without a request, if that can be done at once. It reports
// whether it did; if not, nothing has happened.
func (c *Context) SendShort(buf []byte, dest, tag int) bool {
	p := c.p
	if uint(dest) >= uint(len(c.group.world)) {
		return false
	}
	pr := p.peers[c.group.world[dest]]
	if pr == nil || len(buf)+matchBytes > pr.InlineBytes() || len(c.revoked) > 0 || pr.pending.head != nil || !pr.credit.covers(len(buf)) {
		return false
	}
	to, seq := pr.ShortSender()
	if to == nil || !to.SendShort(tagMatch, c.firstWord, matchSecond(tag, seq), buf) {
		return false
	}
	pr.CountSent()
	pr.credit.spend(len(buf))
	p.stats.SentInline++
	return true
}

// sentRequest is the request of a send that was complete when Isend returned.
type sentRequest struct {
	request.Object
	ctx       *Context
	dest, tag int
	op        string
}

// IsendShort is SendShort that returns a complete request. Errors of calls that its state does not
// permit name the arguments. The null request says that nothing has happened.
func (c *Context) IsendShort(buf []byte, dest, tag int, op string) request.Request {
	if !c.SendShort(buf, dest, tag) {
		return request.Request{}
	}
	var s *sentRequest
	if o := c.p.freeSent.Get(); o != nil {
		s = o.Operation().(*sentRequest)
	} else {
		s = new(sentRequest)
		s.BindTo(&c.p.freeSent, c.p.eng, s)
	}
	s.ctx, s.dest, s.tag, s.op = c, dest, tag, op
	return s.CompleteAtOnce()
}

// Start, Cancel and Release implement request.Operation. They are never called: the request is not
// persistent, is never active, and has a pool.
func (s *sentRequest) Start()   {}
func (s *sentRequest) Cancel()  {}
func (s *sentRequest) Release() {}

// Describe implements request.Operation.
func (s *sentRequest) Describe(err error) error {
	return s.ctx.caller.Describe(s.op, s.dest, s.tag, err)
}

// Look implements progress.Ahead.
func (d *blockingRecv) Look() (events int, able bool) {
	pr := d.p.peers[d.world]
	n := d.ctx.receiveShort(pr, d.tag, d.buf)
	if n < 0 {
		return 0, n != noWay
	}
	d.gotTag, d.bytes, d.need = d.tag, n, 0
	d.p.consumed(pr, n)
	return 1, true
}

// Look implements progress.Ahead.
func (r *RecvRequest) Look() (events int, able bool) {
	n := r.receiveAhead()
	if n < 0 {
		return 0, n != noWay
	}
	r.received(n, nil)
	return 1, true
}

// TakeShort implements request.Shortcut. It does what Look and the observation of the completion
// do, in one function.
func (r *RecvRequest) TakeShort() (source, tag int, bytes int64, ok bool) {
	c, p := r.ctx, r.p
	if r.state != recvPosted || r.tag < 0 || !c.posted.isNext(r) || p.blocking.ctx == c {
		return 0, 0, 0, false
	}
	pr := p.peers[r.world]
	if pr == nil || p.IsTurnDue() {
		return 0, 0, 0, false
	}
	from, seq := pr.ShortReceiver()
	if from == nil {
		return 0, 0, 0, false
	}
	n := from.ReceiveShort(pollsAhead, tagMatch, c.firstWord, matchSecond(r.tag, seq), r.buf)
	if n < 0 {
		return 0, 0, 0, false
	}
	pr.TakeNext()
	p.shortReceives += 1 + n>>10
	p.countReceived(n)
	in, next := r.node.in, r.node.next
	r.node = node[RecvRequest]{}
	c.posted.removeRun(in, 1, next)
	p.consumed(pr, n)
	if p.onMove != nil {
		r.move(recvMatched)
		r.move(recvIdle)
	}
	r.state = recvIdle
	p.eng.CountCompletions(1)
	source, tag = r.source, r.tag
	if r.Taken(nil, 0, 0, 0) {
		r.Release()
	}
	if c.removed {
		c.freeIfUnused()
	}
	return source, tag, int64(n), true
}

// receiveAhead receives the message of a posted receive as receiveShort does; the receive has then
// matched. It looks only at the next message of the peer, so the receive has to be the one that a
// message with its tag would match.
func (r *RecvRequest) receiveAhead() int {
	c := r.ctx
	if r.state != recvPosted || r.tag < 0 || !c.posted.isNext(r) || r.p.blocking.ctx == c {
		return noWay
	}
	pr := r.p.peers[r.world]
	if pr == nil {
		return noWay
	}
	n := c.receiveShort(pr, r.tag, r.buf)
	if n >= 0 {
		c.posted.remove(r)
		r.p.consumed(pr, n)
		r.move(recvMatched)
		r.gotTag = r.tag
	}
	return n
}
