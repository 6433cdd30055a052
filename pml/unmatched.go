package pml

import (
	"maps"
	"slices"

	"github.com/mpigo/mpigo/btl"
)

// Once all ranks are in Finalize, no rank posts a receive any more. A sender whose RTS matches no
// posted receive would wait for ever. So each rank then rejects such messages, both buffered ones
// and later arrivals. A rejected send stays active, so its buffer and its request are unchanged,
// but its rank no longer waits for it. Every other send ends by itself: it is delivered, or its
// peer is lost.

// RejectUnmatched is called when all ranks of the job are in Finalize.
func (p *PML) RejectUnmatched() {
	if p.closed != nil {
		return
	}
	p.isRejecting = true
	queues := []*unexpected{&p.taken}
	for _, c := range p.sortedContexts() {
		queues = append(queues, &c.unexpected)
	}
	for _, q := range queues {
		for _, m := range slices.Collect(q.all()) {
			if m.kind != tagMatch {
				p.rejectUnexpected(q, m, unmatched)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.earlyContext)) {
		p.earlyContext[id] = slices.DeleteFunc(p.earlyContext[id], func(f earlyContextFragment) bool {
			if !p.rejectsUnmatched(f.in.kind) {
				return false
			}
			p.unbuffer(f.from, f.in.kind, len(f.data))
			p.reject(f.from, &f.in, len(f.data), unmatched)
			return true
		})
	}
}

// rejectsUnmatched reports whether a fragment of a kind is rejected if no posted receive matches
// it.
func (p *PML) rejectsUnmatched(kind btl.Tag) bool {
	return p.isRejecting && isMessage(kind) && kind != tagMatch
}

// rejectedBy handles an ACK by which the receiver rejects the message.
func (s *SendRequest) rejectedBy(h *ackHdr) {
	switch {
	case h.from == freed:
		s.fail(errFreed)
	case s.p.leaving == nil: // the peer cannot know that all ranks are in Finalize
		s.fail(errFinalized)
	case s.ctx.handler != nil: // the send belongs to a collective that this rank has given up
		s.stream(&ackHdr{})
	case !s.isRejected:
		s.isRejected = true
		s.p.rejected++
	}
}

// Unfinished returns the number of sends that are not finished, including sends of freed requests,
// and excluding sends that peers have rejected.
func (p *PML) Unfinished() int { return p.sends.inUse() - p.rejected }

// Unmatched lists the sends that peers have rejected.
func (p *PML) Unmatched() []Pending {
	var out []Pending
	p.sends.each(func(s *SendRequest) {
		if s.isRejected {
			out = append(out, s.pending())
		}
	})
	return out
}
