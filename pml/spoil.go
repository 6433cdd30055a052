package pml

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// In a context for collectives each collective has a tag of its own, and is called a round here. The
// tags go up by one from round to round, at every rank alike. No receive there has a wildcard.
//
// A rank that cannot go on with a round spoils it: it tells every other rank of the context by a
// SPOIL. At a rank that knows of it the round is dead: the receives that are posted for it, and
// those that are posted later, fail at once; what arrives for it is discarded, and
// its sender answered. So nobody waits for a rank that has given up, whatever it waits for. A receive
// whose message is arriving already ends as ever, when it is here: until then its buffer is not
// the user's. A SPOIL is numbered as messages are: it does not overtake what was sent before it, it is kept for
// a communicator that is still being made, and whatever resends messages resends it.
//
// A round is over at a rank once it has gone on to the next one. Nothing of it is remembered: that its tag is lower
// says all, since nobody will receive anything under it again. Messages for it that are here, or still
// come, are discarded, and their sender is told. So only rounds to come have to be remembered
// as dead, and there is a bound on them. The communicator that a round made remembers it, in case
// another rank gives the round up later (revoke.go).

// CollectiveTags is how many rounds later a tag comes again. A tag is behind another one if it is
// so by less than half of that.
const CollectiveTags = 1 << 30

// maxDead bounds what is remembered of dead rounds. A rank that is farther behind takes all rounds
// between the first and the last of them for dead: who gives up too much makes others fail, but
// nobody wait.
const maxDead = 256

// Signature is what the calls of a collective have in common at all ranks. Those with equal ones follow
// one schedule.
type Signature struct {
	Call  uint64 // which one
	Root  int64
	Bytes uint64
	Kind  uint64 // all else
}

// Collective is whose collectives a context is for.
type Collective interface {
	// Signature of the one that this rank is in; false if it is in none.
	Signature() (Signature, bool)
	// Uses reports whether it uses some of mem.
	Uses(mem []byte) bool
	// GivenUp says that the one that this rank is in is dead.
	GivenUp()
}

// Why a round was given up.
type Why uint8

const (
	// Failed there.
	Failed Why = 1 + iota
	// Lost a rank that it needs.
	Lost
	// Refused its arguments.
	Refused
	// Lengths are not those of another rank.
	Lengths
	// Differs: the call is not that of another rank.
	Differs
	// Unfit: the communicator cannot be used there any more.
	Unfit
	// Unwanted: the round was finished there, and a message of the other rank was not received.
	Unwanted
	// Over: the round was finished there, and nothing more is sent.
	Over
	// Freed: the communicator was freed there.
	Freed
	// Finalized: the rank is in Finalize.
	Finalized
	// Revoked is about the whole communicator: this rank gave up the collective that made it.
	Revoked
)

var whyNames = [...]string{
	Failed:   "it failed there",
	Lost:     "a rank that it needs there is gone",
	Refused:  "its arguments were refused there",
	Lengths:  "the lengths of its slices and of another rank's differ",
	Differs:  "its arguments and another rank's differ",
	Unfit:    "the communicator is unfit there",
	Unwanted: "it was finished there without a message for it",
	Over:     "it was finished there before",

	Freed:     "the communicator was freed there",
	Finalized: "it has called Finalize",
	Revoked:   "the communicator was never made there",
}

func (w Why) String() string {
	if w.known() {
		return whyNames[w]
	}
	return fmt.Sprintf("reason %d", uint8(w))
}

func (w Why) known() bool { return w >= Failed && w <= Revoked }

// isGivenUp reports whether the sender of a SPOIL has given the round up, and has nothing of what
// it was to make. Any other SPOIL is an answer to one rank, and says what the round, or the
// communicator, is to its sender.
func (w Why) isGivenUp() bool { return w <= Unfit }

// isDone reports whether the sender of a SPOIL sends and receives nothing more in the round. That
// matters only to a rank that still waits for it.
func (w Why) isDone() bool { return w >= Over && w <= Finalized }

