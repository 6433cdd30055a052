package pml

// Bcopy sends (buffered copy): a blocking send of a short message on a rail without inline sends.
// Delivery takes a while on such a rail. So the send copies the message, and returns as soon as the
// rail has accepted the copy.

const (
	// maxBcopyBytes is the longest message that is copied: a longer copy costs more than it saves.
	maxBcopyBytes = 8 << 10
	// maxBcopies bounds the copies that are under way, and with them their memory.
	maxBcopies = 64
	// A bcopy send makes a turn of progress, because a rank may only send. But a rail may combine
	// consecutive sends. So while more than fewBcopies are under way, only every sendsPerTurn-th
	// send makes a turn.
	fewBcopies   = 4
	sendsPerTurn = 16
)

// mayBcopy reports whether a message of the given length should be copied: it is short, and a rail
// without inline sends can take it now.
func (p *PML) mayBcopy(c *Context, bytes, dest int) bool {
	pr := p.peers[c.group.world[dest]]
	return pr != nil && pr.IsResolved() && !pr.HasInline() && len(c.revoked) == 0 && pr.pending.head == nil && pr.IsIdle() &&
		p.bcopies < maxBcopies && bytes <= maxBcopyBytes && pr.fitsEager(bytes, true) && pr.credit.covers(bytes)
}

// sendBcopy sends a message from a copy. It returns nil if a rail has accepted the copy, so that
// the caller need not wait. Undelivered returns an error if the copy cannot be delivered after all.
func (p *PML) sendBcopy(c *Context, buf []byte, dest, tag int, op string) *SendRequest {
	p.bcopies++
	s := p.newSend(c, append(p.getBcopy(), buf...), dest, tag, Standard, op)
	s.isBcopy = true
	s.Activate()
	s.Start()
	if pr := s.peer; pr != nil && (pr.pending.head != nil || !pr.IsIdle()) {
		return s
	}
	s.Abandon()
	if p.bcopiesSinceTurn++; p.bcopies <= fewBcopies || p.bcopiesSinceTurn >= sendsPerTurn {
		p.bcopiesSinceTurn = 0
		p.eng.Turn()
	}
	return nil
}

// HasBcopies reports whether bcopy sends are under way.
func (p *PML) HasBcopies() bool { return p.bcopies > 0 }

// Undelivered is the error of the first send that failed after its call had returned without a
// request; nil if there is none.
func (p *PML) Undelivered() error { return p.undelivered }

// noteUndelivered keeps the error of a send for Undelivered if no caller gets it: the error of an
// abandoned bcopy send, and in Finalize the error of any user's send whose peer was lost.
func (s *SendRequest) noteUndelivered(err error) {
	p := s.p
	isOurs := s.isBcopy && s.Abandoned()
	inFinalize := p.leaving != nil && p.closed == nil && s.peer.IsLost() && s.ctx.handler == nil
	if (isOurs || inFinalize) && p.undelivered == nil {
		p.undelivered = s.Describe(err)
	}
}

// getBcopy returns an empty buffer for a copy.
func (p *PML) getBcopy() []byte {
	if last := len(p.freeBcopies) - 1; last >= 0 {
		b := p.freeBcopies[last]
		p.freeBcopies = p.freeBcopies[:last]
		return b
	}
	return make([]byte, 0, maxBcopyBytes)
}
