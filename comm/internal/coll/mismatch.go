package coll

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/mpigo/mpigo/comm/internal/area"
	"github.com/mpigo/mpigo/pml"
)

// Ranks whose calls do not match may wait for each other without an error: if each of two ranks
// takes the other for the root of a broadcast, both receive and neither sends. So a rank probes for
// a mismatch when its collective has made no progress for a time (Hub.Patience), even if other
// traffic goes on. It sends the signature of its call to each rank that it waits for, once a
// collective. The receiver of the probe
//
//   - revokes the collective if it is in it with another signature;
//   - answers if it has finished the collective, or cannot call it: it has freed the communicator,
//     is in Finalize, or knows that the communicator is revoked or unfit;
//   - otherwise keeps the probe until one of these holds, or until it is in the collective with the
//     same signature.
//
// Ranks with the same signature follow one schedule, in which no ranks wait in a circle. So in each
// wait that would not end, some rank gets a probe and finds the mismatch.
//
// All starts of a persistent collective have the signature of its Init call. Ranks may start
// several in any order, so a rank that has the request may still start it later. A probe for a
// start has no signature. Its receiver
//
//   - answers if it has freed the request, or the communicator, too;
//   - otherwise keeps the probe until it frees the request.
//
// The answer comes after all messages of the starts that the rank has made. So if the prober still
// waits then, its wait cannot end.

// Signature is the part of a call that has to be the same at all ranks. Ranks with equal signatures
// follow one schedule.
type Signature struct {
	Call  uint64 // the ID of the call in its blocking form, callSetUp or callChecked
	Root  int64
	Bytes uint64 // the length that chooses the schedule, if all ranks agree on one
	Kind  uint64 // everything else
}

// Calls of signatures that are not in the table of calls.
const (
	callSetUp   = 1<<8 + iota // making of an area; an ID has 8 bits
	callChecked               // a check
)

// Bits of Signature.Kind. The lower bits are the size of an element of a reduction.
const (
	kindInOrder     = 1 << 63 // the reduction combines in the order of ranks
	kindInPlace     = 1 << 62 // the schedule is the one for in place
	kindPersistent  = 1 << 61 // it is an Init call
	kindNonblocking = 1 << 60
)

// probe is a mismatch probe that this rank keeps.
type probe struct {
	rank      int // in the communicator
	seq       int
	signature Signature
}

// mismatch is the state of mismatch probes at a rank.
type mismatch struct {
	probes    []probe // of ranks that came to a collective before this one, at most one each
	noFurther Reason  // why this rank makes no further call, 0 if it may
}

func (s *Schedule) signature() Signature {
	if s.ours != (Signature{}) {
		return s.ours
	}
	if s.setUp { // the same in every call
		return Signature{Call: callSetUp}
	}
	if s.isChecked { // the check compares more
		return Signature{Call: callChecked}
	}
	sign := Signature{Call: uint64(s.id.Base()), Root: int64(s.root), Bytes: uint64(s.agreed)}
	if s.Op != nil {
		sign.Kind = s.Reduction.kind()
	}
	if s.inPlace {
		sign.Kind |= kindInPlace
	}
	switch s.how {
	case Nonblocking:
		sign.Kind |= kindNonblocking
	case Persistent:
		sign.Kind |= kindPersistent
	}
	return sign
}

// kind is the part of Signature.Kind for a reduction.
func (r *Reduction) kind() uint64 {
	kind := uint64(r.Elem)
	if !r.Commutes {
		kind |= kindInOrder
	}
	return kind
}

// stillAwaits reports whether this rank waits, in a collective, for a message from a rank of the
// job, or for that rank to match one. Otherwise that rank's answer to a probe is outdated, and this
// rank may probe it again.
func (t *Team) stillAwaits(from, tag int) bool {
	s := t.underWay(tag)
	if s == nil {
		return false
	}
	s.pollMeeting() // the rank may have ended the wait before it answered
	if slices.Contains(s.awaited(), from) {
		return true
	}
	s.probed = slices.DeleteFunc(s.probed, func(world int) bool { return world == from })
	return false
}

