package pml

import (
	"maps"
	"slices"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// peer is the record of a rank of the job; a rank is a peer of itself too. The channel to it is
// embedded, so that a short message follows one pointer.
type peer struct {
	bml.Peer

	credit credit
	// pending has the sends for which the peer's windows have no room, in order. Later sends wait
	// behind them.
	pending sendQueue
	// posted counts the messages that were not sent inline, their bytes, and their part of
	// credit.sent (traffic.go).
	posted struct{ messages, bytes, cost int64 }

	finalized        finalizedState
	wasToldFinalized bool // this rank has sent it FINALIZED
}

// peer returns the record of a rank. It makes the record if there is none.
func (p *PML) peer(rank int) *peer {
	if pr := p.peers[rank]; pr != nil {
		return pr
	}
	p.bml.Peer(rank)
	return p.peers[rank]
}

// resolve finds the rails to a peer if they are not known yet (bml.Resolve).
func (p *PML) resolve(pr *peer) error {
	if pr.IsResolved() && !pr.IsLost() {
		return nil
	}
	err := p.bml.Resolve(&pr.Peer)
	if err == nil {
		p.noteContact(pr)
	}
	return err
}

// send posts a fragment.
func (p *PML) send(pr *peer, op *bml.Op) { p.bml.Send(&pr.Peer, op) }

// post encodes a fragment that belongs to no request, and posts it.
func (p *PML) post(pr *peer, kind btl.Tag, bytes int, encode func(hdr []byte)) {
	op := p.answerOp(kind, bytes)
	encode(op.Hdr[:])
	p.send(pr, op)
}

// answerOp makes an operation that belongs to no request.
func (p *PML) answerOp(kind btl.Tag, bytes int) *bml.Op {
	op := p.bml.GetOp()
	op.Tag, op.HdrLen, op.Then = kind, uint8(bytes), p.answerDone
	p.busy++
	return op
}

// onAnswerDone is called when an operation without a request is over. If it was not delivered, the
// peer is lost, or a NACK takes its place.
func (p *PML) onAnswerDone(op *bml.Op, err error) {
	if bml.IsRefused(err) {
		p.answerRefused(op, err)
	}
	then, _ := op.Request.(func())
	p.bml.PutOp(op)
	if then != nil {
		then() // it may send, so the rank stays busy
	}
	p.busy--
}

// peerLost fails all operations that need a peer.
func (p *PML) peerLost(pr *peer) {
	err := pr.Err()
	p.postBlocking()
	p.lostPeers = append(p.lostPeers, pr)
	if p.cfg.OnLost != nil {
		p.cfg.OnLost(pr.Rank(), err)
	}
	pr.pending = sendQueue{}
	if pr.credit.isFull() {
		p.blockedPeers--
	}
	p.sends.each(func(s *SendRequest) {
		if s.peer == pr {
			s.fail(err)
		}
	})
	p.recvs.each(func(r *RecvRequest) {
		if r.from == pr {
			r.fail(err)
		}
	})
	for _, c := range p.sortedContexts() {
		if _, member := c.group.Rank(pr.Rank()); member {
			c.failWaits(pr.Rank(), true, err) // a receive from AnySource may wait for this peer
		}
	}
}

// Lost returns the reason why no further message can arrive from source, a rank of c or AnySource,
// or nil if one can arrive. A message that has already arrived can still be received. For AnySource
// it returns the reason for the first lost member of the communicator.
//
// A caller may wait for source by calling Lost again and again, so Lost resolves the rails to it,
// like posting a receive.
func (p *PML) Lost(c *Context, source int) error {
	world := c.world(source)
	if world == p.cfg.Rank {
		return p.lossOf(c, world)
	}
	return p.waitError(c, world)
}

// lossOf is Lost for a rank of the job or AnySource, without resolving rails.
func (p *PML) lossOf(c *Context, source int) error {
	if p.closed != nil {
		return p.closed
	}
	if err := c.revokedFor(source); err != nil {
		return err
	}
	if p.bml.HasFallen() {
		p.recheck(c, source)
	}
	for _, pr := range p.lostPeers {
		if pr.Rank() == source {
			return pr.Err()
		}
		if _, member := c.group.Rank(pr.Rank()); member && source == request.AnySource {
			return pr.Err()
		}
	}
	if source >= 0 && p.peers[source] != nil && p.peers[source].finalized != notFinalized {
		return c.finalizedError(source)
	}
	return nil
}

// waitError is lossOf for an operation that is about to wait for source. It resolves the rails to a
// single rank when the operation is posted, because only an endpoint notices that a peer has died.
// For AnySource it resolves none: that would open a connection to every rank of the communicator.
// So this rank does not notice the death of a rank with which it never exchanged fragments; the
// launcher does.
func (p *PML) waitError(c *Context, source int) error {
	if source >= 0 && len(c.revoked) == 0 && p.isReachable(source) {
		return nil
	}
	if err := p.lossOf(c, source); err != nil || source < 0 {
		return err
	}
	pr := p.peer(source)
	_ = p.resolve(pr)
	return pr.Err()
}

// isReachable reports whether the rails to a rank of the job are known and a message can come from
// it. It is the fast path of waitError.
func (p *PML) isReachable(world int) bool {
	pr := p.peers[world]
	return pr != nil && pr.IsResolved() && !pr.IsLost() && pr.finalized == notFinalized && p.closed == nil && !p.bml.HasFallen()
}

// recheckAll rechecks all ranks that an operation waits for.
func (p *PML) recheckAll() {
	p.postBlocking()
	for _, c := range p.sortedContexts() {
		sources := make(map[int]bool)
		for _, r := range c.posted.inOrder() {
			sources[r.world] = true
		}
		for _, r := range c.probes {
			sources[c.world(r.source)] = true
		}
		for _, world := range slices.Sorted(maps.Keys(sources)) {
			p.recheck(c, world)
		}
	}
}

// recheck resolves source, a rank of the job, or each member of c for AnySource, if no rail to it
// is known. A peer without rails is lost.
func (p *PML) recheck(c *Context, source int) {
	switch {
	case source == request.AnySource:
		for _, world := range c.group.world {
			p.recheck(c, world)
		}
	case source >= 0:
		if pr := p.peer(source); pr.IsUnknown() {
			_ = p.resolve(pr)
		}
	}
}
