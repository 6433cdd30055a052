package comm

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/pml"
)

// Dup makes a communicator with the same ranks, in a matching space of its own. It is a collective:
// all ranks of c call it. It ignores the context of a view of c. The duplicate has the topology of
// c. Each attribute's key decides whether the duplicate gets a copy.
//
// Errors: ErrComm, ErrFinalized, and those of the peers.
func (c *Comm) Dup() (*Comm, error) {
	d, err := c.WithContext(context.Background()).split(splitMember{}, calls.Dup, "dup")
	if err == nil {
		d.inherit(c)
	}
	return d, err
}

// Split makes a communicator of the ranks that pass the same colour (≥ 0), in the order of key, and
// ranks with equal keys in the order of c (MPI 4.1, section 7.4.2). It is a collective: all ranks
// of c call it. Ranks with colour Undefined get nil. Errors: ErrCount for another negative colour,
// ErrComm, ErrFinalized, and those of the peers.
//
// A rank whose call gives up, because the context of its view ends, gets no communicator. If other
// ranks already have the communicator, it is revoked: its collectives fail with ErrComm, and so do
// sends to the rank that gave up, receives from it, and receives from AnySource. Messages between
// the other ranks are not affected.
func (c *Comm) Split(color, key int) (*Comm, error) {
	return c.split(splitMember{color: color, key: key}, calls.Split, "split"+strconv.Itoa(color))
}

// SplitHost is Split with a colour for each machine: ranks that share memory get one communicator.
func (c *Comm) SplitHost(key int) (*Comm, error) {
	return c.split(splitMember{key: key, byHost: true}, calls.SplitHost, "host")
}

// splitMember is the contribution of a rank to Split.
type splitMember struct {
	color, key int
	byHost     bool // the colour is the machine; the same at all ranks
	proposal   pml.Proposal
	call       uint64 // ID of the call
	digest     uint64 // hash of arguments that ranks compare
	host       [hostKeyBytes]byte
	rank       int // in the parent; not sent
}

const splitMemberBytes = 48 + hostKeyBytes

func (m splitMember) encode() []byte {
	b := make([]byte, 0, splitMemberBytes)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.color))
	b = binary.LittleEndian.AppendUint64(b, uint64(m.key))
	b = binary.LittleEndian.AppendUint64(b, uint64(m.proposal.ID))
	b = binary.LittleEndian.AppendUint64(b, uint64(m.proposal.Floor))
	b = binary.LittleEndian.AppendUint64(b, m.call)
	b = binary.LittleEndian.AppendUint64(b, m.digest)
	return append(b, m.host[:]...)
}

func decodeSplitMember(b []byte, rank int) splitMember {
	return splitMember{
		color: int(binary.LittleEndian.Uint64(b)),
		key:   int(binary.LittleEndian.Uint64(b[8:])),
		proposal: pml.Proposal{
			ID:    pml.ContextID(binary.LittleEndian.Uint64(b[16:])),
			Floor: pml.ContextID(binary.LittleEndian.Uint64(b[24:])),
		},
		call:   binary.LittleEndian.Uint64(b[32:]),
		digest: binary.LittleEndian.Uint64(b[40:]),
		host:   [hostKeyBytes]byte(b[48:]),
		rank:   rank,
	}
}

// split makes communicators of c's ranks. Every rank proposes a context id, because only that rank
// knows that the id is new to it. Each new communicator takes the id that its rank 0 proposes.
func (c *Comm) split(me splitMember, op calls.ID, suffix string) (*Comm, error) {
	s, err := c.begin(blocking, op, nil)
	if err != nil {
		return nil, err
	}
	defer c.endCollective(s)
	all, err := c.gatherMembers(s, op, me)
	if err != nil {
		return nil, err
	}
	made, err := c.makeComm(s, all, me, suffix)
	if err != nil {
		return nil, c.describe(op.String(), none, none, fmt.Errorf("%w: %w", ErrComm, err))
	}
	return made, nil
}

