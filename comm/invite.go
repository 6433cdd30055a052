package comm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/pml"
)

// The members of a group agree on a communicator without the other ranks of its parent as follows.
// The member with the lowest rank in the job leads. So members that pass the same ranks in
// different orders have the same leader and notice the difference. The leader takes a new context
// id, and sends an INVITE with the id to each other member. Each member that has the id makes the
// communicator, and calls a barrier in it.
//
//	leader  ── INVITE: parent, id, digest of the group ──▶  member
//	leader  ◀──────────────────── barrier in id ─────────▶  member
//	leader  ◀── INVITE: declined, id, reason ─────────────  a member that has given its call up
//
// INVITEs are control fragments in a context of their own (pml.SetupContext). A member matches them
// with its calls by parent, leader and tag, in order. So several calls may be under way.
//
// A rank that fails after it has made the communicator revokes the barrier, like any collective. A
// member that gives up earlier declines the INVITE when it arrives. The leader then revokes the
// barrier. Members in Finalize, and members that have freed the parent, decline too.
//
// A member that waits for its INVITE posts a receive from the leader, with a tag that no message
// has. This receive fails like any other: if the leader is lost or in Finalize, or if the parent is
// revoked. A member that is about to sleep also asks the leader, once. The leader answers as soon
// as it has freed the parent.

// inviteTag and the tag of a call form the tag of the receive that fails if no INVITE will arrive.
const inviteTag = tagUB + 1

// maxInvites is the largest number of INVITEs from one leader that no call has taken.
const maxInvites = 1 << 12

// inviteKey is what an INVITE and a call have in common.
type inviteKey struct {
	parent pml.ContextID
	leader int // rank in the job
	tag    int
}

// invite is an INVITE that no call has taken yet.
type invite struct {
	key    inviteKey
	id     pml.ContextID
	digest uint64
	// givenUp, if above 0, counts calls that the leader has given up. There is then no id.
	givenUp int
}

// ask is the question of a member, a rank of the job, that waits for an INVITE.
type ask struct {
	key    inviteKey
	member int
}

// groupCall is a call of CreateGroup.
type groupCall struct {
	key inviteKey
	// At a member that waits for its INVITE: the INVITE, and the receive, which ends when the
	// INVITE arrives.
	got   *invite
	wait  *pml.RecvRequest
	asked bool // it has asked the leader
	// At the leader: the communicator, its barrier, and why a member has declined.
	made     *Comm
	barrier  *coll.Schedule
	declined error
}

// invites has the calls of CreateGroup at one rank, with their INVITEs and questions. It is the
// handler of the context in which INVITEs are sent. The engine's lock guards it.
type invites struct {
	job     *job
	waiting []*groupCall      // members without an INVITE, oldest first
	leading []*groupCall      // leaders
	early   []invite          // INVITEs that no call has taken, oldest first
	missed  map[inviteKey]int // calls that were given up before their INVITE arrived
	asks    []ask             // from members that wait for an INVITE from this rank
	leaving bool              // the rank is in Finalize
}

func newInvites(j *job) *invites {
	v := &invites{job: j, missed: make(map[inviteKey]int)}
	w := j.world
	j.pml.AddControlledContext(pml.SetupContext, w.members, w.rank, (*owner)(w.state), func(*pml.Context) pml.Handler { return v })
	return v
}

var errNoMessages = errors.New("a message in the context of invitations")

// ReceiveError implements pml.Handler.
func (v *invites) ReceiveError(int) error { return nil }

// Arriving implements pml.Handler.
func (v *invites) Arriving(int, int) (keep bool, err error) { return false, errNoMessages }

