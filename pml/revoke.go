package pml

import (
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/request"
)

// A collective that makes a communicator may end differently at its ranks: one rank has all that it
// needs and gets the communicator, while another rank gives up, because its Go context ends, and
// never learns the id.
// The rank that gives up revokes the collective at every rank of the parent, as it does with any
// collective (comm/internal/coll). Each context remembers the collective that made it, its origin.
// So a rank that has finished the collective finds the communicator that the collective made, and
// revokes it for the rank that gave up:
//
//   - Collectives in the communicator fail, those under way and later ones.
//   - Receives from the rank that gave up and receives from AnySource fail. So do sends to that
//     rank, also those that it has not matched yet. Traffic between the other members goes on.
//   - The rank that gave up may have kept the fragments that this rank sent to it in the
//     communicator, for another call that is under way there and may make one with that id. This
//     rank tells it the id. It then rejects those fragments, as it does for a communicator that it
//     has freed (Disown).
//
// Each member gets the revocation from the rank that gave up, and sends that rank the id after all
// its other fragments to it. So no order of events leaves a kept fragment or an endless wait. It
// makes no difference whether the parent was freed meanwhile. A member that has freed the
// communicator sends no id: that rank rejects the fragments once none of its calls may make the
// communicator (contextids.go). The way in which the communicator was made does not matter either,
// as long as its origin is set before the next control fragment arrives.

// origin is the collective that made a communicator. The zero value means no origin, because
// context 0 has no collectives.
type origin struct {
	context ContextID
	tag     int
}

// revocation is a member of a context that never got it.
type revocation struct {
	world int
	err   *RevokedError
}

// RevokedError is the error of operations in a communicator that one of its ranks never got.
type RevokedError struct {
	// Rank in the communicator at which the call that made it failed.
	Rank int
}

func (e *RevokedError) Error() string {
	return fmt.Sprintf("%v: the call that made it failed at rank %d", request.ErrComm, e.Rank)
}

// Is reports that the communicator does not permit the call.
func (e *RevokedError) Is(target error) bool { return target == request.ErrComm }

// SetOrigin records that the collective under a tag of parent has made c. The caller has checked
// that no rank has revoked that collective, and has held the lock since then.
func (c *Context) SetOrigin(parent *Context, tag int) { c.origin = origin{parent.id, tag} }

// IsRevokedFor reports whether c is revoked for a rank of the job.
func (c *Context) IsRevokedFor(world int) bool { return c.revokedFor(world) != nil }

// revokedFor returns the error of operations in c with a rank of the job, or with AnySource. It is
// nil if c is not revoked for that rank.
func (c *Context) revokedFor(world int) error {
	for i := range c.revoked {
		if r := &c.revoked[i]; r.world == world || world == request.AnySource {
			return r.err
		}
	}
	return nil
}

// RevokeMade revokes communicators for a rank of the job that gave up the collectives that made
// them: collectives of parent under the tags that isIt selects. found counts the collectives of
// which this rank has a communicator. made lists the collective contexts of the communicators of
// which that rank is a member; the caller sends their ids to that rank.
func (p *PML) RevokeMade(parent ContextID, isIt func(tag int) bool, world int) (made []ContextID, found int) {
	pr := p.peer(world)
	isOrigin := func(o origin) bool { return o.context == parent && isIt(o.tag) }
	var tags []int
	note := func(o origin, id ContextID) {
		if !slices.Contains(tags, o.tag) {
			tags = append(tags, o.tag)
		}
		if id != NoContext && !slices.Contains(made, id) {
			made = append(made, id)
		}
	}
	for _, c := range p.sortedContexts() {
		if !isOrigin(c.origin) {
			continue
		}
		if _, member := c.group.Rank(pr.Rank()); !member {
			note(c.origin, NoContext)
			continue
		}
		note(c.origin, c.id.Collective())
		p.revokeFor(c, pr)
	}
	// A context that is freed may still have sends under way.
	p.sends.each(func(s *SendRequest) {
		if isOrigin(s.ctx.origin) && s.peer == pr {
			note(s.ctx.origin, s.ctx.id.Collective())
			p.revokeFor(s.ctx, pr)
		}
	})
	slices.Sort(made) // so that each run sends in the same order
	return made, len(tags)
}

// revokeFor fails the operations in c that need a member that never got the communicator.
func (p *PML) revokeFor(c *Context, pr *peer) {
	if c.revokedFor(pr.Rank()) != nil {
		return
	}
	rank, _ := c.group.Rank(pr.Rank())
	err := &RevokedError{Rank: rank}
	c.revoked = append(c.revoked, revocation{pr.Rank(), err})
	p.postBlocking()
	if c.handler != nil { // every collective needs all members
		c.failPosted(func(*RecvRequest) bool { return true }, err)
		c.handler.Revoked(err)
		c.rejectUnexpected(anyKey, nil)
	}
	// A send that needs no answer goes on, and the peer drops its message.
	p.failUnmatched(pr, func(s *SendRequest) bool { return s.ctx == c }, err)
	c.failWaits(pr.Rank(), true, err)
}

// Disown handles the collective context, sent by a member, of a communicator that this rank gave up
// before it had it. It rejects the fragments that have arrived for the communicator, and later
// ones, as for a freed communicator. It changes nothing if this rank has a communicator with the
// id: it may have given up the other one because the id is in use here.
func (p *PML) Disown(id ContextID) error {
	twin := id ^ 1
	switch {
	case id != id.Collective():
		return fmt.Errorf("%w: revoked context %#x is not for collectives", errMalformed, uint64(id))
	case p.contexts[id] != nil || p.contexts[twin] != nil:
		return nil
	}
	p.ids.disown(twin)
	p.rejectEarlyContext(twin)
	p.rejectEarlyContext(id)
	return nil
}

// ExpireOrigins forgets which contexts the collectives of parent made under old tags, because those
// tags are about to be used again.
func (p *PML) ExpireOrigins(parent *Context, isOld func(tag int) bool) {
	old := func(o origin) bool { return o.context == parent.id && isOld(o.tag) }
	for _, c := range p.contexts {
		if old(c.origin) {
			c.origin = origin{}
		}
	}
}
