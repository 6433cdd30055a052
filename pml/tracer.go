package pml

// TracedMessage describes a message to a Tracer. Messages from one rank to another have distinct
// numbers, which both ends know.
type TracedMessage struct {
	Peer    int // rank of the job: the receiver if it is sent, the sender if it has matched
	Context ContextID
	Tag     int
	Bytes   int64
	Number  uint32
}

// Tracer keeps a trace of messages. The engine's lock is held.
type Tracer interface {
	// Now returns the caller's time, because this package has no clock.
	Now() int64
	// Sent says that the first fragment of a message was posted. at is the time before that,
	// because the receiver may be faster than the return of the post.
	Sent(at int64, m TracedMessage)
	// Matched says that a message has matched a receive.
	Matched(m TracedMessage)
}

// tracedAt returns the time for Tracer.Sent.
func (p *PML) tracedAt() int64 {
	if p.cfg.Tracer == nil {
		return 0
	}
	return p.cfg.Tracer.Now()
}

// traceSent reports a numbered message to a peer to the tracer.
func (p *PML) traceSent(at int64, c *Context, pr *peer, tag, bytes int, number uint32) {
	if p.cfg.Tracer != nil {
		p.cfg.Tracer.Sent(at, TracedMessage{Peer: pr.Rank(), Context: c.id, Tag: tag, Bytes: int64(bytes), Number: number})
	}
}

// traceMatched reports a matched message from a peer to the tracer.
func (p *PML) traceMatched(pr *peer, h *matchHdr, bytes int64) {
	if p.cfg.Tracer != nil {
		p.cfg.Tracer.Matched(TracedMessage{Peer: pr.Rank(), Context: h.context, Tag: int(h.tag), Bytes: bytes, Number: h.seq})
	}
}
