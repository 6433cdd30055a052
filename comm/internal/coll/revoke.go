package coll

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/mpigo/mpigo/comm/internal/area"
	"github.com/mpigo/mpigo/pml"
)

// A rank that cannot go on with a collective revokes it: it sends a REVOKE to every other rank of
// the communicator. At a rank that has received the REVOKE the collective has failed:
//
//   - Receives that are posted for it fail, and so do later ones. So no rank waits for a rank that
//     has given up. A receive whose message is already arriving ends with that message, which still
//     uses its buffer.
//   - Messages that arrive for it are discarded, and their senders get an answer.
//
// A REVOKE is a control fragment of pml. So it stays behind earlier messages of its sender, is kept
// for a communicator that the receiver has not made yet, and survives rail failures.
//
// Messages for a finished collective are discarded, too, and the rank sends their sender a REVOKE
// with the reason Unwanted. A communicator remembers the collective that made it, because another
// rank may revoke that one later (pml/revoke.go).

// Reason is why a rank revokes a collective, or its answer to one rank. It is on the wire.
type Reason uint8

const (
	// Failed: the collective failed at the sender.
	Failed Reason = 1 + iota
	// Panicked: the operation of the sender has panicked.
	Panicked
	// Lost: the sender needs a rank that is lost, or in Finalize. The REVOKE names that rank.
	Lost
	// Refused: the sender refused the arguments of its call.
	Refused
	// Ended: the context of the sender's call has ended.
	Ended
	// Lengths: the sender got a message of the wrong length.
	Lengths
	// Differs: the call of the sender is not the call of another rank.
	Differs
	// Unfit: the sender cannot use the communicator any more.
	Unfit
	// Withdrawn: a rank that the sender waits for in a start has freed the request. The REVOKE
	// names that rank.
	Withdrawn
	// Unwanted: the sender has finished the collective without receiving a message of the REVOKE's
	// receiver.
	Unwanted
	// Finished: the sender has finished the collective, and sends nothing more in it.
	Finished
	// Freed: the sender has freed the communicator.
	Freed
	// FreedRequest: the sender has freed the request of a persistent collective.
	FreedRequest
	// Finalized: the sender is in Finalize.
	Finalized
	// NeverMade is about the whole communicator that the fragment names: it was revoked, because
	// the REVOKE's receiver gave up the collective that made it.
	NeverMade
)

var reasonTexts = [...]string{
	Failed:       "it failed there",
	Panicked:     "its operation panicked there",
	Lost:         "it is lost",
	Refused:      "its arguments were refused there",
	Ended:        "the context of its call has ended",
	Lengths:      "the lengths of the ranks' slices differ",
	Differs:      "the ranks make different calls, or with different arguments",
	Unfit:        "the communicator is unfit there",
	Withdrawn:    "it has freed the request",
	Unwanted:     "it was finished there without a message for it",
	Finished:     "it was finished there before",
	Freed:        "the communicator was freed there",
	FreedRequest: "the request was freed there",
	Finalized:    "it has called Finalize",
	NeverMade:    "the communicator was never made there",
}

