package pml

import (
	"slices"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/request"
)

// Unreceived is a message that has arrived and that no receive has matched.
type Unreceived struct {
	Envelope
	// Context that it belongs to, and whom that was made for.
	Context ContextID
	Caller  Caller
}

// Unreceived lists the messages that wait to be received, in the order in which they arrived
// within each context. It does so after Close too. What was taken out of matching, or
// belonged to a context that is removed, is not among them.
func (p *PML) Unreceived() []Unreceived {
	var out []Unreceived
	for _, c := range p.sortedContexts() {
		q := c.unexpected.table.find(anyKey)
		if q == nil {
			continue
		}
		for n := q.head; n != nil; n = n.next {
			out = append(out, Unreceived{Envelope: c.envelope(n.item), Context: c.id, Caller: c.caller})
		}
	}
	return out
}

// Rails lists the rails to all peers that are known, by peer.
func (p *PML) Rails() []bml.RailStatus { return p.bml.Rails() }

// mayFail reports whether what waits for a rank of the job, or for any rank of the context, may
// fail because all rails there are down.
func (c *Context) mayFail(world int) bool {
	if world != request.AnySource {
		pr := c.p.peers[world]
		return pr != nil && (pr.AwaitsPath() || pr.IsFailing())
	}
	return slices.ContainsFunc(c.group.world, c.mayFail)
}

// Contexts lists whom the contexts were made for that are not removed.
func (p *PML) Contexts() []Caller {
	var out []Caller
	for _, c := range p.sortedContexts() {
		if !c.removed {
			out = append(out, c.caller)
		}
	}
	return out
}
