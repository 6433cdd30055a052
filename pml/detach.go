package pml

import (
	"slices"
	"unsafe"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/request"
)

// Detach gives the buffer back before the send is complete: what is still to be sent goes on from a
// copy, unless it does already, and no peer can read the buffer remotely any more. It returns nil
// if nothing uses the buffer now. Otherwise rails have given its address to their devices: the
// buffer is the caller's when the Detachment is complete. The send is not persistent.
func (s *SendRequest) Detach() *Detachment {
	if s.State() != request.Active || len(s.buf) == 0 || s.copied {
		return nil
	}
	if s.detached {
		return s.lent
	}
	s.detached = true
	d := &Detachment{p: s.p, ctx: s.ctx, dest: s.dest, tag: s.tag, op: s.op, buf: s.buf}
	s.buf = slices.Clone(d.buf)
	isWhole := true
	switch t := s.t; {
	case t == nil || !t.IsRegistered():
	case s.state == sendPutting:
		d.mine, isWhole = s.p.bml.MoveBuffer(t, s.buf)
	default:
		s.p.bml.Revoke(t)
	}
	if s.peer == nil {
		return nil
	}
	var unreachable []*bml.Op // writes by a rail that cannot reach the new buffer
	s.rebind(d, &s.head)
	if s.t != nil {
		for _, op := range s.t.Pieces() {
			s.rebind(d, op)
			if op.Tag == bml.TagPut && op.IsQueued() && !s.t.RebindLocal(op) {
				unreachable = append(unreachable, op)
			}
		}
	}
	if d.ops == 0 {
		d.mine.Release()
		d = nil
	} else {
		s.p.detached = append(s.p.detached, d)
		s.lent = d
		d.Bind(s.p.eng, d)
		d.Activate()
	}
	for _, op := range unreachable {
		s.p.bml.EndQueued(op, bml.ErrUnregistered)
	}
	if !isWhole && s.state == sendPutting && !s.ended {
		s.p.bml.Interrupt(s.t, bml.ErrUnregistered) // it goes on in fragments
	}
	return d
}

// rebind has an operation that uses the old buffer go on from the new one. It counts in d an operation that cannot yet.
func (s *SendRequest) rebind(d *Detachment, op *bml.Op) {
	if holds(d.buf, op.Payload) && !s.p.bml.Rebind(op, s.moved(d.buf, op.Payload), func() { d.release(s) }) {
		d.ops++
	}
}

// moved is the part of the buffer that part was of the old one.
func (s *SendRequest) moved(old, part []byte) []byte {
	at := uintptr(unsafe.Pointer(&part[0])) - uintptr(unsafe.Pointer(&old[0]))
	return s.buf[at:][:len(part)]
}

// Detachment is a buffer that a send no longer needs, and that devices may still read. It is
// complete when every operation that they were given with it was called back. A rail does so within
// its own deadline for operations that do not complete, at the latest when it is Drained (btl,
// C10).
type Detachment struct {
	request.Object
	p         *PML
	ctx       *Context
	dest, tag int
	op        string
	buf       []byte
	mine      bml.Registration // of buf
	ops       int              // not called back
}

// release counts an operation of the send that a device is done with.
func (d *Detachment) release(s *SendRequest) {
	if d.ops--; d.ops > 0 {
		return
	}
	s.lent = nil
	d.p.detached = slices.DeleteFunc(d.p.detached, func(other *Detachment) bool { return other == d })
	d.mine.Release()
	d.buf = nil
	d.Complete(request.Empty(), nil)
}

// Start implements request.Operation. It is never called.
func (d *Detachment) Start() {}

// Cancel implements request.Operation.
func (d *Detachment) Cancel() {}

// Release implements request.Operation.
func (d *Detachment) Release() { d.Unbind() }

// Describe implements request.Operation.
func (d *Detachment) Describe(err error) error {
	return d.ctx.caller.Describe(d.op, d.dest, d.tag, err)
}

// User is an operation that uses some of mem, if there is one. A collective that is running uses
// everything that it was called with.
func (p *PML) User(mem []byte) (user Pending, found bool) {
	p.settleDirect()
	uses := func(buf []byte, what func() Pending) {
		if !found && overlap(mem, buf) {
			user, found = what(), true
		}
	}
	p.sends.each(func(s *SendRequest) { uses(s.buf, s.pending) })
	p.recvs.each(func(r *RecvRequest) { uses(r.buf, r.pending) })
	for _, d := range p.detached {
		uses(d.buf, func() Pending {
			return Pending{Op: d.op, Sends: true, Context: d.ctx.id, Caller: d.ctx.caller, Peer: d.dest, Tag: d.tag, Bytes: int64(len(d.buf)), Phase: "given up, with a device"}
		})
	}
	for _, c := range p.sortedContexts() {
		for _, r := range c.posted.inOrder() {
			uses(r.buf, r.pending)
		}
		if c.handler != nil && !found && c.handler.Uses(mem) {
			user, found = Pending{Op: "collective", Context: c.id, Caller: c.caller, Peer: request.AnySource, Tag: request.AnyTag, Phase: "running"}, true
		}
	}
	return user, found
}

// holds reports whether b is a part of whole that is not empty.
func holds(whole, b []byte) bool {
	if len(b) == 0 || len(whole) == 0 {
		return false
	}
	at, base := uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&whole[0]))
	return at >= base && at < base+uintptr(len(whole))
}

// overlap reports whether two slices have bytes in common.
func overlap(a, b []byte) bool { return holds(a, b) || holds(b, a) }

var _ request.Operation = (*Detachment)(nil)
