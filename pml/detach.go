package pml

import (
	"slices"
	"unsafe"

	"github.com/mpigo/mpigo/btl"
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
	wasPutting := s.state == sendPutting
	switch t := s.t; {
	case t == nil || t.mine.set == 0:
	case wasPutting:
		d.mine, t.mine = t.mine, registration{}
		s.p.register(&t.mine, s.peer, t.theirs.set&s.peer.up, s.buf, btl.AccessLocal)
	case t.mine.access != btl.AccessLocal:
		// A peer that comes to read finds nothing any more, and asks for fragments.
		s.p.revoke(&t.mine)
	default:
		t.mine.release()
	}
	if s.peer == nil {
		return nil
	}
	unregistered := s.swapQueued(d.buf)
	s.swapAccepted(d)
	isShort := wasPutting && !s.ended && s.t.mine.set != d.mine.set&s.peer.up
	if d.ops == 0 {
		d.mine.release()
		d = nil
	} else {
		s.p.detached = append(s.p.detached, d)
		s.lent = d
		d.Bind(s.p.eng, d)
		d.Activate()
	}
	for op := unregistered.Pop(); op != nil; op = unregistered.Pop() {
		op.Done(op, errUnregistered)
	}
	if isShort && s.state == sendPutting { // else all writes were unregistered, and it goes on already
		s.fail(errUnregistered) // it goes on in fragments
	}
	return d
}

// swapQueued has what no rail has accepted yet go from the new buffer. It takes out, and returns,
// writes by rails for which that could not be registered.
func (s *SendRequest) swapQueued(old []byte) (unregistered btl.Queue) {
	for _, q := range s.peer.queues() {
		all := *q
		*q = btl.Queue{}
		for op := all.Pop(); op != nil; op = all.Pop() {
			if op.Owner == any(s) && holds(old, op.Payload) {
				op.Payload = s.moved(old, op.Payload)
				if op.Tag == opPut {
					if op.Local = s.t.mine.regions[op.Hdr[opRail]]; op.Local == nil {
						unregistered.Push(op)
						continue
					}
				}
			}
			q.Push(op)
		}
	}
	return unregistered
}

// swapAccepted has rails go on from the new buffer with what they have accepted, and counts in d
// what they cannot.
func (s *SendRequest) swapAccepted(d *Detachment) {
	swap := func(op *btl.Op) {
		if op.Owner != any(s) || !holds(d.buf, op.Payload) {
			return
		}
		if !s.peer.rails[op.Hdr[opRail]].endpoint.Rebind(op, s.moved(d.buf, op.Payload)) {
			d.ops++
		}
	}
	swap(&s.head)
	if s.t != nil {
		for _, op := range s.t.pieces {
			swap(op)
		}
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
	mine      registration // of buf
	ops       int          // not called back
}

// calledBack counts an operation of the send that was called back, if it used the buffer.
func (d *Detachment) calledBack(s *SendRequest, op *btl.Op) {
	if !holds(d.buf, op.Payload) {
		return
	}
	if d.ops--; d.ops > 0 {
		return
	}
	s.lent = nil
	d.p.detached = slices.DeleteFunc(d.p.detached, func(other *Detachment) bool { return other == d })
	d.mine.release()
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
