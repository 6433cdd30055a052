package comm

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/pml"
)

// Create makes a communicator of the ranks of a group, in its order (MPI 4.1, section 7.4.2). It is
// a collective: all ranks of c call it. A rank that is not a member of the group that it passes
// gets nil. All members of a group pass the same group. Groups without common members may be passed
// in one call.
//
// Errors: ErrRank for a group that is not part of c, and if the members of a group pass different
// ones; ErrComm, ErrFinalized, and those of the peers.
//
// If a rank gives up because the context of its view ends, the same holds as for [Comm.Split].
func (c *Comm) Create(g Group) (*Comm, error) {
	me := splitMember{color: Undefined}
	refused := c.checkPart(g)
	if refused == nil && !c.isNull() {
		if at := g.Rank(c.group[c.rank]); at != Undefined {
			first, _ := c.members.Rank(g.members.World(0))
			me.color, me.key, me.digest = groupColor(first, g.Size()), at, g.digest()
		}
	}
	return c.derive(derivation{op: calls.Create, suffix: "create", refused: refused, me: me, check: checkGroups})
}

// groupColor is the colour of the members of a group: its first member, as a rank of the parent,
// and its size.
func groupColor(first, size int) int { return size<<32 | first }

// checkGroups checks that the members of each group pass the same group.
func checkGroups(all []splitMember) error {
	at := make(map[[2]int]bool) // colour and rank in the group
	members := make(map[int]int)
	for r, m := range all {
		if m.color == Undefined {
			continue
		}
		first, size, place := m.color&(1<<32-1), m.color>>32, [2]int{m.color, m.key}
		members[m.color]++
		if first >= len(all) || all[first].color != m.color || all[first].digest != m.digest ||
			uint(m.key) >= uint(size) || at[place] {
			return fmt.Errorf("%w: the members of the group of rank %d pass different groups", ErrRank, r)
		}
		at[place] = true
	}
	for r, m := range all {
		if m.color != Undefined && members[m.color] != m.color>>32 {
			return fmt.Errorf("%w: only %d of the %d members of the group of rank %d pass that group",
				ErrRank, members[m.color], m.color>>32, r)
		}
	}
	return nil
}

// checkPart checks that all members of a group are in c.
func (c *Comm) checkPart(g Group) error {
	if c.isNull() {
		return nil // begin reports it
	}
	for r := range g.Size() {
		if w := g.members.World(r); !c.Group().has(w) {
			return fmt.Errorf("%w: rank %d of the world is not in the communicator", ErrRank, w)
		}
	}
	return nil
}

const createGroupOp = calls.CreateGroup

// CreateGroup makes a communicator of the ranks of a group, in its order, without the other ranks
// of c (MPI 4.1, section 7.4.2). Only the members of the group call it, with the same group and
// tag; a rank that is not a member gets nil. Several goroutines of a rank may call it at once, with
// different tags. So members that pass different tags wait: another goroutine may still make the
// matching call. These tags are independent of the tags of messages.
//
// If a call fails at one member, it fails at all members, or they get a communicator that is
// revoked, as for [Comm.Split]. This includes a call whose context has ended before it begins
// (ErrGivenUp). An error that another member has caused names its rank in the group. A call with an
// invalid tag does nothing.
//
// Errors: ErrRank for a group that is not part of c, ErrTag; ErrComm, ErrFinalized, and those of
// the peers.
func (c *Comm) CreateGroup(g Group, tag int) (*Comm, error) {
	if err := c.enter(); err != nil {
		return nil, c.fail(createGroupOp, none, tag, err)
	}
	defer c.leave()
	refused := c.checkPart(g)
	if err := checkSendTag(tag); err != nil {
		if refused == nil {
			refused = err
		}
		return nil, c.fail(createGroupOp, none, tag, refused)
	}
	if !g.has(c.job.rank) {
		return nil, c.fail(createGroupOp, none, tag, refused)
	}
	key := inviteKey{parent: c.id, leader: slices.Min(g.Ranks()), tag: tag}
	if refused == nil {
		refused = c.revokedPart(g)
	}
	if refused == nil {
		refused = c.givenUp()
	}
	if refused != nil {
		c.refuseGroup(g, key)
		return nil, c.fail(createGroupOp, none, tag, refused)
	}
	if key.leader == c.job.rank {
		return c.leadGroup(g, key)
	}
	return c.joinGroup(g, key)
}

// revokedPart is the error of a group with a member that never got c.
func (c *Comm) revokedPart(g Group) error {
	for r := range g.Size() {
		if w := g.members.World(r); c.p2p.IsRevokedFor(w) {
			rank, _ := c.members.Rank(w)
			return &pml.RevokedError{Rank: rank}
		}
	}
	return nil
}