// SpoiledError is what the receives of a dead round end with.
type SpoiledError struct {
	// Rank that gave up, or that this rank's arguments are not those of.
	Rank int
	Why  Why
	// Theirs is the signature of that rank, and Ours this one's, if they differ and that was noticed here.
	Theirs, Ours *Signature
}

func (e *SpoiledError) Error() string { return fmt.Sprintf("given up by rank %d: %v", e.Rank, e.Why) }

// rounds is what a context for collectives knows of them.
type rounds struct {
	collective Collective
	now        int         // the round that this rank is in, or comes to next; those behind are over
	dead       []deadRound // none behind now
	asks       []ask       // of ranks that were there before this one, one a rank at most
	asked      []int       // in the round now, by world rank
	unfit      bool        // set by MarkUnfit
	// Where this rank stood when it was idle last.
	idleIn       int
	idleReceived uint64
}

// deadRound is one of them, or several in a row.
type deadRound struct {
	first, last int
	err         *SpoiledError
	told        bool // to all, by this rank
}

// AddCollectiveContext is AddContext of a context for collectives. The first round has tag 0.
func (p *PML) AddCollectiveContext(id ContextID, group *Group, rank int, caller Caller, collective Collective) *Context {
	return p.addContext(&Context{
		p: p, id: id, group: group, rank: rank, caller: caller,
		rounds: &rounds{collective: collective, idleIn: -1},
	})
}

// ahead is how far the round with a tag is ahead of now; negative if it is over.
func (r *rounds) ahead(tag int) int {
	const unused = 2 // bits
	return int(int32(uint32(tag-r.now)<<unused) >> unused)
}

// find is the dead round with a tag, or nil.
func (r *rounds) find(tag int) *deadRound {
	a := r.ahead(tag)
	for i := range r.dead {
		if d := &r.dead[i]; r.ahead(d.first) <= a && a <= r.ahead(d.last) {
			return d
		}
	}
	return nil
}

// open reports whether messages for the round with a tag may still be received.
func (r *rounds) open(tag int) bool {
	return tag < CollectiveTags && r.ahead(tag) >= 0 && (len(r.dead) == 0 || r.find(tag) == nil)
}

// kill makes a round dead, if it is not. It is not over.
func (r *rounds) kill(tag int, err *SpoiledError) (d *deadRound, isNew bool) {
	if d := r.find(tag); d != nil {
		return d, false
	}
	whole := deadRound{first: tag, last: tag, err: err}
	if len(r.dead) == maxDead {
		for i := range r.dead {
			if d := &r.dead[i]; r.ahead(d.first) < r.ahead(whole.first) {
				whole.first = d.first
			}
			if d := &r.dead[i]; r.ahead(d.last) > r.ahead(whole.last) {
				whole.last = d.last
			}
		}
		r.dead = r.dead[:0]
	}
	r.dead = append(r.dead, whole)
	return &r.dead[len(r.dead)-1], true
}

// spoiled is why receives with a tag must fail, or nil.
func (c *Context) spoiled(tag int) error {
	if c.rounds == nil || len(c.rounds.dead)|len(c.revoked) == 0 {
		return nil
	}
	return c.cause(tag)
}

// cause is the error of the round with a tag of a context for collectives, nil if it may go on.
func (c *Context) cause(tag int) error {
	if len(c.revoked) > 0 {
		return c.revoked[0].err
	}
	return c.rounds.cause(tag)
}

// isOpen reports whether a message under a tag may still be received.
func (c *Context) isOpen(tag int) bool {
	return c.rounds == nil || len(c.revoked) == 0 && c.rounds.open(tag)
}

// cause is the error of the round with a tag, nil if it is not dead.
func (r *rounds) cause(tag int) error {
	if d := r.find(tag); d != nil {
		return d.err
	}
	return nil
}

// Enter begins the round now. Its error, a *SpoiledError or a *RevokedError, says that there is no
// use in that; the caller spoils it then.
func (p *PML) Enter(c *Context) error {
	if len(c.rounds.asks)|len(c.rounds.dead)|len(c.revoked) == 0 {
		return nil
	}
	return p.enter(c)
}

