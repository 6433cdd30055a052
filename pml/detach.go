package pml

import (
	"slices"
	"unsafe"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/request"
)

// Detach returns the buffer to the user before the send is complete. The send goes on from a copy,
// unless it uses one already, and no peer can read the buffer remotely any more. Detach returns nil
// if no operation uses the buffer any more. Otherwise rails have passed its address to their
// devices, and the buffer is the user's when the Detachment is complete. The send is not
// persistent.
func (s *SendRequest) Detach() *Detachment {
	if s.State() != request.Active || len(s.buf) == 0 || s.isBcopy {
		return nil
	}
	if s.detached {
		return s.detachment
	}
	s.detached = true
	d := &Detachment{p: s.p, ctx: s.ctx, dest: s.dest, tag: s.tag, op: s.op, buf: s.buf}
	s.buf = slices.Clone(d.buf)
	switch t := s.t; {
	case t == nil || !t.IsRegistered():
	case s.state == sendPutting:
		d.registration = s.p.bml.MoveBuffer(t, s.buf)
	default:
		s.p.bml.Revoke(t)
	}
	if s.peer == nil {
		return nil
	}
	// A device may still read a buffer whose operation a failed rail has already called back.
	if s.p.bml.AfterDrain(&s.peer.Peer, func() { d.opReleased(s) }) {
		d.ops++
	}
	var unreachable []*bml.Op // queued writes by a rail that cannot reach the copy
	if s.head != nil {
		s.rebind(d, s.head)
	}
	if s.t != nil {
		for _, op := range s.t.Pieces() {
			s.rebind(d, op)
			if op.Tag == bml.TagPut && op.IsQueued() && !s.t.RebindLocal(op) {
				unreachable = append(unreachable, op)
			}
		}
	}
	if d.ops == 0 {
		d.registration.Release()
		d = nil
	} else {
		s.p.detached = append(s.p.detached, d)
		s.detachment = d
		d.Bind(s.p.eng, d)
		d.Activate()
	}
	for _, op := range unreachable {
		s.p.bml.EndQueued(op, bml.ErrMovesAgain)
	}
	if s.state == sendPutting {
		s.p.bml.ResumeLater(s.t) // it goes on in fragments if no rail can write from the copy
	}
	return d
}

// rebind makes an operation that uses the old buffer go on from the copy. It counts the operation
// in d if a device still reads the old buffer.
func (s *SendRequest) rebind(d *Detachment, op *bml.Op) {
	if holds(d.buf, op.Payload) && !s.p.bml.Rebind(op, s.moved(d.buf, op.Payload), func() { d.opReleased(s) }) {
		d.ops++
	}
}

// moved returns the bytes of the copy that correspond to a part of the old buffer.
func (s *SendRequest) moved(old, part []byte) []byte {
	at := uintptr(unsafe.Pointer(&part[0])) - uintptr(unsafe.Pointer(&old[0]))
	return s.buf[at:][:len(part)]
}

// Detachment is a buffer that a send no longer needs, but that devices may still read. It is
// complete when every operation that uses it was called back, and the rails that have failed are
// drained. A rail does both within its own deadline for operations that do not complete (btl, C10).
type Detachment struct {
	request.Object
	p         *PML
	ctx       *Context
	dest, tag int
	op        string
	buf       []byte
	ops       int // operations that are not called back, and a wait for the drain
	// registration of buf.
	registration bml.Registration
}

// opReleased counts an operation of the send whose device no longer reads the old buffer.
func (d *Detachment) opReleased(s *SendRequest) {
	if d.ops--; d.ops > 0 {
		return
	}
	if s.detachment == d { // the send may have ended, and its object may be reused
		s.detachment = nil
	}
	d.p.detached = slices.DeleteFunc(d.p.detached, func(other *Detachment) bool { return other == d })
	d.registration.Release()
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

// User returns an active operation that uses some of mem, if there is one. A collective uses all
// the buffers that it was called with until it is complete.
func (p *PML) User(mem []byte) (user Pending, found bool) {
	p.postBlocking()
	uses := func(buf []byte, what func() Pending) {
		if !found && overlap(mem, buf) {
			user, found = what(), true
		}
	}
	p.sends.each(func(s *SendRequest) { uses(s.buf, s.pending) })
	p.recvs.each(func(r *RecvRequest) { uses(r.buf, r.pending) })
	for _, d := range p.detached {
		uses(d.buf, func() Pending {
			return Pending{
				Op: d.op, Sends: true, Context: d.ctx.id, Caller: d.ctx.caller, Peer: d.dest, Tag: d.tag, Bytes: int64(len(d.buf)),
				Phase: "given up, with a device",
			}
		})
	}
	for _, c := range p.sortedContexts() {
		for _, r := range c.posted.inOrder() {
			uses(r.buf, r.pending)
		}
		if c.handler != nil && !found && c.handler.Uses(mem) {
			user, found = Pending{
				Op: "collective", Context: c.id, Caller: c.caller, Peer: request.AnySource, Tag: request.AnyTag, Phase: "running",
			}, true
		}
	}
	return user, found
}

// holds reports whether b is a non-empty part of whole.
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
