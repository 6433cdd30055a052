package simulation

import "github.com/mpigo/mpigo/pml"

// contextIDs are the contexts of a setup's groups, by index: the world, another communicator, and
// that one's context for collectives.
var contextIDs = [...]pml.ContextID{0, 6, pml.ContextID(6).Collective()}

// makeContext makes the context of a group, if the rank is in the group and has not made it yet.
// Until then messages of that context wait in the PML.
func (r *rank) makeContext(i int) {
	g := r.w.groups[i]
	if place, ok := g.Rank(r.rank); ok && r.ctxs[i] == nil {
		r.ctxs[i] = r.p.AddContext(contextIDs[i], g, place, describer{r.rank})
	}
}

// pickContext returns the index of the context that a number means, and makes that context if
// necessary. A rank that is not in the group takes the world.
func (r *rank) pickContext(choice int) int {
	i := choice % len(r.w.groups)
	r.call(func(*pml.PML) { r.makeContext(i) })
	if r.ctxs[i] == nil {
		return 0
	}
	return i
}

// pickSource returns the source that a number means: a rank of the group, or the wildcard.
func (w *world) pickSource(ctx, choice int) int {
	return choice%(len(w.plan.setup.groups[ctx])+1) - 1
}