// gatherMembers returns the contributions of all ranks. It fills in the fields of me that the
// caller does not choose.
func (c *Comm) gatherMembers(s *coll.Schedule, op calls.ID, me splitMember) ([]splitMember, error) {
	if me.color < 0 && me.color != Undefined {
		return nil, s.Refuse(fmt.Errorf("%w: colour %d is negative", ErrCount, me.color))
	}
	me.call = uint64(op)
	b := c.contribute(s, me)
	if _, err := c.run(s, nil); err != nil {
		return nil, err
	}
	all := c.decodeMembers(b)
	for r, m := range all {
		if m.call != me.call {
			s.Revoke(coll.Differs)
			return nil, c.describe(op.String(), none, none, fmt.Errorf("%w: the arguments differ: rank %d is in another collective", ErrComm, r))
		}
	}
	return all, nil
}

// contribute makes the schedule that gathers the encoded contributions of all ranks in the slice
// that contribute returns.
func (c *Comm) contribute(s *coll.Schedule, me splitMember) []byte {
	s.NoBuffers()
	m := c.job.pml.Propose(c.members)
	s.Makes(m, c.job.invites.checkParents)
	me.proposal, me.host = m.Proposal, c.job.hostKey
	b := make([]byte, len(c.group)*splitMemberBytes)
	s.Allgather(me.encode(), b)
	return b
}

func (c *Comm) decodeMembers(b []byte) []splitMember {
	all := make([]splitMember, len(c.group))
	for r := range all {
		all[r] = decodeSplitMember(b[r*splitMemberBytes:], r)
	}
	return all
}

// makeComm makes the communicator of this rank, or returns nil if it gets none. The caller must not
// release the lock before. Otherwise a REVOKE from a rank that has given up the call could arrive
// before the communicator exists.
func (c *Comm) makeComm(s *coll.Schedule, all []splitMember, me splitMember, suffix string) (*Comm, error) {
	if err := c.checkIDs(all); err != nil {
		return nil, err // at all ranks
	}
	var members []splitMember
	for _, m := range all {
		if m.color == me.color && (!me.byHost || m.host == c.job.hostKey) {
			members = append(members, m)
		}
	}
	if me.color == Undefined {
		return nil, nil
	}
	slices.SortStableFunc(members, func(a, b splitMember) int { return cmp.Compare(a.key, b.key) })
	group, rank := make([]int, len(members)), 0
	for r, m := range members {
		group[r] = c.group[m.rank]
		if m.rank == c.rank {
			rank = r
		}
	}
	chosen := members[0].proposal
	if err := s.Take(chosen, group[0]); err != nil {
		s.Revoke(coll.Failed) // the other members may have succeeded
		return nil, err
	}
	pmlGroup := c.members
	if !slices.Equal(group, c.group) {
		pmlGroup = pml.NewGroup(group)
	}
	made := c.job.newComm(chosen.ID, derivedName(*c.name.Load(), suffix), group, pmlGroup, rank)
	s.Made(made.p2p, made.team)
	return made, nil
}

// checkIDs checks that every rank proposes an id.
func (c *Comm) checkIDs(all []splitMember) error {
	for _, m := range all {
		if m.proposal.ID == pml.NoContext {
			return c.job.pml.CheckNewContext(m.proposal.ID, c.group[m.rank])
		}
	}
	return nil
}

// derivedName is the first name of a communicator made from one named parent.
func derivedName(parent, suffix string) string {
	const mostBytes = 64 // limits names that are derived again and again
	if len(parent)+len(suffix) >= mostBytes {
		return parent
	}
	return parent + "/" + suffix
}

// Free releases the communicator, and drops its attributes. It is local. Pending operations
// complete. Rank, Size, Name, Group, Compare and the calls that describe a topology still work
// afterwards; every other call returns ErrComm. Free of the world returns ErrComm.
func (c *Comm) Free() error {
	const op = calls.FreeComm
	if err := c.enter(); err != nil {
		return c.fail(op, none, none, err)
	}
	defer c.leave()
	if c.state == c.job.world.state {
		return c.fail(op, none, none, fmt.Errorf("%w: the world is not freed", ErrComm))
	}
	c.drop()
	return nil
}

// drop is Free without checks. Lock held.
func (c *Comm) drop() {
	c.freed, c.attrs = true, nil
	if c.job.check != nil {
		defer c.job.check.keepUnreceived(c.job.pml, c.p2p)()
	}
	c.job.pml.RemoveContext(c.p2p)
	c.team.Remove()
	c.job.invites.parentFreed(c.id)
}
