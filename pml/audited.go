package pml

import "github.com/mpigo/mpigo/request"

// Audited sends and receives serve the checked mode of package comm. They take the general path. A
// send transmits the kind of its elements. The auditor of a receive gets the kind when a message
// has matched, before the message is in the buffer.

// MaxElementKind is the highest kind that a message can carry. 0 means no kind.
const MaxElementKind = 1<<7 - 1

// MatchAuditor is the auditor of a receive.
type MatchAuditor interface {
	request.Auditor
	// Matched is called when a message of a rank in the communicator has matched. The buffer is
	// still unchanged.
	Matched(source int, kind uint8)
}

// tellKind passes the kind of the matched message to the auditor, if there is one.
func (r *RecvRequest) tellKind(kind uint8) {
	if a, ok := r.Auditor().(MatchAuditor); ok {
		a.Matched(r.gotSource, kind)
	}
}

// Tell makes a send, which is not active, transmit the kind of its elements in another mode.
func (s *SendRequest) Tell(kind uint8, mode Mode) {
	s.flags, s.mayShort, s.mode = kind<<kindShift, false, mode
}

// IsendAudited is Isend with an auditor.
func (p *PML) IsendAudited(c *Context, buf []byte, dest, tag int, mode Mode, op string, kind uint8, a request.Auditor) *SendRequest {
	s := p.newSend(c, buf, dest, tag, mode, op)
	s.Tell(kind, mode)
	s.Audit(a)
	s.Activate()
	s.launchOrPend()
	return s
}

// IrecvAudited is Irecv with an auditor.
func (p *PML) IrecvAudited(c *Context, buf []byte, elem, source, tag int, op string, a MatchAuditor) *RecvRequest {
	r := p.newRecv(c, buf, elem, source, tag, op)
	r.Audit(a)
	r.Activate()
	r.Start()
	return r
}

// ImrecvAudited is Imrecv with an auditor.
func (p *PML) ImrecvAudited(m *Message, buf []byte, elem int, op string, a MatchAuditor) *RecvRequest {
	r := p.newRecv(m.ctx, buf, elem, m.env.Source, m.env.Tag, op)
	r.Audit(a)
	r.receiveMessage(m)
	return r
}

// IsendrecvAudited is Isendrecv with an auditor for the pair and one for its receive.
func (p *PML) IsendrecvAudited(c *Context, a Sendrecv, kind uint8, pair request.Auditor, recv MatchAuditor) *PairRequest {
	r := p.newPair(c, a)
	r.Audit(pair)
	s := p.newSend(c, a.Send, a.Dest, a.SendTag, Standard, a.Op)
	s.Tell(kind, Standard)
	s.Activate()
	half := p.IrecvAudited(c, a.Recv, a.Elem, a.Source, a.RecvTag, a.Op, recv)
	s.launchOrPend()
	r.join(half, s)
	return r
}