// givenUp is the error of a collective whose context has ended. It is nil if the context has not
// ended.
func (c *Comm) givenUp() error {
	if err := c.contextErr(); err != nil {
		return fmt.Errorf("%w: %w", ErrGivenUp, err)
	}
	return nil
}

// refuseGroup tells the other members that their call does not begin at this rank.
func (c *Comm) refuseGroup(g Group, key inviteKey) {
	v, others := c.job.invites, g.Intersection(c.Group())
	if key.leader == c.job.rank {
		v.invite(key, others.Ranks(), inviteBody{kind: inviteGivenUp})
	} else if others.has(key.leader) {
		v.miss(key)
	}
}

// leadGroup is CreateGroup at the leader. Lock held.
func (c *Comm) leadGroup(g Group, key inviteKey) (*Comm, error) {
	p, v := c.job.pml, c.job.invites
	id := p.NewContextID()
	if id == pml.NoContext {
		c.refuseGroup(g, key)
		return nil, c.fail(createGroupOp, none, key.tag, fmt.Errorf("%w: %w", ErrComm, p.CheckNewContext(id, c.job.rank)))
	}
	call := &groupCall{key: key}
	made, err := c.confirm(call, id, g, func() {
		v.leading = append(v.leading, call)
		v.invite(key, g.Ranks(), inviteBody{kind: inviteMade, id: id, digest: g.digest()})
	})
	v.forget(call)
	if err != nil && call.declined != nil {
		err = call.made.describe(createGroupOp.String(), none, key.tag, call.declined)
	}
	return made, err
}

// joinGroup is CreateGroup at every other member. Lock held.
func (c *Comm) joinGroup(g Group, key inviteKey) (*Comm, error) {
	v := c.job.invites
	call := &groupCall{key: key, got: v.take(key)}
	if call.got == nil {
		if err := c.awaitInvite(call); err != nil {
			return nil, err
		}
	}
	in := *call.got
	var err error
	switch {
	case in.givenUp > 0:
		err = &declinedError{g.Rank(key.leader), declinedGivenUp}
	case in.digest != g.digest():
		v.decline(in, declinedDiffers)
		err = fmt.Errorf("%w: rank %d of the group passes another group", ErrRank, g.Rank(key.leader))
	case c.contextErr() != nil:
		v.decline(in, declinedGivenUp)
		err = c.givenUp()
	default:
		return c.confirm(call, in.id, g, nil)
	}
	return nil, c.fail(createGroupOp, none, key.tag, err)
}

// awaitInvite returns when the INVITE for a call has arrived. Lock held.
func (c *Comm) awaitInvite(call *groupCall) error {
	v := c.job.invites
	leader, _ := c.members.Rank(call.key.leader)
	call.wait = c.job.pml.Irecv(c.p2p, nil, 1, leader, call.key.tag|inviteTag, createGroupOp.String())
	v.waiting = append(v.waiting, call)
	err, stopped := call.wait.AwaitOrCancel(c.ctx)
	v.forget(call)
	if stopped != nil {
		return c.fail(createGroupOp, leader, call.key.tag, causeOf(stopped))
	}
	_, own := call.wait.Take()
	switch {
	case call.got != nil:
		return nil
	case own != nil: // no INVITE will arrive
		err = own
	default:
		v.miss(call.key)
		if givenUp := c.givenUp(); givenUp != nil {
			err = givenUp
		}
	}
	return c.fail(createGroupOp, leader, call.key.tag, causeOf(err))
}

// causeOf is an error without what describe has added.
func causeOf(err error) error {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}

// confirm makes the communicator of a group, and returns it when all members have made it. begun,
// if not nil, is called before this rank waits. Lock held.
func (c *Comm) confirm(call *groupCall, id pml.ContextID, g Group, begun func()) (*Comm, error) {
	suffix := "group" + strconv.Itoa(call.key.tag)
	made := c.job.newComm(id, derivedName(*c.name.Load(), suffix), g.Ranks(), g.members, g.Rank(c.job.rank))
	call.made, call.barrier = made, made.team.Begin(blocking, createGroupOp, coll.NoRoot)
	if begun != nil {
		begun()
	}
	if err := c.finishSetup(made, call.barrier); err != nil {
		made.drop()
		return nil, err
	}
	return made, nil
}

// finishSetup does a barrier in a communicator that this rank has just made. So no user gets the
// communicator before all ranks have made it. s is its first schedule. The context of the view c
// may end the barrier.
func (c *Comm) finishSetup(made *Comm, s *coll.Schedule) error {
	defer s.Leave()
	s.NoBuffers()
	s.Barrier()
	if _, err := c.run(s, nil); err != nil {
		return err
	}
	s.Made(made.p2p, made.team) // if a rank gives up later, it revokes the communicator
	return nil
}