func (r Reason) String() string {
	if r.isKnown() {
		return reasonTexts[r]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

func (r Reason) isKnown() bool { return r >= Failed && r <= NeverMade }

// givesUp reports whether the sender of a REVOKE has given the collective up, and so lacks what the
// collective makes. Any other REVOKE is an answer to one rank.
func (r Reason) givesUp() bool { return r <= Withdrawn }

// isDone reports whether the sender of a REVOKE has left the collective. That matters only to a
// rank that still waits for it.
func (r Reason) isDone() bool { return r >= Finished && r <= Finalized }

// RevokedError is the error of the receives of a collective that a rank has revoked.
type RevokedError struct {
	// Rank in the communicator: the one that revoked the collective, is lost (Lost), or has made
	// another call (Differs).
	Rank   int
	Reason Reason
	// Theirs and Ours are the signatures of the calls of Rank and of this rank, if this rank has
	// compared them; else nil.
	Theirs, Ours *Signature
}

func (e *RevokedError) Error() string {
	if e.Reason == Lost {
		return fmt.Sprintf("given up because rank %d is lost", e.Rank)
	}
	return fmt.Sprintf("given up by rank %d: %v", e.Rank, e.Reason)
}

var (
	errMalformed = errors.New("malformed fragment of a collective")
	errUnknown   = errors.New("control fragment of unknown kind")
)

// handler is a Team as pml sees it. The separate type hides its methods from users of Team.
type handler struct{ *Team }

var _ pml.Handler = handler{}

// ReceiveError implements pml.Handler.
func (h handler) ReceiveError(tag int) error {
	if !h.hasFailures() {
		return nil
	}
	return h.errorOf(tag &^ watchTag)
}

// Arriving implements pml.Handler.
func (h handler) Arriving(from, tag int) (keep bool, err error) {
	if err := checkTag(tag); err != nil {
		return false, err
	}
	if s := h.underWay(tag); s != nil && s.tag != tag && !s.takesAhead(tag) {
		// The rank has called another form.
		rank, _ := h.group.Rank(from)
		h.revoke(s.tag, &RevokedError{Rank: rank, Reason: Differs})
	}
	if h.isOpen(tag) {
		return true, nil
	}
	if h.isOver(tag) {
		h.answer(from, tag, Unwanted)
	} else {
		h.tellNow(from)
	}
	return false, nil
}

func checkTag(tag int) error {
	if tag >= tags {
		return fmt.Errorf("%w: tag %d", errMalformed, tag)
	}
	return nil
}

// Control implements pml.Handler.
func (h handler) Control(f pml.Control) error {
	if err := checkTag(f.Tag); err != nil {
		return err
	}
	rank, _ := h.group.Rank(f.From)
	switch f.Kind {
	case pml.ControlMismatchProbe:
		switch {
		case f.Tag < SequenceNumbers && len(f.Data) == area.SignatureBytes:
			h.probed(probe{rank: rank, seq: f.Tag, signature: decodeSignature(f.Data)})
		case formOf(f.Tag) == startForm && len(f.Data) == 0:
			h.startProbed(rank, f.Tag)
		default:
			return fmt.Errorf("%w: MISMATCHPROBE for tag %d with %d bytes of data", errMalformed, f.Tag, len(f.Data))
		}
		return nil
	case pml.ControlRevoke:
		var b revokeBody
		if err := b.decode(f.Tag, f.Data); err != nil {
			return err
		}
		return h.revokedBy(f.From, rank, f.Tag, b)
	}
	return errUnknown
}

// Revoked implements pml.Handler.
func (h handler) Revoked(err error) {
	if h.revoked == nil {
		h.revoked = err
	}
	for _, s := range h.underWayOrKept() {
		s.interrupt()
	}
	h.declineProbes(Unfit)
}

// Removed implements pml.Handler.
func (h handler) Removed() {
	h.tellAll()
	h.noFurtherCalls(Freed)
}

// Finalizing implements pml.Handler.
func (h handler) Finalizing() {
	h.tellAll()
	h.noFurtherCalls(Finalized)
}

// Uses implements pml.Handler.
func (h handler) Uses(mem []byte) bool {
	return slices.ContainsFunc(h.underWayOrKept(), func(s *Schedule) bool { return s.isRunning() && s.uses(mem) })
}

// uses reports whether a step reads or writes memory.
func (s *Schedule) uses(mem []byte) bool {
	return slices.ContainsFunc(s.steps, func(st step) bool { return Overlap(mem, st.a) || Overlap(mem, st.b) }) ||
		slices.ContainsFunc(s.meets, func(m meet) bool { return Overlap(mem, m.in) || Overlap(mem, m.out) })
}

// Orphans returns the handler of REVOKEs and mismatch probes for unknown communicators.
func Orphans(p *pml.PML) pml.OrphanHandler {
	return func(f pml.Control, freed bool) (keep bool, err error) {
		if f.Kind == pml.ControlMismatchProbe {
			if freed {
				sendRevoke(p, f.From, f.Context, f.Tag, &RevokedError{Reason: Freed})
			}
			return !freed, nil
		}
		if err := checkTag(f.Tag); err != nil {
			return false, err
		}
		var b revokeBody
		if err := b.decode(f.Tag, f.Data); err != nil {
			return false, err
		}
		if b.reason == NeverMade {
			return false, p.Disown(f.Context)
		}
		return !b.reason.givesUp() || !revokeMade(p, f.Context, b.span(f.Tag), f.From), nil
	}
}

// revokeMade handles a rank of the job that gave up the collectives of a span. It revokes the
// communicators that these made here, and sends that rank their ids. It reports whether each of the
// collectives has made one here.
func revokeMade(p *pml.PML, parent pml.ContextID, s span, from int) bool {
	if isStart(s.tag) { // a start makes none, though a later call with its number may have
		return false
	}
	made, found := p.RevokeMade(parent, s.contains, from)
	for _, id := range made {
		sendRevoke(p, from, id, 0, &RevokedError{Reason: NeverMade})
	}
	return found > s.further
}

// revokedBy handles a REVOKE. from is its sender's rank in the job.
func (t *Team) revokedBy(from, rank, tag int, b revokeBody) error {
	switch {
	case b.rank >= t.size:
		return fmt.Errorf("%w: revoked by rank %d of %d", errMalformed, b.rank, t.size)
	case b.reason == NeverMade: // this rank has the communicator: see pml.PML.Disown
		return nil
	case b.reason.givesUp():
		s := b.span(tag)
		revokeMade(t.p, t.ctx.ID(), s, from)
		if s.further > 0 {
			t.failSpan(s, &RevokedError{Rank: b.rank, Reason: b.reason})
			return nil
		}
		if formOf(tag)&^ownForm == initForm && t.kept[numberOf(tag)] != nil {
			// The Init call is over here.
			tag = numberOf(tag) + startForm
		}
	default:
		b.rank = rank
	}
	if t.isOver(tag) || b.reason.isDone() && !t.stillAwaits(from, tag) {
		return nil
	}
	if formOf(tag) == startForm && (b.reason == Unwanted || b.reason == Freed) {
		b.reason = FreedRequest // else the rank would keep the message, and the communicator
	}
	if f, isNew := t.fail(tag, &RevokedError{Rank: b.rank, Reason: b.reason}); isNew {
		t.discard(tag, f.err)
	}
	return nil
}

// Revoke gives the collective up at every rank. The caller has to give up its sends.
func (s *Schedule) Revoke(reason Reason) { s.revoke(s.team.refusal(reason)) }

func (s *Schedule) revoke(err *RevokedError) {
	tag := s.tag
	if s.check.isRunning {
		tag = s.check.tag
	}
	s.team.revoke(tag, err)
}

// revoke gives up a collective that is under way. If it has failed already, the REVOKE has the
// first error, so that all ranks name the same rank.
func (t *Team) revoke(tag int, err *RevokedError) {
	f, isNew := t.fail(tag, err)
	if f.told {
		return
	}
	f.told = true
	first, tell := f.err, *f.err
	switch tell.Reason {
	case Finished, Unwanted:
		tell.Reason = Differs
	case Freed:
		tell.Reason = Unfit
	case FreedRequest:
		tell.Reason = Withdrawn
	case Finalized:
		tell.Reason = Lost
	}
	if tell.Theirs != nil {
		tell.Rank = t.rank // it has compared the calls
	}
	for rank := range t.size {
		if world := t.group.World(rank); rank != t.rank && !t.ctx.IsRevokedFor(world) {
			t.tell(world, tag, &tell)
		}
	}
	// After the REVOKE: a rank whose message is discarded has to know the reason before the answer.
	if isNew {
		t.discard(tag, first)
	}
}

// discard fails the receives and discards the messages of a collective that has just failed.
func (t *Team) discard(tag int, err *RevokedError) {
	own := tag
	if s := t.concerned(tag); s != nil {
		own = s.tag
		t.p.FailReceives(t.ctx, own, err)
		s.interrupt()
	}
	t.p.DiscardUnexpected(t.ctx, own, t.tellNow)
	if own != tag {
		t.p.DiscardUnexpected(t.ctx, tag, t.tellNow)
	}
}

// pass removes a call that is over from those under way. It discards messages with its number, of
// every form: an Init call may have succeeded at other ranks only, and these may have started the
// collective.
func (t *Team) pass(s *Schedule) {
	t.sequence.end(s)
	if t.ctx.HasUnexpected() {
		t.discardPassed(s.seq)
	}
}

// discardPassed discards the messages of a call that is over, of any form. It keeps those of starts
// if a persistent collective, of this call or an old one, has the number.
func (t *Team) discardPassed(seq int) {
	for form := blockingForm; form < tags; form += SequenceNumbers {
		if form == startForm && t.kept[seq] != nil {
			continue
		}
		tag := seq + form
		t.p.DiscardUnexpected(t.ctx, tag, func(from int) { t.answer(from, tag, Unwanted) })
	}
}

// expireOrigins is called when the next number is a multiple of originSpan.
func (t *Team) expireOrigins() {
	t.p.ExpireOrigins(t.ctx, func(seq int) bool { return t.ahead(seq) < -originSpan })
}

// originSpan is the number of collectives of its parent after which a communicator forgets the
// collective that made it, before the sequence number is used again. No rank is that far behind:
// its window would be used up long before.
const originSpan = SequenceNumbers / 4

// Made says that the collective has made a communicator with the given contexts. This rank has just
// finished it without an error, and has held the lock since.
func (s *Schedule) Made(p2p *pml.Context, t *Team) {
	p2p.SetOrigin(s.team.ctx, s.seq)
	t.ctx.SetOrigin(s.team.ctx, s.seq)
}

// answer sends one rank of the job a REVOKE that says how far this rank is with a collective.
func (t *Team) answer(to, seq int, reason Reason) {
	t.tellNow(to)
	sendRevoke(t.p, to, t.ctx.ID(), seq, t.refusal(reason))
}

// sendRevoke sends a REVOKE to a rank of the job.
func sendRevoke(p *pml.PML, to int, id pml.ContextID, seq int, err *RevokedError) {
	b := revokeBody{rank: err.Rank, reason: err.Reason}
	p.SendControl(to, id, pml.ControlRevoke, seq, b.encode())
}

const revokeBytes = 8

// revokeBody is the data of a REVOKE:
//
//	rank 32 bits, reason 5 bits, further 27 bits
//
// The rank, in the communicator, is the first one known to have given up, or the lost one (Lost),
// so that all ranks name the same one. In an answer to one rank it is ignored: the answer is about
// its sender, which may have freed the communicator and not know its rank in it.
//
// further is how many collectives after that of the tag the sender has also given up, of any form.
// It is 0 in answers and in a REVOKE of starts.
type revokeBody struct {
	rank    int
	reason  Reason
	further int
}

const reasonBits = 5

// span is the collectives that the sender of a REVOKE has given up.
func (b *revokeBody) span(tag int) span { return span{tag, b.further, b.rank, b.reason} }

func (b *revokeBody) encode() []byte {
	v := uint64(uint32(b.rank)) | uint64(b.reason)<<32 | uint64(b.further)<<(32+reasonBits)
	return binary.LittleEndian.AppendUint64(make([]byte, 0, revokeBytes), v)
}

func (b *revokeBody) decode(tag int, data []byte) error {
	if len(data) != revokeBytes {
		return fmt.Errorf("%w: REVOKE with %d bytes of data, not %d", errMalformed, len(data), revokeBytes)
	}
	v := binary.LittleEndian.Uint64(data)
	b.rank, b.reason, b.further = int(uint32(v)), Reason(v>>32&(1<<reasonBits-1)), int(v>>(32+reasonBits))
	mayBeMore := b.reason.givesUp() && !isStart(tag)
	if !b.reason.isKnown() || b.rank > math.MaxInt32 || b.further > 0 && !mayBeMore || b.further >= SequenceNumbers/2 {
		return fmt.Errorf("%w: REVOKE with data %#x", errMalformed, v)
	}
	return nil
}
