package pml

import (
	"github.com/mpigo/mpigo/request"
)

// blockingRecv is a blocking receive without a request. It first polls for its message, which
// usually arrives within that time. There is at most one at a time. It usually holds the engine's
// lock, but a task of the engine may release the lock for a while. No receive of its context was
// posted when it began, so it is older than all of them.
type blockingRecv struct {
	p     *PML
	need  int32    // 1 while it waits, for Engine.Spin
	ctx   *Context // nil if there is none
	buf   []byte
	world int // rank in the job
	tag   int // or AnyTag
	// The message that arrived.
	gotTag, bytes int
	// posted is the request that the receive has become, with these arguments.
	posted *RecvRequest
	elem   int
	source int
	op     string
}

// Recv is Irecv for a caller that waits at once. It returns a nil request if the receive is
// complete without error, and then fills in the status, which was zero.
func (p *PML) Recv(st *request.Status, c *Context, buf []byte, elem, source, tag int, op string) *RecvRequest {
	d := &p.blocking
	if source < 0 || elem == 0 || c.posted.count > 0 || c.unexpected.count > 0 || d.ctx != nil || c.receiveError(tag) != nil {
		return p.Irecv(c, buf, elem, source, tag, op)
	}
	world := c.group.world[source]
	if p.waitError(c, world) != nil {
		return p.Irecv(c, buf, elem, source, tag, op)
	}
	d.need, d.ctx, d.buf, d.world, d.tag = 1, c, buf, world, tag
	d.elem, d.source, d.op = elem, source, op
	p.grant(c, world)
	if d.p = p; tag >= 0 {
		p.eng.Spin(&d.need, d)
	} else {
		p.eng.Spin(&d.need, nil)
	}
	if d.ctx != nil && d.need > 0 {
		p.postBlocking()
	}
	d.ctx, d.buf = nil, nil
	if r := d.posted; r != nil {
		d.posted = nil
		return r
	}
	st.Source, st.Tag, st.Bytes = source, d.gotTag, int64(d.bytes)
	st.Count = request.WholeElements(st.Bytes, elem)
	return nil
}

// awaits reports whether a message is the one that the receive waits for, and fits its buffer.
func (d *blockingRecv) awaits(rank, tag, bytes int) bool {
	return d.world == rank && (d.tag == tag || d.tag == request.AnyTag) && d.need > 0 && bytes <= len(d.buf)
}

// take receives an eager message that it awaits.
func (d *blockingRecv) take(pr *peer, h *matchHdr, data []byte) {
	copy(d.buf, data)
	d.p.countReceived(1, len(data))
	d.p.traceMatched(pr, h, int64(len(data)))
	d.end(pr, int(h.tag), len(data))
}

// end ends the receive, whose message is in the buffer.
func (d *blockingRecv) end(pr *peer, tag, bytes int) {
	d.gotTag, d.bytes, d.need = tag, bytes, 0
	d.p.consumed(pr, 1, bytes)
}

// postBlocking posts the blocking receive that waits, if there is one, as a request. Functions that
// read the posted receives call it first.
func (p *PML) postBlocking() {
	d := &p.blocking
	if d.ctx == nil || d.need == 0 {
		return
	}
	d.need = 0
	d.posted = p.newRecv(d.ctx, d.buf, d.elem, d.source, d.tag, d.op)
	d.posted.Activate()
	d.posted.move(recvPosted)
	d.ctx.posted.add(d.posted)
}
