package coll

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/pml"
)

// Ranks whose calls do not belong together may wait for each other, and none of them notices: two
// ranks that each take the other for the root of a broadcast both receive, and nothing is sent. So
// a rank probes for a mismatch when it is about to sleep for the second time without having
// received anything: it sends the signature of its call to each rank that it waits for, once a
// collective. The rank that receives the probe
//
//   - revokes the collective if it is in it with another signature;
//   - answers if it has finished the collective, or will never come to it because it has freed the
//     communicator, or is in Finalize, or knows that the communicator is revoked or unfit;
//   - keeps the probe until one of these is so, or until it is in the collective with the same
//     signature.
//
// If all ranks that wait for each other have the same signature, they follow one schedule, in which
// no ranks wait in a circle. So in each wait that would not end, some rank gets a probe and finds
// the mismatch.

// Signature is what the calls of a collective have in common at all ranks. Ranks with equal
// signatures follow one schedule.
type Signature struct {
	Call  uint64 // a hash of the call's name
	Root  int64
	Bytes uint64 // the length that chooses the schedule, if all ranks agree on one
	Kind  uint64 // everything else
}

// Bits of Signature.Kind. The lower bits are the size of an element of a reduction.
const (
	kindInOrder = 1 << 63 // the reduction combines in the order of ranks
	kindInPlace = 1 << 62 // the schedule is the one for in place
)

// probe is a mismatch probe that this rank keeps.
type probe struct {
	rank      int // in the communicator
	seq       int
	signature Signature
}

// mismatch is what a rank knows of mismatch probes.
type mismatch struct {
	probes      []probe // of ranks that are in a collective before this one, at most one of each
	probedRanks []int   // ranks of the job that this one has probed in the collective now
	noFurther   Reason  // why this rank makes no further call, 0 if it may
	// The state when the rank was idle last: the collective, and how many messages it had received.
	idleAt       int
	idleReceived uint64
}

// signature of the running collective; false if there is none.
func (t *Team) signature() (Signature, bool) {
	if t.running == nil {
		return Signature{}, false
	}
	return t.running.signature(), true
}

func (s *Schedule) signature() Signature {
	if s.setUp { // whatever call the rank is in
		return Signature{Call: hashOf("set up")}
	}
	sign := Signature{Call: hashOf(s.call), Root: int64(s.root), Bytes: uint64(s.agreed)}
	if s.Op != nil {
		sign.Kind = uint64(s.Elem)
		if !s.Commutes {
			sign.Kind |= kindInOrder
		}
	}
	if s.inPlace {
		sign.Kind |= kindInPlace
	}
	return sign
}

// hashOf is the FNV-1a hash of a name.
func hashOf(name string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 0x100000001b3
	}
	return h
}

// stillAwaits reports whether this rank waits, in a collective, for a message of a rank of the job
// or for that rank to match one. If not, an answer of that rank to a probe is outdated, and this
// rank may probe it again.
func (t *Team) stillAwaits(from, seq int) bool {
	if t.now == seq && t.running != nil {
		t.running.meeting.poll(t.running) // the rank may have ended the wait before it answered
	}
	if t.now == seq && slices.Contains(t.awaited(), from) {
		return true
	}
	t.probedRanks = slices.DeleteFunc(t.probedRanks, func(world int) bool { return world == from })
	return false
}

// awaited lists the ranks of the job that this rank waits for in the collective now.
func (t *Team) awaited() []int {
	return append(t.p.Awaited(t.ctx, t.now), t.p.Awaited(t.ctx, t.now|watchTag)...)
}

// probed answers a probe, or keeps it.
func (t *Team) probed(pr probe) {
	from := t.group.World(pr.rank)
	switch ahead := t.ahead(pr.seq); {
	case ahead < 0:
		t.answer(from, pr.seq, Finished)
		return
	case ahead == 0:
		if ours, in := t.signature(); in {
			t.compare(pr, ours)
			return
		}
	}
	switch {
	case t.revoked != nil, t.unfit != nil:
		t.answer(from, pr.seq, Unfit)
		return
	case t.noFurther != 0:
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

// declineProbes answers the probes that this rank keeps: it will not come to these collectives.
func (t *Team) declineProbes(reason Reason) {
	probes := t.probes
	t.probes = nil
	for _, pr := range probes {
		t.answer(t.group.World(pr.rank), pr.seq, reason)
	}
}

// answerProbes compares this rank's call with the probes that have arrived before it.
func (t *Team) answerProbes() {
	if len(t.probes) == 0 {
		return
	}
	ours, _ := t.signature()
	for _, pr := range t.probes {
		if pr.seq == t.now {
			t.compare(pr, ours)
		}
	}
	t.probes = slices.DeleteFunc(t.probes, func(pr probe) bool { return t.ahead(pr.seq) <= 0 })
}

// compare revokes the collective now if another rank, which is in it, has made another call.
func (t *Team) compare(pr probe, ours Signature) {
	if pr.signature == ours {
		return
	}
	reason := Differs
	if pr.signature.Call == ours.Call && pr.signature.Root == ours.Root {
		reason = Lengths
	}
	t.revoke(&RevokedError{Rank: pr.rank, Reason: reason, Theirs: &pr.signature, Ours: &ours})
}

// Idle implements pml.Handler. It probes if the rank is in the same collective as when it was idle
// last, and has received nothing since then.
func (h handler) Idle() {
	ours, in := h.signature()
	if !in {
		return
	}
	h.running.watchSoon()
	received := h.p.Received()
	isStuck := h.idleAt == h.now && h.idleReceived == received
	h.idleAt, h.idleReceived = h.now, received
	if !isStuck {
		return
	}
	for _, world := range h.awaited() {
		if world == h.group.World(h.rank) || slices.Contains(h.probedRanks, world) {
			continue
		}
		h.probedRanks = append(h.probedRanks, world)
		b := probeBody{ours}
		h.p.SendControl(world, h.ctx.ID(), pml.ControlMismatchProbe, h.now, b.encode())
	}
}

const probeBytes = 32

// probeBody is the data of a MISMATCHPROBE:
//
//	call 8, root 8, bytes 8, kind 8
type probeBody struct{ signature Signature }

func (b *probeBody) encode() []byte {
	data := make([]byte, 0, probeBytes)
	data = binary.LittleEndian.AppendUint64(data, b.signature.Call)
	data = binary.LittleEndian.AppendUint64(data, uint64(b.signature.Root))
	data = binary.LittleEndian.AppendUint64(data, b.signature.Bytes)
	return binary.LittleEndian.AppendUint64(data, b.signature.Kind)
}

func (b *probeBody) decode(data []byte) error {
	if len(data) != probeBytes {
		return fmt.Errorf("%w: MISMATCHPROBE with %d bytes of data, not %d", errMalformed, len(data), probeBytes)
	}
	b.signature = Signature{
		Call:  binary.LittleEndian.Uint64(data),
		Root:  int64(binary.LittleEndian.Uint64(data[8:])),
		Bytes: binary.LittleEndian.Uint64(data[16:]),
		Kind:  binary.LittleEndian.Uint64(data[24:]),
	}
	return nil
}
