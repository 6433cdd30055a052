package pml

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// A peer whose process has ended, or to whom the last rail has failed without one that may come back, is the end of
// what this rank has to do with it. But success means delivered, so what the peer's side was told of has to be here:
// the BTL hands that up, and calls back what is under way, until it says that the rail is Drained. Until then the peer is failing:
//
//   - what comes from it is taken as ever;
//   - nothing is posted to it any more; what would be waits in the queue of its rail, and sends are held;
//   - requests that have met an error wait, those that have all they need are complete.
//
// Its other rails are failed too. When the last one is drained nothing can come any more, and nothing
// touches memory: the peer is lost, and whatever needs it ends.

// fallenRail is a rail of this rank that has failed as a whole, and by which no endpoint was made since.
type fallenRail struct {
	module  btl.Module
	cause   error
	drained bool
}

// risen forgets that a rail has failed as a whole.
func (p *PML) risen(m btl.Module) {
	if len(p.fallen) > 0 {
		p.fallen = slices.DeleteFunc(p.fallen, func(f fallenRail) bool { return f.module == m })
	}
}

// uses reports whether m is a rail that leads to the peer, or the one that it comes by.
func (pr *peer) uses(m btl.Module) bool { return pr.via == m || pr.by(m) != nil }

// by is the rail to the peer by a module; nil if there is none.
func (pr *peer) by(m btl.Module) *rail {
	for i := range pr.rails {
		if pr.rails[i].module == m {
			return &pr.rails[i]
		}
	}
	return nil
}

// unknown reports whether no rail to or from the peer is known.
func (pr *peer) unknown() bool { return len(pr.rails) == 0 && pr.via == nil }

// isFailing reports whether the peer is failing, and not lost yet.
func (pr *peer) isFailing() bool { return pr.failing != nil && pr.lost == nil }

// Failed implements btl.Events. A rail that a peer does not use concerns it only if that
// says that its process has ended.
func (p *PML) Failed(m btl.Module, rank int, err *btl.Error) {
	if rank != btl.AllPeers {
		if rank < 0 || rank >= len(p.peers) {
			return
		}
		if pr := p.peer(rank); err.Class == btl.ClassPeerGone || pr.uses(m) || pr.unknown() {
			p.failedFor(pr, m, err)
		}
		return
	}
	p.risen(m)
	p.fallen = append(p.fallen, fallenRail{module: m, cause: err})
	for _, pr := range p.peers {
		if pr != nil && pr.uses(m) {
			p.failedFor(pr, m, err)
		}
	}
}

// failedFor takes the failure of a rail for one peer.
func (p *PML) failedFor(pr *peer, m btl.Module, err *btl.Error) {
	if pr.lost != nil || p.closed != nil {
		return
	}
	if pr.failing == nil && err.Class != btl.ClassPeerGone {
		if rl := pr.by(m); rl != nil {
			p.railFailed(rl, err)
			return
		}
		pr.drains(m)
		if len(pr.rails) == 0 && p.route(pr) != nil {
			p.fail(pr, p.causeOf(err), m)
			return
		}
		if rl := pr.by(m); rl != nil {
			p.railFailed(rl, err)
			return
		}
		if pr.up != 0 { // it has come by that one, and has others
			pr.via = nil
			return
		}
	}
	p.fail(pr, p.causeOf(err), m)
}

// causeOf is causeOf, but for what all ranks' leaving explains.
func (p *PML) causeOf(err error) error {
	if p.leaving != nil && isClosed(err) {
		return p.leaving
	}
	return causeOf(err)
}

// fail makes a peer failing, because of its rail m, or nil if that has not said so.
func (p *PML) fail(pr *peer, cause error, m btl.Module) {
	if pr.lost != nil || p.closed != nil {
		return
	}
	if m != nil {
		pr.drains(m)
	}
	if pr.failing == nil {
		pr.failing, pr.barred = cause, true
		p.endGrace(pr)
		p.condemn(pr)
	}
}

