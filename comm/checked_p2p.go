package comm

import (
	"bytes"

	"github.com/mpigo/mpigo/comm/internal/audit"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/pml"
)

// Point-to-point calls in checked mode, after the checks of their arguments. Each message carries
// the kind of its elements, which the receiver compares with its own. A message without elements
// fits every type, and so does a buffer without elements (MPI 4.1, section 3.3.1: the type
// signatures are empty). Lock held.

// kindOf is the kind of the elements of a message.
func (k *checker) kindOf(typ elemType, buf []byte) uint8 {
	if len(buf) == 0 {
		return uint8(audit.NoKind)
	}
	return uint8(k.typeOf(typ).Kind)
}

// newRecvWatch is newWatch of a receive.
func (k *checker) newRecvWatch(typ elemType, recv []byte) *watch {
	w := newWatch()
	w.recv = audit.Watch(recv)
	if len(recv) > 0 {
		w.typ = k.typeOf(typ)
	}
	return w
}

func (c *Comm) sendAudited(typ elemType, buf []byte, dest, tag int, mode pml.Mode, op calls.ID) error {
	defer c.endCall(c.beginCall(op, dest, tag, len(buf)))
	k := c.job.check
	w := newWatch(buf)
	return awaitSend(c.ctx, c.job.pml.IsendAudited(c.p2p, buf, dest, tag, k.sendMode(w, mode), op.String(), k.kindOf(typ, buf), w))
}

func (c *Comm) isendAudited(typ elemType, buf []byte, dest, tag int, mode pml.Mode, op calls.ID) Request {
	defer c.endCall(c.beginCall(op, dest, tag, len(buf)))
	k := c.job.check
	w := newWatch(buf)
	if mode == pml.Buffered {
		w.sends = nil // the call has copied it
	}
	r := c.job.pml.IsendAudited(c.p2p, buf, dest, tag, k.sendMode(w, mode), op.String(), k.kindOf(typ, buf), w)
	return k.handle(c.job, &r.Object, w)
}

func (c *Comm) recvAudited(typ elemType, buf []byte, size, source, tag int) (Status, error) {
	defer c.endCall(c.beginCall(calls.Recv, source, tag, len(buf)))
	w := c.job.check.newRecvWatch(typ, buf)
	return awaitRecv(c.ctx, c.job.pml.IrecvAudited(c.p2p, buf, size, source, tag, calls.Recv.String(), w))
}

func (c *Comm) irecvAudited(typ elemType, buf []byte, size, source, tag int) Request {
	defer c.endCall(c.beginCall(calls.Irecv, source, tag, len(buf)))
	k := c.job.check
	w := k.newRecvWatch(typ, buf)
	r := c.job.pml.IrecvAudited(c.p2p, buf, size, source, tag, calls.Irecv.String(), w)
	return k.handle(c.job, &r.Object, w)
}

// auditSend makes a watch for a persistent send.
func (c *Comm) auditSend(r *pml.SendRequest, typ elemType, buf []byte, mode pml.Mode) Request {
	k := c.job.check
	w := newWatch(buf)
	if mode == pml.Buffered {
		w.sends = nil
	}
	r.Tell(k.kindOf(typ, buf), k.sendMode(w, mode))
	r.Audit(w)
	return k.handle(c.job, &r.Object, w)
}

// auditRecv makes a watch for a persistent receive.
func (c *Comm) auditRecv(r *pml.RecvRequest, typ elemType, buf []byte) Request {
	k := c.job.check
	w := k.newRecvWatch(typ, buf)
	r.Audit(w)
	return k.handle(c.job, &r.Object, w)
}

// sendrecvAudited is the last part of sendrecv. With replace, it sends a copy of the buffer.
func (c *Comm) sendrecvAudited(a pml.Sendrecv, sent, received elemType, replace bool) (Status, error) {
	k := c.job.check
	if replace {
		a.Send = bytes.Clone(a.Send)
	}
	s := c.job.pml.IsendAudited(c.p2p, a.Send, a.Dest, a.SendTag, pml.Standard, a.Op, k.kindOf(sent, a.Send), newWatch(a.Send))
	r := c.job.pml.IrecvAudited(c.p2p, a.Recv, a.Elem, a.Source, a.RecvTag, a.Op, k.newRecvWatch(received, a.Recv))
	st, err := awaitRecv(c.ctx, r)
	if serr := awaitSend(c.ctx, s); err == nil {
		err = serr
	}
	return st, err
}

func (c *Comm) isendrecvAudited(a pml.Sendrecv, sent, received elemType) Request {
	k := c.job.check
	w := newWatch(a.Send)
	r := c.job.pml.IsendrecvAudited(c.p2p, a, k.kindOf(sent, a.Send), w, k.newRecvWatch(received, a.Recv))
	return k.handle(c.job, &r.Object, w)
}

// receiveAudited posts the receive of a message that a probe has taken.
func (m *Message) receiveAudited(typ elemType, buf []byte, elem int, op calls.ID) *pml.RecvRequest {
	j := m.c.job
	w := j.check.newRecvWatch(typ, buf)
	if m.m == nil {
		return j.pml.IrecvAudited(m.c.p2p, buf, elem, ProcNull, AnyTag, op.String(), w)
	}
	return j.pml.ImrecvAudited(m.m, buf, elem, op.String(), w)
}