func (p *PML) enter(c *Context) error {
	p.answerAsks(c)
	return p.Spoiled(c)
}

// Spoiled is the *SpoiledError of the round now, or the *RevokedError of the context; nil if the
// round may go on.
func (p *PML) Spoiled(c *Context) error {
	if len(c.rounds.dead)|len(c.revoked) == 0 {
		return nil
	}
	return c.cause(c.rounds.now)
}

// Spoil gives the round now up. Its sends are the caller's to give up.
func (p *PML) Spoil(c *Context, why Why) { p.spoil(c, &SpoiledError{Rank: c.rank, Why: why}) }

func (p *PML) spoil(c *Context, err *SpoiledError) {
	tag := c.rounds.now
	d, isNew := c.rounds.kill(tag, err)
	if d.told {
		return
	}
	if d.first == d.last { // of several, each is told when this rank comes to it
		d.told = true
	}
	tell := *d.err
	switch tell.Why {
	case Over, Unwanted:
		tell.Why = Differs
	case Freed:
		tell.Why = Unfit
	case Finalized:
		tell.Why, tell.Rank = Lost, c.rank
	}
	if tell.Theirs != nil {
		tell.Rank = c.rank // who has noticed
	}
	dead := d.err
	for rank, world := range c.group.world {
		if rank != c.rank && (len(c.revoked) == 0 || c.revokedFor(world) == nil) {
			p.sendSpoil(p.peer(world), c.id, tag, &tell)
		}
	}
	// After that, so that whoever learns that its message is not wanted knows why.
	if isNew {
		p.bury(c, tag, dead)
	}
}

// bury ends what there is of a round that has just died.
func (p *PML) bury(c *Context, tag int, err *SpoiledError) {
	if tag == c.rounds.now {
		p.settleDirect()
		for _, r := range c.posted.inOrder() {
			if r.tag == tag && r.state == recvPosted {
				c.posted.remove(r)
				r.finish(err)
			}
		}
		c.rounds.collective.GivenUp()
	}
	c.drop(keyOf(request.AnySource, tag))
}

// Pass goes on to the round with a tag: all before it are over. It is now, if the round did not
// count, or the one after it.
func (p *PML) Pass(c *Context, tag int) {
	over := c.rounds.now
	c.rounds.now = tag
	if tag%originSpan == 0 {
		p.expireOrigins(c)
	}
	if c.unexpected.count|len(c.rounds.dead)|len(c.rounds.asked) != 0 {
		p.tidy(c, over)
	}
}

// tidy forgets the round that was now, if it is over.
func (p *PML) tidy(c *Context, over int) {
	r := c.rounds
	if r.now == over {
		return
	}
	r.asked = r.asked[:0]
	r.dead = slices.DeleteFunc(r.dead, func(d deadRound) bool { return r.ahead(d.last) < 0 })
	key := keyOf(request.AnySource, over)
	for m := c.unexpected.oldest(key); m != nil; m = c.unexpected.oldest(key) {
		p.answerRound(c, p.peer(m.source), over, Unwanted)
		c.refuse(m)
	}
}

// turnAway discards a message for a round that is over or dead.
func (p *PML) turnAway(c *Context, pr *peer, in *incoming, bytes int) error {
	if in.tag >= CollectiveTags {
		return fmt.Errorf("%w: tag %d of a collective", errMalformed, in.tag)
	}
	if c.rounds.ahead(int(in.tag)) < 0 {
		p.answerRound(c, pr, int(in.tag), Unwanted)
	}
	p.discard(pr, &in.announcement, bytes, false)
	return nil
}

