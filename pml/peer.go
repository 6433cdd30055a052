package pml

import (
	"maps"
	"slices"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// peer is what is known of one other rank, or of this rank as its own peer. The channel to it is embedded, so that a short
// message follows one pointer.
type peer struct {
	bml.Peer

	credit credit
	// pending are the sends that wait until the peer has room for their announcement, in order. Sends that are
	// started later wait behind them.
	pending sendQueue

	// finalized is what the peer has said of its Finalize.
	finalized finality
	// isTold: this rank has sent it FINALIZED.
	isTold bool
}

// peer returns what is known of a rank.
func (p *PML) peer(rank int) *peer {
	if pr := p.peers[rank]; pr != nil {
		return pr
	}
	p.bml.Peer(rank)
	return p.peers[rank]
}

// resolve finds the rails to a peer if they are not known yet (bml.Resolve), and notes that the peer may have to be told that
// this rank waits for it.
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

// onAnswerDone: if the answer is not delivered, the peer is lost, or a NACK goes in its place.
func (p *PML) onAnswerDone(op *bml.Op, err error) {
	if bml.IsRefused(err) {
		p.answerRefused(op, err)
	}
	p.busy--
	p.bml.PutOp(op)
}

// peerLost ends everything that needs a peer.
func (p *PML) peerLost(pr *peer) {
	err := pr.Err()
	p.settleDirect()
	p.lostPeers = append(p.lostPeers, pr)
	pr.pending = sendQueue{}
	if pr.credit.isFull() {
		p.full--
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
			c.endWaits(pr.Rank(), true, err) // a receive from anyone might wait for this peer
		}
	}
}

// Leave says that all ranks are about to close: what ends because a peer closes first ends with cause, as what Close
// ends. The handlers of contexts are told.
func (p *PML) Leave(cause error) {
	p.leaving = cause
	p.bml.Leave(cause)
	for _, c := range p.sortedContexts() {
		if c.handler != nil {
			c.handler.Finalizing()
		}
	}
}

// Lost is the reason why no further message can come from source, a rank of c or AnySource; nil if one can. A message that
// has arrived can still be received. For AnySource it is the reason of the first member of the communicator that was lost.
//
// A caller that asks again and again waits for source too, so the rails to it are resolved as for a receive.
func (p *PML) Lost(c *Context, source int) error {
	world := c.world(source)
	if world == p.cfg.Rank {
		return p.checkWorld(c, world)
	}
	return p.expect(c, world)
}

// checkWorld is Lost of a rank of the job, by what is known now.
func (p *PML) checkWorld(c *Context, source int) error {
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
	if source >= 0 && p.peers[source] != nil && p.peers[source].finalized != running {
		return errFinalized
	}
	return nil
}

// expect is checkWorld for an operation that is about to wait for source. It resolves the rails to a single rank, because only
// an endpoint notices that a peer has died. For AnySource, the death of a rank that was never in touch goes unnoticed here.
func (p *PML) expect(c *Context, source int) error {
	if source >= 0 && len(c.revoked) == 0 && p.isExpected(source) {
		return nil
	}
	if err := p.checkWorld(c, source); err != nil || source < 0 {
		return err
	}
	pr := p.peer(source)
	_ = p.resolve(pr)
	return pr.Err()
}

// isExpected reports whether the rails to a rank of the job are known, and nothing speaks against waiting for it.
func (p *PML) isExpected(world int) bool {
	pr := p.peers[world]
	return pr != nil && pr.IsResolved() && !pr.IsLost() && pr.finalized == running && p.closed == nil && !p.bml.HasFallen()
}

// recheckAll resolves every unknown peer that an operation waits for.
func (p *PML) recheckAll() {
	p.settleDirect()
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

// recheck resolves source, a rank of the job, or each member of c for AnySource, if nothing is known of it: a peer without
// rails is lost.
func (p *PML) recheck(c *Context, source int) {
	if source == request.AnySource {
		for _, world := range c.group.world {
			p.recheck(c, world)
		}
		return
	}
	if source < 0 {
		return
	}
	if pr := p.peer(source); pr.IsUnknown() {
		_ = p.resolve(pr)
	}
}
