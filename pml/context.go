package pml

import (
	"cmp"
	"slices"

	"github.com/mpigo/mpigo/request"
)

// Group maps the ranks of a communicator to those of the job. It does not change, and may be
// shared.
type Group struct {
	world []int
	rank  map[int]int // by rank in the job; nil if the ranks are the same
}

// NewGroup makes a group of ranks of the job, in the order of their ranks in the communicator. It
// keeps the slice.
func NewGroup(world []int) *Group {
	g := &Group{world: world}
	for r, w := range world {
		if r != w {
			g.rank = make(map[int]int, len(world))
			for r, w := range world {
				g.rank[w] = r
			}
			break
		}
	}
	return g
}

// Size is the number of ranks.
func (g *Group) Size() int { return len(g.world) }

// World returns the rank in the job of a rank of the group.
func (g *Group) World(rank int) int { return g.world[rank] }

// Rank returns the rank in the group of a rank of the job.
func (g *Group) Rank(world int) (rank int, ok bool) {
	if g.rank == nil {
		return world, world < len(g.world)
	}
	rank, ok = g.rank[world]
	return rank, ok
}

// Caller is the owner of a context, a communicator of the layer above.
type Caller interface {
	// Describe wraps the error of an operation. peer is a rank of the communicator.
	Describe(op string, peer, tag int, err error) error
}

// Context is a matching space: a message sent in one is never received in another.
type Context struct {
	p  *PML
	id ContextID
	// firstWord is the first word of the header of a MATCH in this context.
	firstWord uint64
	group     *Group
	rank      int
	caller    Caller
	// revoked lists the ranks that gave up the collective that made the communicator (revoke.go).
	revoked []revocation
	origin  origin

	posted     posted
	unexpected unexpected
	probes     []*ProbeRequest // waiting, oldest first
	persistent int             // persistent receives, active or not
	removed    bool            // by its owner; freed once nothing can be received in it any more
	handler    Handler         // nil if no layer above controls the context (control.go)
	place      int             // in PML.controlled, if there is a handler
}

// AddContext makes a matching space. Messages that arrived for it before can be received. rank is
// the rank of this process in the group.
func (p *PML) AddContext(id ContextID, group *Group, rank int, caller Caller) *Context {
	return p.addContext(&Context{p: p, id: id, group: group, rank: rank, caller: caller})
}

func (p *PML) addContext(c *Context) *Context {
	id := c.id
	c.firstWord = matchFirst(id)
	c.posted.init()
	c.unexpected.init()
	p.contexts[id] = c
	p.recent[id%16] = c
	p.ids.made(id)
	p.deliverEarlyContext(c)
	return c
}

// RemoveContext frees a matching space as soon as no receive is posted in it and no persistent
// receive exists. Messages that were not received, and messages that arrive later, are then
// rejected, and their senders get an error. RemoveContext also notifies the handler of the context.
func (p *PML) RemoveContext(c *Context) {
	c.p.postBlocking() // it goes on like any other receive
	c.removed = true
	c.failProbes(request.ErrRequest)
	if c.handler != nil {
		c.handler.Removed()
	}
	c.freeIfUnused()
}

// freeIfUnused frees a removed context if nothing can be received in it any more.
func (c *Context) freeIfUnused() {
	if !c.removed || c.posted.count > 0 || c.persistent > 0 || c.p.contexts[c.id] != c {
		return
	}
	delete(c.p.contexts, c.id)
	if c.handler != nil {
		c.p.controlled.remove(c)
	}
	if slot := &c.p.recent[c.id%16]; *slot == c {
		*slot = nil
	}
	c.rejectUnexpected(anyKey, nil)
}

// rejectUnexpected rejects the unexpected messages under a key. before, if not nil, is called with
// the sender's rank in the job before each answer.
func (c *Context) rejectUnexpected(key matchKey, before func(from int)) {
	if c.unexpected.count == 0 {
		return
	}
	why := int64(discarded)
	if c.removed {
		why = freed
	}
	for m := c.unexpected.oldest(key); m != nil; m = c.unexpected.oldest(key) {
		if before != nil {
			before(m.source)
		}
		c.p.rejectUnexpected(&c.unexpected, m, why)
	}
}

// failPosted ends the posted receives that match with err.
func (c *Context) failPosted(matches func(r *RecvRequest) bool, err error) {
	for _, r := range c.posted.inOrder() {
		if r.state == recvPosted && matches(r) {
			c.posted.remove(r)
			r.finish(err)
		}
	}
}

// world returns the rank in the job of a source. A wildcard or ProcNull is unchanged.
func (c *Context) world(source int) int {
	if source >= 0 {
		source = c.group.world[source]
	}
	return source
}

// context returns the context with an id, or nil.
func (p *PML) context(id ContextID) *Context {
	slot := &p.recent[id%16]
	if c := *slot; c != nil && c.id == id {
		return c
	}
	c := p.contexts[id]
	if c != nil {
		*slot = c
	}
	return c
}

// sortedContexts lists the contexts by id. The order of a map would change from run to run.
func (p *PML) sortedContexts() []*Context {
	all := make([]*Context, 0, len(p.contexts))
	for _, c := range p.contexts {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *Context) int { return cmp.Compare(a.id, b.id) })
	return all
}
