package pml

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/mpigo/mpigo/request"
)

// ContextID names a matching space in the whole job. It has 48 bits: at the top the world rank of
// its maker, in as many bits as the size of the job needs, then a counter of that rank, and in the
// lowest bit whether it is for collective traffic. No rank gives an id twice, so whatever arrives
// for an id belongs to the one communicator that ever had it.
//
// A rank takes one id for each Dup and Split that it calls, and fails them when it has none left. A
// Dup gathers 40 bytes from each rank. At 10 GB/s and 1 µs a step of the exchange, a job that does
// nothing but Dup uses the counters up after:
//
//	   ranks  counter   a Dup takes   they last
//	       2  46 bits          1 µs     2 years
//	      64  41 bits          6 µs    150 days
//	   1,024  37 bits         14 µs     22 days
//	  65,536  31 bits        280 µs      7 days
//	1 << 20   27 bits          4 ms      6 days
type ContextID uint64

const (
	// WorldContext is that of the communicator of all ranks.
	WorldContext ContextID = 0
	// NoContext is the id of no context: its maker has none left.
	NoContext ContextID = 1<<64 - 1

	contextBits = 48
)

// counterBits is the size of the counter in a context id of a job of so many ranks.
func counterBits(ranks int) int { return contextBits - 1 - bits.Len(uint(ranks-1)) }

var (
	errContextID = errors.New("invalid context id")
	errNoContext = errors.New("context ids exhausted")
)

// Collective is the twin of id that collective operations use.
func (id ContextID) Collective() ContextID { return id | 1 }

// NewContextID gives an id that no communicator of the job has had or will have, or NoContext if
// this rank has none left.
func (p *PML) NewContextID() ContextID {
	n := counterBits(p.cfg.Size)
	if p.lastID == 1<<n-1 {
		return NoContext
	}
	p.lastID++ // 0 is the world's
	return ContextID(uint64(p.cfg.Rank)<<(n+1) | p.lastID<<1)
}

// CheckNewContext says what is wrong with an id for a new communicator that came over the wire, nil if
// nothing is. maker is the rank of the job that is said to have it from NewContextID.
func (p *PML) CheckNewContext(id ContextID, maker int) error {
	twin := id.Collective()
	switch {
	case id == NoContext:
		return fmt.Errorf("%w: rank %d has made all of its %d", errNoContext, maker, uint64(1)<<counterBits(p.cfg.Size)-1)
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
	rank  map[int]int // of a world rank; nil if the two are the same
}

// NewGroup makes a group of world ranks, in order of rank in the communicator. It keeps
// the slice.
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

// World is the rank in the job of a rank of the group.
func (g *Group) World(rank int) int { return g.world[rank] }

// Rank is the rank in the group of a rank of the job.
func (g *Group) Rank(world int) (rank int, ok bool) {
	if g.rank == nil {
		return world, world < len(g.world)
	}
	rank, ok = g.rank[world]
	return rank, ok
}

// Caller is whoever the operations of a context are made for. It wraps their errors.
type Caller interface {
	// Describe says what op was about; peer is a rank of the communicator.
	Describe(op string, peer, tag int, err error) error
}

// Context is a matching space: messages of one are never received in another.
type Context struct {
	p      *PML
	id     ContextID
	group  *Group
	rank   int
	caller Caller
	// revoked lists the ranks that gave up the collective that made the communicator (revoke.go).
	revoked []revocation
	origin  origin

	posted     posted
	unexpected unexpected
	probes     []*ProbeRequest // waiting, oldest first
	persistent int             // persistent receives, active or not
	removed    bool            // by its owner; it goes when nothing can be received in it any more
	handler    Handler         // of a context that a layer above controls, else nil (control.go)
}

// recentlyFreed remembers the contexts that were freed last, and where they came from, and those
// that this rank gave up before it had them. What comes for one of them is answered, and not kept
// as it would be for a communicator that is still being made.
type recentlyFreed struct {
	ids    map[ContextID]origin
	oldest []ContextID // the same, a ring from next on
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

// AddContext makes a matching space known. Messages that arrived for it before are there
// to be received. rank is this rank's place in the group.
func (p *PML) AddContext(id ContextID, group *Group, rank int, caller Caller) *Context {
	return p.addContext(&Context{p: p, id: id, group: group, rank: rank, caller: caller})
}

func (p *PML) addContext(c *Context) *Context {
	id := c.id
	c.posted.init()
	c.unexpected.init()
	p.contexts[id] = c
	p.recent[id%16] = c
	p.adoptStrays(c)
	return c
}

// RemoveContext forgets a matching space once no receive is posted in it any more, and no
// persistent one could be. Messages that nobody has received are then dropped, and so are those
// that still come. Their senders
// get an error. The handler of the context, if it has one, is told.
func (p *PML) RemoveContext(c *Context) {
	c.removed = true
	c.failProbes(request.ErrRequest)
	if c.handler != nil {
		c.handler.Removed()
	}
	c.settle()
}

// settle lets a removed context go if nothing can be received in it any more.
func (c *Context) settle() {
	if !c.removed || c.posted.count > 0 || c.persistent > 0 || c.p.contexts[c.id] != c {
		return
	}
	delete(c.p.contexts, c.id)
	c.p.forgetControlled(c)
	c.p.recentlyFreed.add(c.id, c.origin)
	if slot := &c.p.recent[c.id%16]; *slot == c {
		*slot = nil
	}
	c.drop(anyKey)
}

// drop refuses what waits to be received under key.
func (c *Context) drop(key matchKey) {
	for m := c.unexpected.oldest(key); m != nil; m = c.unexpected.oldest(key) {
		c.refuse(m)
	}
}

// refuse takes an unexpected message, which nobody will receive, and answers it.
func (c *Context) refuse(m *message) {
	p := c.p
	c.unexpected.remove(m)
	pr := p.peer(m.source)
	p.letGo(pr, m.kind, len(m.data))
	p.discard(pr, &m.announcement, len(m.data), c.removed)
	p.messages.put(m)
}

// world is the rank in the job of a source, which may be a wildcard or ProcNull.
func (c *Context) world(source int) int {
	if source >= 0 {
		source = c.group.world[source]
	}
	return source
}

// context finds the matching space of an arriving fragment, or nil.
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

// sortedContexts lists the contexts in an order that does not change from run to run.
func (p *PML) sortedContexts() []*Context {
	all := make([]*Context, 0, len(p.contexts))
	for _, c := range p.contexts {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *Context) int {
		switch {
		case a.id < b.id:
			return -1
		case a.id > b.id:
			return 1
		}
		return 0
	})
	return all
}
