package pml

import "github.com/mpigo/mpigo/request"

// This file has sends and receives that are posted in one step, if no checks and no other steps are
// necessary before. The result is the same as on the general path.

// IrecvShort posts a receive if its message has not arrived and could be the next message of
// source. Otherwise it changes nothing and returns the null request. It does what newRecv, Activate
// and post do, in one function, which is faster than calling them.
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
	// This copies the case of push in which the previous receive has the same key. Without the
	// copy, each message of a window takes 4 % more instructions.
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

// mayPost reports whether a receive can be posted without further checks. If so, source and tag are
// not wildcards.
func (c *Context) mayPost(source, tag int) bool {
	return uint(source) < uint(len(c.group.world)) && tag >= 0 && c.unexpected.count == 0 && c.handler == nil &&
		len(c.revoked) == 0 && c.p.blockedPeers == 0 && c.p.isReachable(c.group.world[source])
}

// post posts a receive for which mayPost is true, like posted.add.
func (r *RecvRequest) post() {
	r.move(recvPosted)
	q := &r.ctx.posted
	q.order++
	r.order = q.order
	q.table.push(keyOf(r.world, r.tag), &r.node, r)
	q.count++
}

// SendShort sends a short message without a request, if that is possible at once. If it reports
// false, it has changed nothing.
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

// IsendShort is SendShort, but returns a complete request. If the user makes a call that the state
// of the request does not permit, the error names the arguments. The null request means that
// IsendShort has changed nothing.
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