// awaited lists the ranks of the job that this rank waits for in the collective. A rank may be
// listed several times.
func (s *Schedule) awaited() []int {
	if s.how != Blocking && !s.isInline { // there may be thousands: look at its own operations only
		return s.awaitedByPosted()
	}
	p, ctx, t := s.team.p, s.team.ctx, s.team
	watched := p.Awaited(ctx, s.tag|watchTag)
	return append(p.Awaited(ctx, s.tag), slices.DeleteFunc(watched, func(world int) bool {
		rank, _ := t.group.Rank(world)
		return !s.mayAwaitRank(rank)
	})...)
}

// awaitedByPosted is awaited of a collective whose operations all have requests.
func (s *Schedule) awaitedByPosted() (awaited []int) {
	g := s.team.group
	for _, r := range s.recvs {
		if r.req.AwaitsMatch() {
			awaited = append(awaited, g.World(r.peer))
		}
	}
	for _, r := range s.meeting.watches {
		if r.req.AwaitsMatch() && s.mayAwaitRank(r.peer) {
			awaited = append(awaited, g.World(r.peer))
		}
	}
	for _, r := range s.sends {
		if r.AwaitsMatch() {
			awaited = append(awaited, g.World(r.Dest()))
		}
	}
	return awaited
}

// probed answers a probe, or keeps it.
func (t *Team) probed(pr probe) {
	from := t.group.World(pr.rank)
	if s := t.underWay(pr.seq); s != nil {
		s.compare(pr, s.signature())
		return
	}
	switch {
	case t.isOver(pr.seq):
		t.answer(from, pr.seq, Finished)
		return
	case t.revoked != nil, t.unfit != nil:
		t.answer(from, pr.seq, Unfit)
		return
	case t.noFurther != 0 && !t.isAboutToCall(pr.seq):
		t.answer(from, pr.seq, t.noFurther)
		return
	}
	if i := slices.IndexFunc(t.probes, func(old probe) bool { return old.rank == pr.rank }); i >= 0 {
		t.probes[i] = pr
	} else {
		t.probes = append(t.probes, pr)
	}
}

// noFurtherCalls says that this rank calls no further collective. If several reasons hold, probes
// are answered with Freed.
func (t *Team) noFurtherCalls(reason Reason) {
	if t.noFurther != Freed {
		t.noFurther = reason
	}
	t.declineProbes(reason)
}

// isAboutToCall reports whether this rank is in the set-up of memory before the call with a number
// (see Prepare). It makes that call even if the communicator is freed meanwhile.
func (t *Team) isAboutToCall(seq int) bool {
	return t.blocking != nil && t.blocking.setUp && seq == t.next && t.unfit == nil && t.revoked == nil
}

// declineProbes answers the kept probes: this rank will not call these collectives.
func (t *Team) declineProbes(reason Reason) {
	probes := t.probes
	t.probes = nil
	for _, pr := range probes {
		if t.isAboutToCall(pr.seq) {
			t.probes = append(t.probes, pr)
			continue
		}
		t.answer(t.group.World(pr.rank), pr.seq, reason)
	}
}

// answerProbes compares a call that is about to run with the probes that have arrived before it.
func (t *Team) answerProbes(s *Schedule) {
	if len(t.probes) == 0 {
		return
	}
	ours := s.signature()
	for _, pr := range t.probes {
		if pr.seq == s.seq {
			s.compare(pr, ours)
		}
	}
	t.probes = slices.DeleteFunc(t.probes, func(pr probe) bool { return t.ahead(pr.seq) < 0 })
}

// compare revokes the collective if the rank that probes has made another call.
func (s *Schedule) compare(pr probe, ours Signature) {
	if pr.signature != ours {
		reason := differenceOf(pr.signature, ours)
		s.team.revoke(s.tag, &RevokedError{Rank: pr.rank, Reason: reason, Theirs: &pr.signature, Ours: &ours})
	}
}

// differenceOf is the reason to revoke a collective whose calls differ.
func differenceOf(theirs, ours Signature) Reason {
	if theirs.Call == ours.Call && theirs.Root == ours.Root {
		return Lengths
	}
	return Differs
}

