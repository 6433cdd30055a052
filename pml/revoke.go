package pml

import (
	"fmt"

	"github.com/mpigo/mpigo/request"
)

// A collective that makes a communicator may end unequally: one rank has all that it needs and gets
// the communicator, another one gives up, because its context ends, and never learns the id. The
// rank that gives up sends a SPOIL to every rank of the parent, as for any collective. Each context
// remembers which collective made it, its origin. So a rank that has finished the collective finds
// the communicator that came of it, and revokes it for the rank that gave up:
//
//   - Collectives there fail, those under way and those to come.
//   - Receives from that rank, and from anyone, fail, and so do sends to it, also those that wait for
//     it already. Traffic between the other members goes on.
//   - What this rank has sent to that one in the communicator is kept there as strays. This rank tells
//     it the id, by a SPOIL of that id with the reason Revoked. Its receiver then drops the strays and
//     answers their senders, as it does for a communicator that it has freed.
//
// Each member hears of it from the rank that gave up, and tells that rank the id behind all that it
// has sent to it, so no order of events leaves a stray or a wait behind. That the parent or the
// communicator was freed meanwhile changes nothing: recentlyFreed remembers origins too. Nothing
// here depends on how the communicator was made, only on the origin being set before the next SPOIL
// is taken.

// origin is the collective that made a communicator. The zero value is none, as context 0 has no
// collectives.
type origin struct {
	context ContextID
	tag     int
}

// revocation is a member of a context that never got it.
type revocation struct {
	world int
	err   *RevokedError
}

// RevokedError is why operations of a communicator fail that one of its ranks never got.
type RevokedError struct {
	// Rank in the communicator at which the call that made it failed.
	Rank int
}

func (e *RevokedError) Error() string {
	return fmt.Sprintf("%v: the call that made it failed at rank %d", request.ErrComm, e.Rank)
}

// Is says that the communicator does not permit the call.
func (e *RevokedError) Is(target error) bool { return target == request.ErrComm }

// SetOrigin says that the collective under tag in parent has made c. The caller has found that
// collective not to be given up, and has held the lock since then.
func (c *Context) SetOrigin(parent *Context, tag int) { c.origin = origin{parent.id, tag} }

// revokedFor is why nothing goes between this rank and one of the job, or anyone, in c; nil if it
// does.
func (c *Context) revokedFor(world int) error {
	for i := range c.revoked {
		if r := &c.revoked[i]; r.world == world || world == request.AnySource {
			return r.err
		}
	}
	return nil
}

// revokeMade revokes the communicator that a collective made, if this rank has it, or had it, for a
// peer that gave the collective up. It reports whether there is one.
func (p *PML) revokeMade(o origin, pr *peer) bool {
	made := NoContext
	for _, c := range p.sortedContexts() {
		if c.origin != o {
			continue
		}
		made = c.id.Collective()
		if _, member := c.group.Rank(pr.Rank()); !member {
			return true
		}
		p.revokeFor(c, pr)
	}
	// A context that is freed may still have sends under way.
	p.sends.each(func(s *SendRequest) {
		if s.ctx.origin == o && s.peer == pr {
			made = s.ctx.id.Collective()
			p.revokeFor(s.ctx, pr)
		}
	})
	for id, from := range p.recentlyFreed.ids {
		if from == o {
			made = id.Collective()
		}
	}
	if made == NoContext {
		return false
	}
	p.sendSpoil(pr, made, 0, &SpoiledError{Why: Revoked})
	return true
}

// revokeFor ends what needs a member of c that never got it.
func (p *PML) revokeFor(c *Context, pr *peer) {
	if c.revokedFor(pr.Rank()) != nil {
		return
	}
	rank, _ := c.group.Rank(pr.Rank())
	err := &RevokedError{Rank: rank}
	c.revoked = append(c.revoked, revocation{pr.Rank(), err})
	p.settleDirect()
	if c.rounds != nil {
		p.endRounds(c, err)
	}
	p.failSends(c, pr, err)
	c.endWaits(pr.Rank(), true, err)
}

// endRounds ends all collectives of a context that is revoked.
func (p *PML) endRounds(c *Context, err error) {
	for _, r := range c.posted.inOrder() {
		c.posted.remove(r)
		r.finish(err)
	}
	c.rounds.collective.GivenUp()
	p.declineAsks(c, Unfit)
	c.drop(anyKey)
}

// failSends ends the sends of a context to a peer that will never receive them. What needs no
// answer goes as ever, and is dropped there.
func (p *PML) failSends(c *Context, pr *peer, err error) {
	pr.pending.remove(func(s *SendRequest) bool { return s.ctx == c })
	p.sends.each(func(s *SendRequest) {
		if s.ctx == c && s.peer == pr && (s.state == sendAnnounced || s.state == sendPending) {
			s.fail(err)
		}
	})
	p.release(pr)
}

// disown takes the id of a communicator that this rank gave up before it had it, from a member that
// has it: what has come for it, and still comes, is answered. A communicator that this rank has
// stays, as it may have given the other one up because the id is taken.
func (p *PML) disown(id ContextID) error {
	twin := id ^ 1
	switch {
	case id != id.Collective():
		return fmt.Errorf("%w: revoked context %#x is not for collectives", errMalformed, uint64(id))
	case p.contexts[id] != nil || p.contexts[twin] != nil:
		return nil
	}
	for _, id := range []ContextID{twin, id} {
		p.recentlyFreed.add(id, origin{})
		strays := p.strays[id]
		delete(p.strays, id)
		for i := range strays {
			f := &strays[i]
			p.letGo(f.from, f.in.kind, len(f.data))
			p.decline(f.from, &f.in, len(f.data))
		}
	}
	return nil
}

// originSpan is how many collectives of its parent a communicator remembers its origin for: then
// the tag is about to come again. No rank is so far behind with a collective, since the window to
// it would be used up long before.
const originSpan = CollectiveTags / 4

// expireOrigins forgets what collectives of a context made long ago.
func (p *PML) expireOrigins(parent *Context) {
	isOld := func(o origin) bool { return o.context == parent.id && parent.rounds.ahead(o.tag) < -originSpan }
	for _, c := range p.contexts {
		if isOld(c.origin) {
			c.origin = origin{}
		}
	}
	for id, o := range p.recentlyFreed.ids {
		if isOld(o) {
			p.recentlyFreed.ids[id] = origin{}
		}
	}
}
