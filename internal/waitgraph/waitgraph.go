// Package waitgraph finds deadlocks among the ranks of a job, from the calls in which they wait.
//
// A rank has goroutines, each of which runs or waits in a call. A call waits for some or all of
// several operations. An operation waits for a call of one rank, or of any of several ranks. So the
// graph has AND arcs (a blocking call, WaitAll, a collective) and OR arcs (a receive from any
// source, WaitAny, WaitSome, and the goroutines of a rank, any of which may make the call). A cycle
// in such a graph need not be a deadlock. Find reduces the graph: it removes each rank that can go
// on, which may let other ranks go on, until no rank can. The remaining ranks are deadlocked.
//
// A report must never call a live rank deadlocked. So an operation counts as completing by itself
// unless it is known to wait for a call of a rank.
package waitgraph

import "slices"

// Rank is the state of the goroutines of one rank.
type Rank struct {
	// Ended says that the rank makes no call any more.
	Ended bool
	// Runs says that some goroutine of the rank does not wait in a call, or that this is not known.
	Runs bool
	// Waits has an entry for each goroutine that waits in a call.
	Waits []Wait
}

// Wait is one call that waits.
type Wait struct {
	// Need is how many of Ops have to complete for the call to return: one, all, or a number in
	// between. If there are fewer Ops, the call never returns.
	Need int
	Ops  []Op
	// EndedBy are the ranks each of which can end this call with an error, by a call of its own,
	// whatever happens to Ops. They are not part of a cycle, because no rank waits for an error.
	EndedBy []int
}

// Op is an operation that a call waits for.
type Op struct {
	// By are the ranks of the job each of which can complete the operation by a call.
	By []int
	// Itself says that the operation may complete without such a call.
	Itself bool
}

// Deadlock is the result of Find.
type Deadlock struct {
	// Ranks that no rank can release, in order. It is empty if there is no deadlock.
	Ranks []int
	// Cycle is a shortest ring of these ranks. Each waits for the next one, and the last for the
	// first. It is empty if there is none, because all wait for ranks that have ended.
	Cycle []int
}

// Find finds a deadlock among the ranks of a job. A rank that is not an index of the list can
// always make a call.
func Find(ranks []Rank) Deadlock {
	free := release(ranks)
	var d Deadlock
	for i := range ranks {
		if !free[i] && !ranks[i].Ended {
			d.Ranks = append(d.Ranks, i)
		}
	}
	if len(d.Ranks) > 0 {
		d.Cycle = shortestCycle(arcs(ranks, free))
	}
	return d
}

// release reports for each rank whether it can make a call sooner or later.
func release(ranks []Rank) []bool {
	// waiting is a call that waits, and op is one of its operations that no free rank has completed
	// yet.
	type waiting struct{ rank, need int }
	type op struct {
		wait *waiting
		done bool
	}
	free := make([]bool, len(ranks))
	by := make([][]*op, len(ranks))      // by rank, the operations that complete once it is free
	endedBy := make([][]int, len(ranks)) // by rank, the ranks with a call that it may end
	var list []int                       // free ranks whose effects are still to be found
	set := func(rank int) {
		if !free[rank] && !ranks[rank].Ended {
			free[rank] = true
			list = append(list, rank)
		}
	}
	for i := range ranks {
		if ranks[i].Runs {
			set(i)
		}
		for _, w := range ranks[i].Waits {
			wait := &waiting{rank: i, need: w.Need}
			for _, o := range w.Ops {
				if o.Itself || slices.ContainsFunc(o.By, func(r int) bool { return !inside(ranks, r) }) {
					wait.need--
					continue
				}
				x := &op{wait: wait}
				for _, r := range o.By {
					by[r] = append(by[r], x)
				}
			}
			for _, r := range w.EndedBy {
				if inside(ranks, r) {
					endedBy[r] = append(endedBy[r], i)
				}
			}
			if wait.need <= 0 || slices.ContainsFunc(w.EndedBy, func(r int) bool { return !inside(ranks, r) }) {
				set(i)
			}
		}
	}
	for len(list) > 0 {
		rank := list[len(list)-1]
		list = list[:len(list)-1]
		for _, r := range endedBy[rank] {
			set(r)
		}
		for _, x := range by[rank] {
			if x.done {
				continue
			}
			x.done = true
			if x.wait.need--; x.wait.need == 0 {
				set(x.wait.rank)
			}
		}
	}
	return free
}

func inside(ranks []Rank, r int) bool { return r >= 0 && r < len(ranks) }

// arcs returns for each deadlocked rank the deadlocked ranks that it waits for.
func arcs(ranks []Rank, free []bool) [][]int {
	out := make([][]int, len(ranks))
	for i := range ranks {
		if free[i] || ranks[i].Ended {
			continue
		}
		for _, w := range ranks[i].Waits {
			for _, o := range w.Ops {
				if o.Itself || slices.ContainsFunc(o.By, func(r int) bool { return !inside(ranks, r) || free[r] }) {
					continue // it may complete, and so explains nothing
				}
				for _, r := range o.By {
					// A receive from any source may match a message of the rank itself; such an arc
					// explains nothing.
					if !ranks[r].Ended && (r != i || len(o.By) == 1) {
						out[i] = append(out[i], r)
					}
				}
			}
		}
		slices.Sort(out[i])
		out[i] = slices.Compact(out[i])
	}
	return out
}

// shortestCycle returns a shortest cycle of a graph, beginning with its lowest node, or nil.
func shortestCycle(arcs [][]int) []int {
	var best []int
	from := make([]int, len(arcs)) // the node from which a node was reached, plus one
	for start := range arcs {
		clear(from)
		queue := []int{start}
	search:
		for len(queue) > 0 {
			node := queue[0]
			queue = queue[1:]
			for _, next := range arcs[node] {
				if next == start {
					if c := path(from, start, node); best == nil || len(c) < len(best) {
						best = c
					}
					break search
				}
				if from[next] == 0 {
					from[next] = node + 1
					queue = append(queue, next)
				}
			}
		}
		if len(best) == 1 {
			break
		}
	}
	return best
}

// path returns the nodes on the way from first to last.
func path(from []int, first, last int) []int {
	var out []int
	for node := last; node != first; node = from[node] - 1 {
		out = append(out, node)
	}
	out = append(out, first)
	slices.Reverse(out)
	return out
}
