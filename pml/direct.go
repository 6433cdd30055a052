package pml

import "github.com/mpigo/mpigo/request"

// direct is a blocking receive that polls for its message before it makes a request for it. Most
// often the message comes within that time, and then it never needs one. There is one at a time,
// since it keeps the engine's lock. It is older than all receives of its context: none was posted
// when it began.
type direct struct {
	need  int32    // 1 while it waits, for Engine.Spin
	ctx   *Context // nil if there is none
	buf   []byte
	world int // rank in the job
	tag   int // or AnyTag
	// What came.
	gotTag, bytes int
	// made is the request that it has become, because it is not so simple after all.
	made   *RecvRequest
	elem   int
	source int
	op     string
}

// Recv is Irecv for a caller that will wait at once. It returns a nil request if the receive is
// complete, without error, and then fills in its status, which was zero.
func (p *PML) Recv(st *request.Status, c *Context, buf []byte, elem, source, tag int, op string) *RecvRequest {
	d := &p.direct
	if source < 0 || elem == 0 || c.posted.count > 0 || c.unexpected.count > 0 || d.ctx != nil || c.receiveError(tag) != nil {
		return p.Irecv(c, buf, elem, source, tag, op)
	}
	world := c.group.world[source]
	if p.expect(c, world) != nil {
		return p.Irecv(c, buf, elem, source, tag, op)
	}
	d.need, d.ctx, d.buf, d.world, d.tag = 1, c, buf, world, tag
	d.elem, d.source, d.op = elem, source, op
	p.demand(c, world)
	p.eng.Spin(&d.need)
	if d.ctx != nil && d.need > 0 {
		p.settleDirect()
	}
	d.ctx, d.buf = nil, nil
	if r := d.made; r != nil {
		d.made = nil
		return r
	}
	st.Source, st.Tag, st.Bytes = source, d.gotTag, int64(d.bytes)
	st.Count = request.WholeElements(st.Bytes, elem)
	return nil
}

// takes receives a message that is all there, and reports whether it did.
func (d *direct) takes(p *PML, c *Context, rank, tag int, data []byte) bool {
	if d.world != rank || d.tag != tag && d.tag != request.AnyTag || d.need == 0 || len(data) > len(d.buf) {
		return false
	}
	d.gotTag, d.bytes = tag, copy(d.buf, data)
	d.need = 0
	p.stats.Received++
	return true
}

// settleDirect makes a request of the direct receive that waits, if there is one. Whoever is about to
// look at posted receives calls it before.
func (p *PML) settleDirect() {
	d := &p.direct
	if d.ctx == nil || d.need == 0 {
		return
	}
	d.need = 0
	d.made = p.newRecv(d.ctx, d.buf, d.elem, d.source, d.tag, d.op)
	d.made.Activate()
	d.made.move(recvPosted)
	d.ctx.posted.add(d.made)
}