// Control implements pml.Handler.
func (v *invites) Control(f pml.Control) error {
	var b inviteBody
	if f.Kind != pml.ControlInvite {
		return fmt.Errorf("%w: of kind %d", errMalformedInvite, f.Kind)
	}
	if err := b.decode(f.Data); err != nil {
		return err
	}
	switch b.kind {
	case inviteDeclined:
		v.declinedBy(f.From, b)
		return nil
	case inviteAsked:
		return v.askedBy(ask{inviteKey{b.parent, v.job.rank, f.Tag}, f.From})
	}
	in := invite{key: inviteKey{b.parent, f.From, f.Tag}, id: b.id, digest: b.digest}
	if b.kind == inviteGivenUp {
		in.givenUp = 1
	} else if err := v.job.pml.Announced(in.id, f.From); err != nil {
		return err
	}
	return v.invited(in)
}

// invited handles an INVITE.
func (v *invites) invited(in invite) error {
	switch {
	case v.leaving:
		v.decline(in, declinedFinalized)
	case v.missed[in.key] > 0: // the given-up calls came before the waiting ones
		if v.missed[in.key]--; v.missed[in.key] == 0 {
			delete(v.missed, in.key)
		}
		v.decline(in, declinedGivenUp)
	case v.handOver(in):
	case v.job.pml.IsFreed(in.key.parent):
		v.decline(in, declinedFreed)
	default:
		n := 0
		for _, e := range v.early {
			if e.key.leader == in.key.leader {
				n++
			}
		}
		if n >= maxInvites {
			return fmt.Errorf("more than %d invitations to communicators", maxInvites)
		}
		v.early = append(v.early, in)
		v.mergeGivenUp(in.key)
	}
	return nil
}

// handOver gives an INVITE to the oldest call that waits for it, if there is one.
func (v *invites) handOver(in invite) bool {
	i := slices.IndexFunc(v.waiting, func(c *groupCall) bool { return c.key == in.key })
	if i < 0 {
		return false
	}
	c := v.waiting[i]
	v.waiting = slices.Delete(v.waiting, i, i+1)
	c.got = &in
	c.wait.Cancel()
	return true
}

// mergeGivenUp merges consecutive given-up calls with one key into one entry, so that their number
// costs no memory.
func (v *invites) mergeGivenUp(key inviteKey) {
	last := -1 // the previous entry with the key
	for i := 0; i < len(v.early); i++ {
		if v.early[i].key != key {
			continue
		}
		if last >= 0 && v.early[last].givenUp > 0 && v.early[i].givenUp > 0 {
			v.early[last].givenUp += v.early[i].givenUp
			v.early = slices.Delete(v.early, i, i+1)
			i--
			continue
		}
		last = i
	}
}

// take removes and returns the oldest INVITE with a key, or nil.
func (v *invites) take(key inviteKey) *invite {
	i := slices.IndexFunc(v.early, func(e invite) bool { return e.key == key })
	if i < 0 {
		return nil
	}
	in := v.early[i]
	if in.givenUp > 1 {
		v.early[i].givenUp--
	} else {
		v.early = slices.Delete(v.early, i, i+1)
	}
	return &in
}

// miss counts a call of a member that gives up without its INVITE.
func (v *invites) miss(key inviteKey) {
	if in := v.take(key); in != nil {
		v.decline(*in, declinedGivenUp)
	} else {
		v.missed[key]++
	}
}

// forget removes a call that has ended.
func (v *invites) forget(c *groupCall) {
	isIt := func(other *groupCall) bool { return other == c }
	v.waiting, v.leading = slices.DeleteFunc(v.waiting, isIt), slices.DeleteFunc(v.leading, isIt)
}

// decline answers an INVITE that no call will take.
func (v *invites) decline(in invite, why declineReason) {
	if in.givenUp > 0 {
		return
	}
	v.disown(in.id)
	v.send(in.key.leader, in.key.tag, inviteBody{kind: inviteDeclined, reason: why, id: in.id, parent: in.key.parent})
}

// disown rejects messages for a communicator that this rank will never have.
func (v *invites) disown(id pml.ContextID) { _ = v.job.pml.Disown(id.Collective()) }

// invite sends an INVITE to each other member of the group that the call leads. members are their
// ranks in the job.
func (v *invites) invite(key inviteKey, members []int, b inviteBody) {
	b.parent = key.parent
	for _, w := range members {
		if w != v.job.rank {
			v.send(w, key.tag, b)
		}
	}
	v.asks = slices.DeleteFunc(v.asks, func(a ask) bool { return a.key == key && slices.Contains(members, a.member) })
}