// startProbed answers a probe for a start, or keeps it. The prober has finished its Init call, so
// this rank has made that call, too.
func (t *Team) startProbed(rank, tag int) {
	s := t.concerned(tag)
	if s == nil {
		t.answer(t.group.World(rank), tag, FreedRequest)
	} else if !slices.Contains(s.awaitedBy, rank) {
		s.awaitedBy = append(s.awaitedBy, rank)
	}
}

// declineStarts answers the kept probes for starts: this rank has freed the request.
func (s *Schedule) declineStarts() {
	for _, rank := range s.awaitedBy {
		s.team.answer(s.team.group.World(rank), s.seq+startForm, FreedRequest)
	}
	s.awaitedBy = s.awaitedBy[:0]
}

// Idle implements pml.Handler. It probes for the first call under way. Ranks make the same calls in
// the same order, so of ranks that wait for each other, the one in the earliest call finds the
// mismatch. Starts have no order, so it probes for all of them.
func (h handler) Idle() {
	for _, s := range h.hub.waiting {
		if s.team == h.Team {
			s.watchSoon()
		}
	}
	if len(h.calls) > 0 && h.calls[0].isStuck() {
		s := h.calls[0]
		ours := s.signature()
		s.probe(s.seq, ours.append(nil))
	}
	var starts []*Schedule
	for _, s := range h.kept {
		if s.phase == phaseWaiting && s.isStuck() {
			starts = append(starts, s)
		}
	}
	slices.SortFunc(starts, func(a, b *Schedule) int { return cmp.Compare(a.seq, b.seq) })
	for _, s := range starts {
		s.probe(s.tag, nil)
	}
}

// advancement is how far a collective is. It changes when an awaited message comes, or a rank makes
// an awaited change in shared memory.
type advancement struct {
	next    int    // Schedule.next
	stamp   uint64 // of the meeting
	phase   meetingPhase
	awaited int // operations that wait for a rank
}

func (s *Schedule) advancement() advancement {
	return advancement{s.next, s.meeting.stamp, s.meeting.phase, len(s.awaited())}
}

// isStuck is called each time the rank is idle, and reports whether the collective has made no
// progress for Hub.Patience. Until then it checks nothing, because a rank with other traffic may be
// idle often.
func (s *Schedule) isStuck() bool {
	now := s.team.p.Engine().Now()
	if s.wasIdle && now-s.idleSince < s.team.hub.Patience {
		return false
	}
	at := s.advancement()
	is := s.wasIdle && s.idleAt == at
	s.wasIdle, s.idleSince, s.idleAt = true, now, at
	return is
}

// probe sends a probe to each rank that the collective waits for and that was not probed.
func (s *Schedule) probe(tag int, data []byte) {
	t := s.team
	for _, world := range s.awaited() {
		if world == t.group.World(t.rank) || slices.Contains(s.probed, world) {
			continue
		}
		s.probed = append(s.probed, world)
		t.p.SendControl(world, t.ctx.ID(), pml.ControlMismatchProbe, tag, data)
	}
}

// append appends the encoding of a signature, which is the data of a MISMATCHPROBE for a call:
//
//	call 8, root 8, bytes 8, kind 8
func (s *Signature) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, s.Call)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.Root))
	b = binary.LittleEndian.AppendUint64(b, s.Bytes)
	return binary.LittleEndian.AppendUint64(b, s.Kind)
}

// decodeSignature decodes an encoding.
func decodeSignature(b []byte) Signature {
	return Signature{
		Call:  binary.LittleEndian.Uint64(b),
		Root:  int64(binary.LittleEndian.Uint64(b[8:])),
		Bytes: binary.LittleEndian.Uint64(b[16:]),
		Kind:  binary.LittleEndian.Uint64(b[24:]),
	}
}

// signatureIn is the signature, in an area, of a rank that has come to a round.
func signatureIn(a *area.Area, rank int, stamp uint64) Signature {
	return decodeSignature(a.Signature(rank, stamp))
}