// drains notes that a rail of a peer is to be drained.
func (pr *peer) drains(m btl.Module) {
	if !slices.Contains(pr.draining, m) {
		pr.draining = append(pr.draining, m)
	}
}

// condemn has every endpoint to a peer failed at the next turn, because this may be inside a call of one.
func (p *PML) condemn(pr *peer) {
	p.condemned = append(p.condemned, pr)
	p.eng.Wake()
}

// execute fails the endpoints to those who are condemned, if they are not down already.
func (p *PML) execute() {
	for len(p.condemned) > 0 {
		pr := p.condemned[0]
		for i := range pr.rails {
			rl := &pr.rails[i]
			if rl.endpoint == nil {
				continue
			}
			rl.endpoint.Fail(cmp.Or(pr.lost, pr.failing))
			if rl.endpoint.State() == btl.Failed {
				pr.drains(rl.module) // also if it was down before it was known of
			}
		}
		p.condemned = p.condemned[1:]
		p.loseDrained(pr)
	}
}

// Drained implements btl.Events.
func (p *PML) Drained(m btl.Module, rank int) {
	if rank != btl.AllPeers {
		if rank >= 0 && rank < len(p.peers) && p.peers[rank] != nil {
			p.drained(p.peers[rank], m)
		}
		return
	}
	for i := range p.fallen {
		if f := &p.fallen[i]; f.module == m {
			f.drained = true
		}
	}
	for _, pr := range p.peers {
		if pr != nil {
			p.drained(pr, m)
		}
	}
	// Somebody may wait for a peer that nothing is known of, and that would have come by
	// this rail. To look for a way to it is not for here.
	p.doubtful = true
	p.eng.Wake()
}

func (p *PML) drained(pr *peer, m btl.Module) {
	pr.draining = slices.DeleteFunc(pr.draining, func(d btl.Module) bool { return d == m })
	if rl := pr.by(m); rl != nil && rl.state == railFailing {
		p.railDrained(rl)
	} else {
		p.settled(pr) // a rail that was down before may have been the last that others waited for
	}
	p.loseDrained(pr)
}

// loseDrained loses a peer that is failing if nothing can come from it any more.
func (p *PML) loseDrained(pr *peer) {
	if pr.isFailing() && len(pr.draining) == 0 && !slices.Contains(p.condemned, pr) {
		p.lose(pr, pr.failing)
	}
}

// Leave says that all ranks are about to close: what ends because a peer does so first, ends with
// cause, as what Close ends. The handlers of contexts are told.
func (p *PML) Leave(cause error) {
	p.leaving = cause
	for _, c := range p.sortedContexts() {
		if c.handler != nil {
			c.handler.Finalizing()
		}
	}
}

// causeOf is what a rail's error means to the operations that it ends.
func causeOf(err error) error {
	if errors.Is(err, request.ErrProcFailed) || errors.Is(err, request.ErrUnreachable) || errors.Is(err, errWithdrawn) || isRefused(err) {
		return err
	}
	var be *btl.Error
	if errors.As(err, &be) && (be.Class == btl.ClassPeerGone || be.Class == btl.ClassClosed) {
		return fmt.Errorf("%w: %w", request.ErrProcFailed, err)
	}
	return fmt.Errorf("%w: %w", request.ErrUnreachable, err)
}

// lose ends all that has to do with a peer, for good: err is why.
func (p *PML) lose(pr *peer, err error) {
	if pr.lost != nil {
		return
	}
	if p.closed != nil {
		err = p.closed
	}
	pr.lost, pr.draining = err, nil
	p.endGrace(pr)
	p.settleDirect()
	p.lostPeers = append(p.lostPeers, pr)
	if pr.failing == nil && len(pr.rails) > 0 {
		p.condemn(pr) // it must learn of it too
	}
	for _, f := range pr.early {
		p.letGo(pr, f.in.kind, len(f.data))
	}
	if pr.heard != nil && !errors.Is(err, request.ErrProcFailed) {
		p.repel(pr, pr.heard) // its half was up then, and may still be
	}
	pr.early, pr.held, pr.barred = nil, sendQueue{}, true
	if pr.credit.isFull() {
		p.full--
	}
	for _, q := range pr.queues() {
		for !q.Empty() {
			op := q.Pop()
			op.Done(op, err)
		}
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
		if _, member := c.group.Rank(pr.rank); !member {
			continue
		}
		c.endWaits(pr.rank, true, err) // a receive from anyone might wait for this one
	}
}

