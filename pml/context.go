package pml

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/mpigo/mpigo/request"
)

// ContextID names a matching space in the whole job. It has 48 bits: the rank in the job of its
// maker, in as many bits as the size of the job needs, then a counter of that rank, and in the
// lowest bit whether it is for collectives. No rank uses an id twice, so a fragment with an id
// belongs to the one communicator that ever had it.
//
// Each Dup and Split takes one id, and fails if its rank has none left. A Dup gathers 56 bytes from
// each rank. At 10 GB/s and 1 µs for each step of the exchange, a job that does nothing but Dup
// uses up the ids after:
//
//	   ranks  counter  time of a Dup  ids last
//	       2  46 bits          1 µs     2 years
//	      64  41 bits          6 µs    150 days
//	   1,024  37 bits         14 µs     22 days
//	  65,536  31 bits        280 µs      7 days
//	1 << 20   27 bits          4 ms      6 days
type ContextID uint64

const (
	// WorldContext is the context of the communicator of all ranks.
	WorldContext ContextID = 0
	// SetupContext is a context of all ranks that has no messages. In it ranks agree on the
	// communicators that only their members make.
	SetupContext ContextID = 2
	// NoContext is no context: the maker has no ids left.
	NoContext ContextID = 1<<64 - 1

	contextBits = 48
	// reservedCounter is the last counter that NewContextID does not use.
	reservedCounter = uint64(SetupContext) >> 1
)

// counterBits is the size of the counter in the context ids of a job of so many ranks.
func counterBits(ranks int) int { return contextBits - 1 - bits.Len(uint(ranks-1)) }

var (
	errContextID = errors.New("invalid context id")
	errNoContext = errors.New("context ids exhausted")
)

// Collective is the id that collectives in the same communicator use.
func (id ContextID) Collective() ContextID { return id | 1 }

// NewContextID returns an id that no communicator of the job has had, or NoContext if this rank has
// none left.
func (p *PML) NewContextID() ContextID {
	n := counterBits(p.cfg.Size)
	if p.lastID == 1<<n-1 {
		return NoContext
	}
	p.lastID++
	return ContextID(uint64(p.cfg.Rank)<<(n+1) | p.lastID<<1)
}

// IsFreed reports whether this rank had a communicator with an id, and has freed it, or whether it
// will never have it. It is only known of those that were freed last.
func (p *PML) IsFreed(id ContextID) bool {
	if c := p.contexts[id]; c != nil {
		return c.removed
	}
	return p.recentlyFreed.has(id)
}

// CheckNewContext checks an id for a new communicator that came over the wire. maker is the rank of
// the job that got it from NewContextID.
func (p *PML) CheckNewContext(id ContextID, maker int) error {
	twin := id.Collective()
	switch {
	case id == NoContext:
		return fmt.Errorf("%w: rank %d has made all of its %d", errNoContext, maker, uint64(1)<<counterBits(p.cfg.Size)-1-reservedCounter)
	case id>>(counterBits(p.cfg.Size)+1) != ContextID(maker):
		return fmt.Errorf("%w %#x: not of rank %d", errContextID, uint64(id), maker)
	case id == twin:
		return fmt.Errorf("%w %#x of rank %d: for collectives", errContextID, uint64(id), maker)
	case p.contexts[id] != nil || p.contexts[twin] != nil:
		return fmt.Errorf("%w %#x of rank %d: in use", errContextID, uint64(id), maker)
	case p.recentlyFreed.has(id) || p.recentlyFreed.has(twin):
		return fmt.Errorf("%w %#x of rank %d: used before", errContextID, uint64(id), maker)
	}
	return nil
}

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

// Context is a matching space: messages of one are never received in another.
type Context struct {
	p  *PML
	id ContextID
	// firstWord is the first word of the header of a MATCH in this context.
	firstWord uint64
	group     *Group
	rank      int
	caller    Caller
	// revoked lists the ranks that gave up the collective which made the communicator (revoke.go).
	revoked []revocation
	origin  origin

	posted     posted
	unexpected unexpected
	probes     []*ProbeRequest // waiting, oldest first
	persistent int             // persistent receives, active or not
	removed    bool            // by its owner; freed once nothing can be received in it any more
	handler    Handler         // nil if no layer above controls the context (control.go)
}

// recentlyFreed remembers the contexts that were freed last, with their origins, and those that
// this rank gave up before it had them. A message for one of them is rejected. Without this list it
// would be kept for a communicator that is still to be made.
type recentlyFreed struct {
	ids    map[ContextID]origin
	oldest []ContextID // the same ids in a ring; the oldest is at next
	next   int
}

const maxRecentlyFreed = 1024

func (f *recentlyFreed) add(id ContextID, o origin) {
	if f.has(id) {
		return
	}
	if f.ids == nil {
		f.ids = make(map[ContextID]origin)
	}
	if len(f.oldest) < maxRecentlyFreed {
		f.oldest = append(f.oldest, id)
	} else {
		delete(f.ids, f.oldest[f.next])
		f.oldest[f.next] = id
		f.next = (f.next + 1) % maxRecentlyFreed
	}
	f.ids[id] = o
}

func (f *recentlyFreed) has(id ContextID) bool {
	_, ok := f.ids[id]
	return ok
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
	p.deliverEarlyContext(c)
	return c
}

// RemoveContext frees a matching space as soon as no receive is posted in it and no persistent
// receive exists. Messages that were not received are then rejected, and so are those that still
// arrive. Their senders get an error. It tells the handler of the context.
func (p *PML) RemoveContext(c *Context) {
	c.p.postBlocking() // it goes on as any other receive
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
	c.p.forgetControlled(c)
	c.p.recentlyFreed.add(c.id, c.origin)
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
