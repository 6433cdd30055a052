package pml

import (
	"errors"
	"slices"
	"time"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// A layer above pml (comm/internal/coll, the collectives) may control a context. That layer passes
// a Handler when it makes the context, and exchanges control fragments with the same layer at other
// ranks. pml does not interpret a control fragment. It guarantees that a control fragment
//
//   - arrives once, and in order with the messages of its sender, because it is numbered like them,
//     and resent like them when a rail fails;
//   - is kept for a context that its receiver has not made yet, like a message;
//   - is not limited by the window of its receiver. At most maxNotices of one sender are kept.
//
// A context without a handler costs one comparison with nil for each receive that is posted.
//
// pml calls handlers with the engine's lock held. A handler may call every function of this file,
// but does not wait.

// ControlKind is the kind of a control fragment. It is also the kind of the fragment on the wire.
type ControlKind btl.Tag

const (
	// ControlRevoke has 8 bytes of data. It arrives even if every rail refuses it, because a NACK
	// can contain all of it.
	ControlRevoke = ControlKind(tagRevoke)
	// ControlMismatchProbe has up to 32 bytes of data.
	ControlMismatchProbe = ControlKind(tagMismatchProbe)
	// ControlInvite has up to 32 bytes of data. If every rail refuses it, the receiver declares its
	// sender lost, because the receiver cannot learn of the invitation otherwise.
	ControlInvite = ControlKind(tagInvite)
)

// maxControlBytes is the largest length of the data of a control fragment.
const maxControlBytes = 32

// Control is a control fragment.
type Control struct {
	Kind    ControlKind
	Context ContextID
	Tag     int
	From    int    // rank in the job of the sender
	Data    []byte // valid only during the call of the handler
}

// Handler is the layer above pml that controls a context.
type Handler interface {
	// ReceiveError returns the error with which a receive under a tag ends, or nil if the receive
	// may be posted. pml does not call it if the message has already arrived.
	ReceiveError(tag int) error
	// Arriving reports whether to keep a message, from a rank of the job, that no posted receive
	// matches. pml discards a message that is not kept, and answers its sender. An error means that
	// no correct peer sends such a message: the peer is then lost.
	Arriving(from, tag int) (keep bool, err error)
	// Control handles a control fragment of a member of the context. An error means that no correct
	// peer sends such a fragment: the peer is then lost.
	Control(f Control) error
	// Idle is called each time the rank is about to sleep, and periodically if it never sleeps.
	Idle()
	// Revoked is called when the communicator is revoked (revoke.go), after the receives that were
	// posted in the context have failed with err, and before its unexpected messages are discarded.
	// It may be called several times.
	Revoked(err error)
	// Removed is called when the owner of the context has removed it.
	Removed()
	// Finalizing is called when the rank is in Finalize.
	Finalizing()
	// Uses reports whether an operation of the handler that is under way uses some of mem.
	Uses(mem []byte) bool
}

// OrphanHandler takes a control fragment for a context that this rank does not have. freed reports
// that the rank had the context, or will never have it. With keep, pml keeps the fragment for the
// context's handler until the context is made; keep has no effect if freed. An error means that no
// correct peer sends such a fragment.
type OrphanHandler func(f Control, freed bool) (keep bool, err error)

var errNoHandler = errors.New("a control fragment for a context that has no handler")

// OnOrphan sets the handler of control fragments for contexts that this rank does not have. It is
// called before the first fragment can arrive.
func (p *PML) OnOrphan(f OrphanHandler) { p.orphans = f }

// AddControlledContext is AddContext for a context with a handler. It calls newHandler first,
// because it passes fragments that have already arrived to the handler before it returns.
func (p *PML) AddControlledContext(id ContextID, group *Group, rank int, caller Caller, newHandler func(c *Context) Handler) *Context {
	c := &Context{p: p, id: id, group: group, rank: rank, caller: caller}
	c.handler = newHandler(c)
	p.controlled.add(c)
	return p.addContext(c)
}

// ID is the id of the context.
func (c *Context) ID() ContextID { return c.id }

// controlOf returns a control fragment in the form for its handler.
func controlOf(pr *peer, in *incoming, data []byte) Control {
	return Control{Kind: ControlKind(in.kind), Context: in.context, Tag: int(in.tag), From: pr.Rank(), Data: data}
}

// deliverControl gives a control fragment to the handler of its context.
func (p *PML) deliverControl(c *Context, pr *peer, in *incoming, data []byte) error {
	if c.handler == nil {
		return errNoHandler
	}
	if _, member := c.group.Rank(pr.Rank()); !member {
		return errNotMember
	}
	return c.handler.Control(controlOf(pr, in, data))
}

// deliverOrphan gives a control fragment for a context that this rank does not have to the
// OrphanHandler, and reports whether the fragment is kept until the context is made.
func (p *PML) deliverOrphan(pr *peer, in *incoming, data []byte) (keep bool, err error) {
	freed := !p.isToCome(in.context)
	if p.orphans == nil {
		return !freed, nil
	}
	keep, err = p.orphans(controlOf(pr, in, data), freed)
	return keep && !freed, err
}

// receiveError returns the error with which a receive under a tag ends, or nil if it may be posted.
func (c *Context) receiveError(tag int) error {
	if c.handler == nil {
		return nil
	}
	return c.handler.ReceiveError(tag)
}

// SendControl sends a control fragment to a rank of the job. It sends nothing when the whole job
// has ended, because each rank learns the reason by itself.
func (p *PML) SendControl(to int, id ContextID, kind ControlKind, tag int, data []byte) {
	p.SendControlThen(to, id, kind, tag, data, nil)
}

// SendControlThen is SendControl, and calls then, if not nil, when the fragment is delivered or the
// peer is lost, perhaps before it returns. It does not call then when the whole job has ended.
func (p *PML) SendControlThen(to int, id ContextID, kind ControlKind, tag int, data []byte, then func()) {
	if p.eng.Stopped() != nil {
		return
	}
	pr := p.peer(to)
	op := p.noticeOp(btl.Tag(kind), matchBytes+len(data), id, tag)
	copy(op.Hdr[matchBytes:matchBytes+maxControlBytes], data)
	if then != nil {
		op.Request = then
	}
	p.send(pr, op)
}

// FailReceives ends the receives that are posted under a tag with err. A receive whose message is
// arriving already ends with that message, as its buffer belongs to the library until then.
func (p *PML) FailReceives(c *Context, tag int, err error) {
	p.postBlocking()
	c.failPosted(func(r *RecvRequest) bool { return r.tag == tag }, err)
}

// DiscardUnexpected discards the messages that have arrived under a tag and have not been received,
// and answers their senders. before, if not nil, is called with the sender's rank in the job before
// each answer.
func (p *PML) DiscardUnexpected(c *Context, tag int, before func(from int)) {
	c.rejectUnexpected(keyOf(request.AnySource, tag), before)
}

// DiscardUnexpectedOf is DiscardUnexpected for several tags.
func (p *PML) DiscardUnexpectedOf(c *Context, isIt func(tag int) bool, before func(from int)) {
	var list []*message
	for m := range c.unexpected.all() {
		if isIt(int(m.tag)) {
			list = append(list, m)
		}
	}
	for _, m := range list {
		before(m.source)
		p.rejectUnexpected(&c.unexpected, m, discarded)
	}
}

// HasUnexpected reports whether messages have arrived in the context that were not received.
func (c *Context) HasUnexpected() bool { return c.unexpected.count > 0 }

// Awaited lists the ranks of the job that this rank waits for under a tag: the sources of posted
// receives, and the ranks that have not matched a send. A rank may be listed several times.
func (p *PML) Awaited(c *Context, tag int) []int {
	var awaited []int
	for _, r := range c.posted.inOrder() {
		if r.tag == tag {
			awaited = append(awaited, r.world)
		}
	}
	p.sends.each(func(s *SendRequest) {
		if s.ctx == c && s.tag == tag && s.AwaitsMatch() {
			awaited = append(awaited, s.peer.Rank())
		}
	})
	return awaited
}

// A rank that does not sleep counts as idle after idleNanos. It reads the clock only every
// idleTurns turns of progress. The time of these depends on the load of the rank and the host.
const (
	idleTurns = 1 << 10
	idleNanos = int64(20 * time.Millisecond)
	longAgo   = -idleNanos // more than idleNanos before any time of the engine
)

// maybeIdle calls idle if it is time for that.
func (p *PML) maybeIdle() {
	now := p.eng.Now()
	if now-p.idleAt < idleNanos {
		p.turnsUntilIdle = idleTurns
		return
	}
	p.idleAt = now
	p.idle()
}

// idle tells the handlers that the rank is about to sleep.
func (p *PML) idle() {
	p.turnsUntilIdle = idleTurns
	for i := 0; i < len(p.controlled.list); i++ { // a handler may send, and so free a context
		if c := p.controlled.list[i]; c != nil {
			c.handler.Idle()
		}
	}
}

// controlled lists the contexts with a handler in the order of their creation, which is the same in
// each run. A removed context leaves a gap, because thousands may be removed one after the other.
type controlled struct {
	list []*Context // nil: a gap
	gaps int
}

func (l *controlled) add(c *Context) {
	if l.gaps > len(l.list)/2 {
		l.list = slices.DeleteFunc(l.list, func(c *Context) bool { return c == nil })
		l.gaps = 0
		for i, c := range l.list {
			c.place = i
		}
	}
	c.place = len(l.list)
	l.list = append(l.list, c)
}

func (l *controlled) remove(c *Context) {
	l.list[c.place] = nil
	l.gaps++
}

// noticeOp makes a numbered fragment that has the header of a MATCH but is not matched. The header
// is followed by room for data, which the caller fills in. bytes is the length of both.
func (p *PML) noticeOp(kind btl.Tag, bytes int, id ContextID, tag int) *bml.Op {
	op := p.answerOp(kind, bytes)
	h := matchHdr{context: id, tag: int32(tag)}
	h.encode(op.Hdr[:])
	return op
}