// nonsense loses a peer that has sent what cannot be right, at once. There is no going on: what
// it meant would be missing from the sequence, or from a message.
func (p *PML) nonsense(pr *peer, err error) {
	p.stats.Malformed++
	p.lose(pr, fmt.Errorf("%w: rank %d sent nonsense: %w", request.ErrUnreachable, pr.rank, err))
}

// Lost is the reason why no further message can come from source, a rank of c or
// AnySource, or nil. A message that has arrived can still be received. From anyone, it is
// that of the first member of the communicator that was lost.
//
// Whoever asks, and asks again, waits for source too, so the way to another rank is found as for a receive.
func (p *PML) Lost(c *Context, source int) error {
	world := c.world(source)
	if world == p.cfg.Rank {
		return p.lostWorld(c, world)
	}
	return p.expect(c, world)
}

// lostWorld is Lost of a rank of the job, but only what is known by now.
func (p *PML) lostWorld(c *Context, source int) error {
	if p.closed != nil {
		return p.closed
	}
	if err := c.revokedFor(source); err != nil {
		return err
	}
	if len(p.fallen) > 0 {
		p.verify(c, source)
	}
	for _, pr := range p.lostPeers {
		if pr.rank == source {
			return pr.lost
		}
		if _, member := c.group.Rank(pr.rank); member && source == request.AnySource {
			return pr.lost
		}
	}
	if source >= 0 && p.peers[source] != nil {
		return p.peers[source].left
	}
	return nil
}

// expect is lostWorld for an operation that is about to wait for source. It finds the way
// there, if that is a single rank, because only an endpoint notices that a peer has died.
// From anyone, the death of a rank that was never in touch goes unnoticed here.
func (p *PML) expect(c *Context, source int) error {
	if source >= 0 && len(c.revoked) == 0 && p.isMet(source) {
		return nil
	}
	return p.meet(c, source)
}

// isMet reports whether the way to a rank of the job is known, and there is nothing against waiting for it.
func (p *PML) isMet(world int) bool {
	pr := p.peers[world]
	return pr != nil && pr.first != nil && pr.lost == nil && pr.left == nil && p.closed == nil && len(p.fallen) == 0
}

// meet is expect for all but the plainest case.
func (p *PML) meet(c *Context, source int) error {
	if err := p.lostWorld(c, source); err != nil || source < 0 {
		return err
	}
	pr := p.peer(source)
	_ = p.route(pr)
	return pr.lost
}

// verifyAwaited verifies whoever somebody waits for.
func (p *PML) verifyAwaited() {
	p.settleDirect()
	for _, c := range p.sortedContexts() {
		var sources []int
		for _, r := range c.posted.inOrder() {
			sources = append(sources, r.world)
		}
		for _, r := range c.probes {
			sources = append(sources, c.world(r.source))
		}
		slices.Sort(sources)
		for _, world := range slices.Compact(sources) {
			p.verify(c, world)
		}
	}
}

// verify finds the way to source, a rank of the job, or to each member of c if it is AnySource, if nothing has
// come from there and none is known: who finds none loses it.
func (p *PML) verify(c *Context, source int) {
	if source == request.AnySource {
		for _, world := range c.group.world {
			p.verify(c, world)
		}
		return
	}
	if source < 0 {
		return
	}
	if pr := p.peer(source); pr.unknown() {
		_ = p.route(pr)
	}
}