func (v *invites) send(to, tag int, b inviteBody) {
	v.job.pml.SendControl(to, pml.SetupContext, pml.ControlInvite, tag, b.encode())
}

// askedBy handles a member's question whether it will be invited.
func (v *invites) askedBy(a ask) error {
	n := 0
	for _, other := range v.asks {
		if other.member == a.member {
			n++
		}
	}
	if n >= maxInvites {
		return fmt.Errorf("more than %d questions for invitations", maxInvites)
	}
	v.asks = append(v.asks, a)
	v.answerAsks()
	return nil
}

// answerAsks answers the members that will not be invited.
func (v *invites) answerAsks() {
	v.asks = slices.DeleteFunc(v.asks, func(a ask) bool {
		if !v.leaving && !v.job.pml.IsFreed(a.key.parent) {
			return false
		}
		v.send(a.member, a.key.tag, inviteBody{kind: inviteGivenUp, parent: a.key.parent})
		return true
	})
}

// declinedBy handles the answer of a member, a rank of the job, that has given up.
func (v *invites) declinedBy(from int, b inviteBody) {
	for _, c := range v.leading {
		if rank, member := c.made.members.Rank(from); c.made.id == b.id && member && c.declined == nil {
			c.declined = &declinedError{rank, b.reason}
			c.barrier.Revoke(coll.Failed)
		}
	}
}

// leaderRevoked handles a REVOKE for the communicator of an INVITE that no call has taken: the
// leader has given up.
func (v *invites) leaderRevoked(f pml.Control) bool {
	i := slices.IndexFunc(v.early, func(e invite) bool {
		return e.givenUp == 0 && e.id.Collective() == f.Context && e.key.leader == f.From
	})
	if i < 0 {
		return false
	}
	e := &v.early[i]
	v.disown(e.id)
	e.id, e.digest, e.givenUp = 0, 0, 1
	v.mergeGivenUp(e.key)
	return true
}

// parentFreed handles that this rank has freed a communicator.
func (v *invites) parentFreed(parent pml.ContextID) {
	for key := range v.missed {
		if key.parent == parent {
			delete(v.missed, key)
		}
	}
	v.checkParents()
}

// checkParents declines the INVITEs, and answers the members, of parents that this rank has freed
// or will never have.
func (v *invites) checkParents() {
	v.declineEarly(declinedFreed, func(in invite) bool { return v.job.pml.IsFreed(in.key.parent) })
	v.answerAsks()
}

func (v *invites) declineEarly(why declineReason, which func(in invite) bool) {
	var declined []invite
	v.early = slices.DeleteFunc(v.early, func(in invite) bool {
		if !which(in) {
			return false
		}
		declined = append(declined, in)
		return true
	})
	for _, in := range declined {
		v.decline(in, why)
	}
}

// Idle implements pml.Handler.
func (v *invites) Idle() {
	for _, c := range v.waiting {
		if !c.asked {
			c.asked = true
			v.send(c.key.leader, c.key.tag, inviteBody{kind: inviteAsked, parent: c.key.parent})
		}
	}
}

// Revoked implements pml.Handler. The world is not revoked.
func (v *invites) Revoked(error) {}

// Removed implements pml.Handler. The world is not freed.
func (v *invites) Removed() {}

// Finalizing implements pml.Handler.
func (v *invites) Finalizing() {
	v.leaving = true
	v.declineEarly(declinedFinalized, func(invite) bool { return true })
	v.answerAsks()
}

// Uses implements pml.Handler.
func (v *invites) Uses([]byte) bool { return false }

