package comm

import (
	"context"

	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/request"
)

// Message is a message that Mprobe or Improbe has taken out of matching. Mrecv or Imrecv receives
// it, once. Goroutines may share it.
type Message struct {
	c    *Comm        // in which it was sent
	m    *pml.Message // nil if it is from ProcNull
	used bool         // guarded by the engine's lock
}

// Probe waits until a message that matches source and tag has arrived, and returns its status
// without receiving it (MPI 4.1, section 3.8). Count is −1: use [Count]. Errors as for Recv.
func (c *Comm) Probe(source, tag int) (Status, error) {
	_, st, err := c.probe(source, tag, false, calls.Probe)
	return st, err
}

// Mprobe is Probe, and also takes the message out of matching. Only Mrecv or Imrecv can then
// receive it.
func (c *Comm) Mprobe(source, tag int) (*Message, Status, error) {
	return c.probe(source, tag, true, calls.Mprobe)
}

// Iprobe reports whether a message that matches source and tag has arrived. It makes progress.
func (c *Comm) Iprobe(source, tag int) (st Status, found bool, err error) {
	_, st, found, err = c.iprobe(source, tag, false, calls.Iprobe)
	return st, found, err
}

// Improbe is Iprobe, and also takes the message, if there is one, out of matching.
func (c *Comm) Improbe(source, tag int) (m *Message, st Status, found bool, err error) {
	return c.iprobe(source, tag, true, calls.Improbe)
}

func (c *Comm) iprobe(source, tag int, matched bool, op calls.ID) (m *Message, st Status, found bool, err error) {
	if err := c.enterRecv(nil, source, tag); err != nil {
		return nil, request.Empty(), false, c.fail(op, source, tag, err)
	}
	defer c.leave()
	defer c.endCall(c.beginCall(op, source, tag, 0))
	if source == ProcNull {
		return &Message{c: c}, nobodyStatus(), true, nil
	}
	for hasPolled := false; ; hasPolled = true {
		if matched {
			if pm, env, found := c.job.pml.Improbe(c.p2p, source, tag); found {
				return &Message{c: c, m: pm}, envelopeStatus(env), true, nil
			}
		} else if env, found := c.job.pml.Iprobe(c.p2p, source, tag); found {
			return nil, envelopeStatus(env), true, nil
		}
		if hasPolled { // and if the source is gone, no message will come any more
			return nil, request.Empty(), false, c.fail(op, source, tag, c.job.pml.Lost(c.p2p, source))
		}
		c.job.eng.Poll()
	}
}

func (c *Comm) probe(source, tag int, matched bool, op calls.ID) (*Message, Status, error) {
	if err := c.enterRecv(nil, source, tag); err != nil {
		return nil, request.Empty(), c.fail(op, source, tag, err)
	}
	defer c.leave()
	defer c.endCall(c.beginCall(op, source, tag, 0))
	if source == ProcNull {
		return &Message{c: c}, nobodyStatus(), nil
	}
	r := c.job.pml.Probe(c.p2p, source, tag, matched, op.String())
	gaveUp, stopped := r.AwaitOrCancel(c.ctx)
	if stopped != nil {
		return nil, request.Empty(), stopped
	}
	var m *Message
	if matched {
		if pm := r.Message(); pm != nil {
			m = &Message{c: c, m: pm}
		}
	}
	st, own := r.Take()
	switch {
	case st.Cancelled:
		return nil, request.Empty(), gaveUp
	case own != nil:
		return nil, st, own
	}
	st.Count = -1
	return m, st, nil
}

// nobodyStatus is the status of a receive from ProcNull (MPI 4.1, section 3.10).
func nobodyStatus() Status {
	return Status{Source: ProcNull, Tag: AnyTag}
}

func envelopeStatus(env pml.Envelope) Status {
	return Status{Source: env.Source, Tag: env.Tag, Count: -1, Bytes: env.Bytes}
}

// Mrecv receives a message that Mprobe or Improbe has taken. The message has matched already, so
// Mrecv ignores the context of the view through which it was probed. The error is ErrRequest if the
// message is nil or was received before; other errors as for Recv.
func Mrecv[T any](m *Message, buf []T) (Status, error) {
	return m.mrecv(elemOf[T](), bytesOf(buf), int(sizeOf[T]()), calls.Mrecv)
}

func (m *Message) mrecv(typ elemType, buf []byte, elem int, op calls.ID) (Status, error) {
	r, err := m.receive(typ, buf, elem, op)
	if err != nil {
		return request.Empty(), err
	}
	defer m.c.leave()
	defer m.c.endCall(m.c.beginCall(op, none, none, len(buf)))
	return awaitRecv(context.Background(), r)
}

// Imrecv begins to receive a message that Mprobe or Improbe has taken. Errors as for Mrecv.
func Imrecv[T any](m *Message, buf []T) (Request, error) {
	const op = calls.Imrecv
	r, err := m.receive(elemOf[T](), bytesOf(buf), int(sizeOf[T]()), op)
	if err != nil {
		return Request{}, err
	}
	defer m.c.leave()
	defer m.c.endCall(m.c.beginCall(op, none, none, int(sizeOf[T]())*len(buf)))
	if w, ok := r.Auditor().(*watch); ok {
		return m.c.job.check.handle(m.c.job, &r.Object, w), nil
	}
	return r.Handle(), nil
}

// comm is the communicator of a message. It is nil if m is nil.
func (m *Message) comm() *Comm {
	if m == nil {
		return nil
	}
	return m.c
}

// receive posts the receive of the message, once. It holds the lock if it does not fail. The
// communicator may have been freed, because the message has left its matching space.
func (m *Message) receive(typ elemType, buf []byte, elem int, op calls.ID) (*pml.RecvRequest, error) {
	c := m.comm()
	bad := c.checkElem(typ)
	if bad == nil && c.isNull() {
		bad = errNoMessage
	}
	if bad == nil {
		bad = c.enterFreed()
	}
	if bad != nil {
		return nil, c.fail(op, none, none, bad)
	}
	if m.used {
		c.leave()
		return nil, c.fail(op, none, none, errUsedMessage)
	}
	m.used = true
	switch {
	case c.job.check != nil:
		return m.receiveAudited(typ, buf, elem, op), nil
	case m.m == nil:
		return c.job.pml.Irecv(c.p2p, buf, elem, ProcNull, AnyTag, op.String()), nil
	}
	return c.job.pml.Imrecv(m.m, buf, elem, op.String()), nil
}
