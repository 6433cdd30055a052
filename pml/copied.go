package pml

// Short messages whose sends do not wait for delivery.

const (
	// copiedBytes is the longest message that is copied so that its send need not wait.
	copiedBytes = 8 << 10
	// mostCopied bounds those that are under way.
	mostCopied = 64
	// A send from a copy makes a turn of progress, as a rank may do nothing but send; of those that follow each other while more than fewCopies
	// are under way only every streamTurns-th does: a rail may send them together.
	fewCopies   = 4
	streamTurns = 16
)

// mayCopy reports whether a message of so many bytes is worth a copy: it is small, and can go now, by a rail that takes nothing inline. There it takes a
// while until something is delivered, and the caller need not wait for that to have its buffer back.
func (p *PML) mayCopy(c *Context, bytes, dest int) bool {
	pr := p.peers[c.group.world[dest]]
	return pr != nil && pr.IsResolved() && !pr.HasInline() && len(c.revoked) == 0 && pr.pending.head == nil && pr.IsIdle() && p.copied < mostCopied &&
		bytes <= min(copiedBytes, pr.EagerBytes()) && pr.credit.covers(bytes)
}

// sendCopied sends a message from a copy. It returns nil if a rail has accepted it, after which nobody need wait; if it cannot be delivered after all,
// Undelivered tells.
func (p *PML) sendCopied(c *Context, buf []byte, dest, tag int, op string) *SendRequest {
	p.copied++
	s := p.newSend(c, append(p.getCopy(), buf...), dest, tag, Standard, op)
	s.copied = true
	s.Activate()
	s.Start()
	if pr := s.peer; pr != nil && (pr.pending.head != nil || !pr.IsIdle()) {
		return s
	}
	s.Abandon()
	if p.turnless++; p.copied <= fewCopies || p.turnless >= streamTurns {
		p.turnless = 0
		p.eng.Turn()
	}
	return nil
}

// HasCopies reports whether messages are under way that go from a copy.
func (p *PML) HasCopies() bool { return p.copied > 0 }

// Undelivered is the error of the first send that failed when no caller could get its error any
// more; nil if there is none.
func (p *PML) Undelivered() error { return p.undelivered }

// noteUndelivered keeps the error of a send for Undelivered if no caller gets it: that of a send
// from a copy, and in Finalize that of any send of the user's whose peer was lost.
func (s *SendRequest) noteUndelivered(err error) {
	p := s.p
	isOurs := s.copied && s.Abandoned()
	inFinalize := p.leaving != nil && p.closed == nil && s.peer.IsLost() && s.ctx.handler == nil
	if (isOurs || inFinalize) && p.undelivered == nil {
		p.undelivered = s.Describe(err)
	}
}

// getCopy gives room for a copy, empty.
func (p *PML) getCopy() []byte {
	if last := len(p.freeCopies) - 1; last >= 0 {
		b := p.freeCopies[last]
		p.freeCopies = p.freeCopies[:last]
		return b
	}
	return make([]byte, 0, copiedBytes)
}
