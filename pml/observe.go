package pml

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/request"
)

// Pending describes an active operation, for reports.
type Pending struct {
	// Op is the name of the call.
	Op string
	// Sends: the operation is a send.
	Sends bool
	// Context of the operation, and the caller that the context was made for.
	Context ContextID
	Caller  Caller
	// Peer is a rank of the communicator, or AnySource. Tag may be AnyTag.
	Peer, Tag int
	Bytes     int64
	// Phase of the protocol.
	Phase string
	// GoesOn: the operation completes or fails even if the peer makes no further call.
	GoesOn bool
	// Abandoned: its call has returned, or its request was freed, so no call waits for it.
	Abandoned bool
	Request   *request.Object
}

func (d Pending) String() string {
	return fmt.Sprintf("%s peer %s tag %s of %d bytes: %s", d.Op, orAny(d.Peer), orAny(d.Tag), d.Bytes, d.Phase)
}

func orAny(n int) string {
	if n == request.AnySource { // AnyTag is the same number
		return "any"
	}
	return strconv.Itoa(n)
}

// Pending lists the active operations: first sends and the receives whose message is arriving, then
// the posted receives and the probes of each context, oldest first.
func (p *PML) Pending() []Pending {
	var out []Pending
	p.sends.each(func(s *SendRequest) { out = append(out, s.pending()) })
	p.recvs.each(func(r *RecvRequest) { out = append(out, r.pending()) })
	for _, c := range p.sortedContexts() {
		for _, r := range c.posted.inOrder() {
			out = append(out, r.pending())
		}
		for _, r := range c.probes {
			out = append(out, Pending{
				Op: r.op, Context: c.id, Caller: c.caller, Peer: r.source, Tag: r.tag, Phase: "probing",
				GoesOn: c.mayFail(c.world(r.source)), Request: &r.Object,
			})
		}
	}
	return out
}

// mayFail reports whether an operation that waits for a rank of the job, or for any rank of the
// context, may fail because all rails to that rank are down.
func (c *Context) mayFail(world int) bool {
	if world != request.AnySource {
		pr := c.p.peers[world]
		return pr != nil && (pr.AwaitsPath() || pr.IsFailing())
	}
	return slices.ContainsFunc(c.group.world, c.mayFail)
}

// Unreceived is a message that has arrived and that no receive has matched.
type Unreceived struct {
	Envelope
	// Context of the message, and the caller that the context was made for.
	Context ContextID
	Caller  Caller
}

// Unreceived lists the unexpected messages of each context, in the order of arrival. It also works
// after Close. It leaves out messages that a matched probe took, and messages of removed contexts.
func (p *PML) Unreceived() []Unreceived {
	var out []Unreceived
	for _, c := range p.sortedContexts() {
		out = append(out, p.UnreceivedIn(c)...)
	}
	return out
}

// UnreceivedIn is Unreceived for one context. The list is empty after the context was freed.
func (p *PML) UnreceivedIn(c *Context) (out []Unreceived) {
	if p.contexts[c.id] != c {
		return nil
	}
	for m := range c.unexpected.all() {
		out = append(out, Unreceived{Envelope: c.envelope(m), Context: c.id, Caller: c.caller})
	}
	return out
}

// Contexts lists the callers for which the contexts were made, except removed contexts.
func (p *PML) Contexts() []Caller {
	var out []Caller
	for _, c := range p.sortedContexts() {
		if !c.removed {
			out = append(out, c.caller)
		}
	}
	return out
}

// Rails lists the rails to all known peers, by peer. Inline sends count for the rail that took
// them, even after it has failed.
func (p *PML) Rails() []bml.RailStatus {
	list := p.bml.Rails()
	for i := range list {
		if i > 0 && list[i].Peer == list[i-1].Peer {
			continue
		}
		pr := p.peers[list[i].Peer]
		list[i+pr.InlineRail()].Bytes += pr.inlineBytes() + int64(pr.Inlined())*matchBytes
	}
	return list
}

// Channels lists the peers that numbered fragments were exchanged with.
func (p *PML) Channels() []bml.Channel { return p.bml.Channels() }
