package pml

import (
	"fmt"
	"maps"
	"slices"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// Once all ranks are finalized no receive is posted any more. An announced message that matches
// none of the receives that are posted will never be received, and its sender would wait for ever.
// So each rank then rejects such messages, those that are here and those that still come. A
// rejected send stays active, so that its buffer and its request are as before, but its rank does
// not wait for it. Every other send ends by itself: it is delivered, or its peer is lost.

// RejectUnmatched is called when all ranks of the job are finalized.
func (p *PML) RejectUnmatched() {
	if p.closed != nil {
		return
	}
	p.rejecting = true
	queues := []*unexpected{&p.taken}
	for _, c := range p.sortedContexts() {
		queues = append(queues, &c.unexpected)
	}
	for _, q := range queues {
		for _, m := range q.announced() {
			q.remove(m)
			pr := p.peer(m.source)
			p.letGo(pr, m.kind, len(m.data))
			p.reject(pr, &m.announcement, len(m.data))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.strays)) {
		strays := p.strays[id]
		kept := strays[:0]
		for _, f := range strays {
			if !p.rejects(f.in.kind) {
				kept = append(kept, f)
				continue
			}
			p.letGo(f.from, f.in.kind, len(f.data))
			p.reject(f.from, &f.in.announcement, len(f.data))
		}
		clear(strays[len(kept):])
		p.strays[id] = kept
	}
}

// announced lists the messages whose senders wait for an answer, oldest first.
func (q *unexpected) announced() []*message {
	all := q.table.find(anyKey)
	if all == nil {
		return nil
	}
	var out []*message
	for n := all.head; n != nil; n = n.next {
		if n.item.kind != tagMatch {
			out = append(out, n.item)
		}
	}
	return out
}

// rejects reports whether a fragment of a kind is rejected if no receive matches it.
func (p *PML) rejects(kind btl.Tag) bool { return p.rejecting && isMessage(kind) && kind != tagMatch }

// reject drops an announced message and tells its sender.
func (p *PML) reject(pr *peer, a *announcement, bytes int) {
	p.sendAck(pr, ackHdr{send: a.send, from: unmatched, to: unmatched})
	p.tookAny(pr, a.kind, bytes)
}

var errFreed = fmt.Errorf("%w: the receiver has freed it", request.ErrComm)

// rejectedBy takes an ACK by which the receiver rejects the message.
func (s *SendRequest) rejectedBy(h *ackHdr) {
	switch {
	case h.from == freed:
		s.fail(errFreed)
	case s.p.leaving == nil: // the peer cannot know that all ranks are finalized
		s.fail(errFinalized)
	case s.ctx.handler != nil: // it belongs to a collective that this rank has given up
		s.stream(&ackHdr{})
	case !s.rejected:
		s.rejected = true
		s.p.rejected++
	}
}

// Unfinished is the number of sends that are not finished, those of freed requests included,
// without those that will never be received.
func (p *PML) Unfinished() int { return p.sends.inUse() - p.rejected }

// Unmatched lists the sends that will never be received.
func (p *PML) Unmatched() []Pending {
	var out []Pending
	p.sends.each(func(s *SendRequest) {
		if s.rejected {
			out = append(out, s.pending())
		}
	})
	return out
}