// orphans returns the handler of control fragments for communicators that the rank does not have.
func (j *job) orphans() pml.OrphanHandler {
	ofCollectives := coll.Orphans(j.pml)
	return func(f pml.Control, freed bool) (keep bool, err error) {
		switch {
		case f.Kind == pml.ControlInvite: // the world does not exist yet
			if f.Context != pml.SetupContext {
				return false, fmt.Errorf("%w: in context %#x", errMalformedInvite, uint64(f.Context))
			}
			return true, nil
		case f.Kind == pml.ControlRevoke && j.invites != nil && j.invites.leaderRevoked(f):
			return false, nil
		}
		keep, err = ofCollectives(f, freed)
		if v := j.invites; v != nil && f.Kind == pml.ControlRevoke {
			// The handler may have said that this rank will never have the communicator.
			v.checkParents()
		}
		return keep, err
	}
}

// declineReason is why a member declines an INVITE. Its values are part of the wire format.
type declineReason uint8

const (
	declinedGivenUp declineReason = 1 + iota
	declinedDiffers
	declinedFreed
	declinedFinalized
)

var declineTexts = [...]string{
	declinedGivenUp:   "it failed there",
	declinedDiffers:   "it has passed another group",
	declinedFreed:     "it has freed the parent",
	declinedFinalized: "it has called Finalize",
}

// declinedError is the error of a leader whose INVITE a member has declined.
type declinedError struct {
	rank   int // in the group
	reason declineReason
}

func (e *declinedError) Error() string {
	return fmt.Sprintf("rank %d gave up on this create group: %s", e.rank, declineTexts[e.reason])
}

// Is reports ErrComm, and ErrProcFailed if the reason is that a rank is gone.
func (e *declinedError) Is(target error) bool {
	return target == ErrComm || target == ErrProcFailed && e.reason == declinedFinalized
}

type inviteKind uint8

const (
	// inviteMade: the leader has made the communicator.
	inviteMade inviteKind = 1 + iota
	// inviteGivenUp: the leader makes no communicator in this call. There is no id.
	inviteGivenUp
	// inviteDeclined is the answer of a member to inviteMade.
	inviteDeclined
	// inviteAsked is the question of a member. A leader that will not invite it answers with
	// inviteGivenUp.
	inviteAsked
)

const inviteBytes = 24

// inviteBody is the data of an INVITE:
//
//	parent 6, kind 1, reason 1, id 6, zero 2, digest 8
//
// Only inviteDeclined has a reason, and only inviteMade has the digest of the group.
type inviteBody struct {
	parent pml.ContextID
	kind   inviteKind
	reason declineReason
	id     pml.ContextID
	digest uint64
}

func (b inviteBody) encode() []byte {
	out := make([]byte, 0, inviteBytes)
	out = binary.LittleEndian.AppendUint64(out, uint64(b.parent)|uint64(b.kind)<<48|uint64(b.reason)<<56)
	out = binary.LittleEndian.AppendUint64(out, uint64(b.id))
	return binary.LittleEndian.AppendUint64(out, b.digest)
}

var errMalformedInvite = errors.New("malformed invitation to a communicator")

func (b *inviteBody) decode(data []byte) error {
	if len(data) != inviteBytes {
		return fmt.Errorf("%w: %d bytes, not %d", errMalformedInvite, len(data), inviteBytes)
	}
	first, second := binary.LittleEndian.Uint64(data), binary.LittleEndian.Uint64(data[8:])
	const idBits = 48
	*b = inviteBody{
		parent: pml.ContextID(first & (1<<idBits - 1)), kind: inviteKind(first >> idBits), reason: declineReason(first >> 56),
		id: pml.ContextID(second), digest: binary.LittleEndian.Uint64(data[16:]),
	}
	isBad := second>>idBits != 0 || b.parent == b.parent.Collective()
	switch b.kind {
	case inviteMade:
		isBad = isBad || b.reason != 0
	case inviteGivenUp, inviteAsked:
		isBad = isBad || b.reason != 0 || b.id != 0 || b.digest != 0
	case inviteDeclined:
		isBad = isBad || b.reason < declinedGivenUp || b.reason > declinedFinalized || b.digest != 0
	default:
		isBad = true
	}
	if isBad {
		return fmt.Errorf("%w: %#x", errMalformedInvite, data)
	}
	return nil
}