// ofRound takes a SPOIL or an ASK.
func (p *PML) ofRound(c *Context, pr *peer, in *incoming, data []byte) error {
	r := c.rounds
	rank, member := c.group.Rank(pr.Rank())
	switch {
	case r == nil:
		return errNoCollectives
	case !member:
		return errNotMember
	case in.tag >= CollectiveTags:
		return fmt.Errorf("%w: tag %d of a collective", errMalformed, in.tag)
	}
	tag := int(in.tag)
	if in.kind == tagAsk {
		var h signHdr
		if err := h.decode(data); err != nil {
			return err
		}
		p.wasAsked(c, pr, ask{rank: rank, tag: tag, sign: h.sign})
		return nil
	}
	var h spoilHdr
	if err := h.decode(data); err != nil {
		return err
	}
	switch {
	case h.rank >= c.group.Size():
		return fmt.Errorf("%w: given up by rank %d of %d", errMalformed, h.rank, c.group.Size())
	case h.why == Revoked: // as for disown
		return nil
	case h.why.isGivenUp():
		p.revokeMade(origin{c.id, tag}, pr)
	default:
		h.rank = rank
	}
	if r.ahead(tag) < 0 || h.why.isDone() && !p.stillAwaits(c, pr, tag) {
		return nil
	}
	if d, isNew := r.kill(tag, &SpoiledError{Rank: h.rank, Why: h.why}); isNew {
		p.bury(c, tag, d.err)
	}
	return nil
}

// ofUnknown takes a SPOIL for a context that this rank does not have, and reports whether there is
// nothing more to do about it.
func (p *PML) ofUnknown(pr *peer, in *incoming, data []byte) (done bool, err error) {
	var h spoilHdr
	if err := h.decode(data); err != nil {
		return false, err
	}
	switch {
	case in.tag >= CollectiveTags:
		return false, fmt.Errorf("%w: tag %d of a collective", errMalformed, in.tag)
	case h.why == Revoked:
		return true, p.disown(in.context)
	}
	return h.why.isGivenUp() && p.revokeMade(origin{in.context, int(in.tag)}, pr), nil
}

// answerRound tells one rank what a round is to this one.
func (p *PML) answerRound(c *Context, pr *peer, tag int, why Why) {
	p.sendSpoil(pr, c.id, tag, &SpoiledError{Rank: c.rank, Why: why})
}

// sendSpoil tells one rank, unless the whole job has ended, which says why itself.
func (p *PML) sendSpoil(pr *peer, id ContextID, tag int, err *SpoiledError) {
	if p.eng.Stopped() != nil {
		return
	}
	h := spoilHdr{rank: err.Rank, why: err.Why}
	op := p.noticeOp(tagSpoil, spoilBytes, id, tag)
	h.encode(op.Hdr[matchBytes:])
	p.send(pr, op)
}

// noticeOp makes a numbered fragment that is no message.
func (p *PML) noticeOp(kind btl.Tag, bytes int, id ContextID, tag int) *bml.Op {
	op := p.answerOp(kind, bytes)
	h := matchHdr{context: id, tag: int32(tag)}
	h.encode(op.Hdr[:])
	return op
}

var errNoCollectives = errors.New("about a collective, where there are none")

const (
	spoilBytes = matchBytes + 8
	askBytes   = matchBytes + 32
)

// spoilHdr is what follows the MATCH header in a SPOIL. The rank is that of the context that gave
// up first, as far as the sender knows, so that all ranks name the same one. An answer to one rank
// is about its sender, and its rank is not looked at: for a communicator that it has freed the
// sender does not know it.
type spoilHdr struct {
	rank int
	why  Why
}

func (h *spoilHdr) encode(b []byte) {
	binary.LittleEndian.PutUint64(b, uint64(uint32(h.rank))|uint64(h.why)<<32)
}

func (h *spoilHdr) decode(b []byte) error {
	if len(b) != spoilBytes-matchBytes {
		return fmt.Errorf("%w: spoil of %d bytes", errMalformed, matchBytes+len(b))
	}
	v := binary.LittleEndian.Uint64(b)
	h.rank, h.why = int(uint32(v)), Why(v>>32)
	if !h.why.known() || v>>40 != 0 || h.rank > math.MaxInt32 {
		return fmt.Errorf("%w: spoil %#x", errMalformed, v)
	}
	return nil
}
