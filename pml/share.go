package pml

import "github.com/mpigo/mpigo/btl"

// Sharer returns the module by which this rank shares memory with the given ranks of a context, or
// nil if there is none. It resolves the rails to all of them.
func (p *PML) Sharer(c *Context, ranks []int) btl.Sharer {
	var all btl.Sharer
	for _, rank := range ranks {
		world := c.group.world[rank]
		if world == p.cfg.Rank {
			continue
		}
		pr := p.peer(world)
		if p.resolve(pr) != nil {
			return nil
		}
		switch s := pr.Sharer(); {
		case s == nil || all != nil && s != all:
			return nil
		default:
			all = s
		}
	}
	return all
}
