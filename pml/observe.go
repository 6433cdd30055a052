package pml

import (
	"slices"

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

// RailStatus is how a way to a peer is.
type RailStatus struct {
	// Peer is a rank of the job, Rail the name of the rail.
	Peer int
	Rail string
	// State is "up", "failing", "down", "probing", or "closed" if the peer was lost or has left, or this rank has. First says that small
	// messages go by it.
	State string
	First bool
	// Health is from 0 to 1000: how far it, and its device at this end, are trusted since they last failed, and so its share of long
	// messages.
	Health int
	// Cause of its last failure while it was up, or why it was down from the start; nil if there was none.
	Cause error
}

// Rails lists the ways to all peers that are known, by peer.
func (p *PML) Rails() []RailStatus {
	var out []RailStatus
	for _, pr := range p.peers {
		for i := 0; pr != nil && i < len(pr.rails); i++ {
			rl := &pr.rails[i]
			state := rl.state.String()
			if pr.lost != nil || p.closed != nil {
				state = "closed"
			}
			out = append(out, RailStatus{
				Peer: pr.rank, Rail: rl.module.Attrs().Name, State: state, First: rl == pr.first, Health: int(rl.trust()), Cause: rl.mending.cause,
			})
		}
	}
	return out
}

// mayFail reports whether what waits for a rank of the job, or for any rank of the context, may
// fail because all rails there are down.
func (c *Context) mayFail(world int) bool {
	if world != request.AnySource {
		pr := c.p.peers[world]
		return pr != nil && (pr.stranded != nil || pr.isFailing())
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
