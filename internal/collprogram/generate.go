package collprogram

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/mpigo/mpigo/internal/calls"
)

const (
	mostSteps  = 40
	mostGroups = 8  // that a program makes
	mostLive   = 10 // persistent collectives at a time
	tags       = 3
	// freeTag is the first tag that ordinary messages do not use.
	freeTag = 1000
)

// generator makes a program.
type generator struct {
	*rand.Rand
	p       *Program
	groups  []int // that are not freed
	handles []int // persistent collectives that are not freed
	ids     []calls.ID
}

// New makes the program of a seed for a number of ranks.
func New(seed uint64, ranks int) *Program {
	p := &Program{Seed: seed, Ranks: ranks}
	g := &generator{Rand: rand.New(rand.NewPCG(seed, uint64(ranks))), p: p, groups: []int{0}, ids: IDs()}
	all := make([]int, ranks)
	for i := range all {
		all[i] = i
	}
	p.groups = []group{{all}}
	for range 1 + g.IntN(mostSteps) {
		p.steps = append(p.steps, g.step())
	}
	return p
}

func (g *generator) step() step {
	in := g.groups[g.IntN(len(g.groups))]
	n := len(g.p.groups[in].members)
	switch k := g.IntN(100); {
	case k < 45:
		return g.collective(in, n)
	case k < 60 && len(g.handles) > 0:
		return g.start()
	case k < 63 && len(g.handles) > 0:
		i := g.IntN(len(g.handles))
		h := g.handles[i]
		g.handles = slices.Delete(g.handles, i, i+1)
		return &release{h}
	case k < 83:
		m := &message{
			group: in, from: g.IntN(n), to: g.IntN(n), tag: g.IntN(tags), length: g.length(1), contents: g.Uint64(),
			send: sendMode(g.IntN(int(sendModes))), recv: recvMode(g.IntN(int(recvModes))), anyTag: g.IntN(4) == 0,
		}
		if m.from == m.to {
			m.send, m.recv = isend, irecv
		}
		return m
	case k < 88:
		return &funnel{group: in, to: g.IntN(n), tag: freeTag + len(g.p.steps), length: g.length(1),
			from: g.Perm(n)[:1+g.IntN(n)], contents: g.Uint64()}
	case k < 94:
		return &exchange{group: in, shift: g.IntN(n), length: g.length(1), contents: g.Uint64()}
	case k < 97 && len(g.p.groups) < mostGroups:
		return g.split(in, n)
	case k < 98 && in != 0:
		return g.free(in)
	}
	return g.collective(in, n)
}

// length chooses the number of elements of a rank in a call. It is smaller for a call with parts
// for n ranks.
func (g *generator) length(n int) int {
	const most = 100 << 10 / affineBytes
	switch k := g.IntN(100); {
	case k < 10:
		return 0
	case k < 70:
		return 1 + g.IntN(40)
	case k < 90:
		return 1 + g.IntN(600)
	case k < 97:
		return 1 + g.IntN(max(3000/n, 1))
	default:
		return 1 + g.IntN(max(most/n, 1))
	}
}

func (g *generator) collective(in, n int) step {
	c := &collective{group: in, form: Form(g.IntN(3)), handle: -1}
	id := g.ids[g.IntN(len(g.ids))]
	parts := 1
	if !id.Combines() && id != calls.Bcast {
		parts = n
	}
	c.call = Call{
		ID: id, Count: g.length(parts), Root: g.IntN(n), InPlace: g.IntN(3) == 0, InOrder: id.Combines() && g.IntN(3) == 0,
		Gap: g.IntN(3), Descending: g.IntN(3) == 0, Contents: g.Uint64(),
	}
	if id.HasCounts() {
		for range n {
			c.call.Counts = append(c.call.Counts, g.IntN(c.call.Count+1)*min(g.IntN(4), 1))
		}
	}
	if c.form == Persistent && len(g.handles) == mostLive {
		c.form = Nonblocking
	}
	if c.form == Persistent {
		c.handle = len(g.p.inits)
		g.p.inits = append(g.p.inits, c)
		g.handles = append(g.handles, c.handle)
	}
	return c
}

func (g *generator) start() step {
	s := &start{contents: make([]uint64, len(g.p.inits))}
	for _, i := range g.Perm(len(g.handles))[:1+g.IntN(len(g.handles))] {
		s.handles = append(s.handles, g.handles[i])
		s.contents[g.handles[i]] = g.Uint64()
	}
	return s
}

func (g *generator) split(in, n int) step {
	s := &split{group: in}
	members := g.p.groups[in].members
	if g.IntN(2) == 0 {
		s.made = []int{len(g.p.groups)}
		g.groups = append(g.groups, len(g.p.groups))
		g.p.groups = append(g.p.groups, group{members})
		return s
	}
	colours := 1 + g.IntN(min(n, 3))
	for range n {
		s.colours = append(s.colours, g.IntN(colours+1)-1) // -1: none
		s.keys = append(s.keys, g.IntN(5)-2)
	}
	for c := range colours {
		var of []int // ranks of the parent
		for r := range n {
			if s.colours[r] == c {
				of = append(of, r)
			}
		}
		slices.SortStableFunc(of, func(a, b int) int { return cmp.Compare(s.keys[a], s.keys[b]) })
		made := group{}
		for _, r := range of {
			made.members = append(made.members, members[r])
		}
		s.made = append(s.made, len(g.p.groups))
		if len(of) > 0 {
			g.groups = append(g.groups, len(g.p.groups))
		}
		g.p.groups = append(g.p.groups, made)
	}
	return s
}

func (g *generator) free(in int) step {
	f := &free{group: in}
	g.groups = slices.DeleteFunc(g.groups, func(i int) bool { return i == in })
	g.handles = slices.DeleteFunc(g.handles, func(h int) bool {
		if g.p.inits[h].group != in {
			return false
		}
		f.handles = append(f.handles, h)
		return true
	})
	return f
}
