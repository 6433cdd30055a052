package hangreport

import (
	"slices"

	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/observe"
	"github.com/mpigo/mpigo/internal/shortpath"
	"github.com/mpigo/mpigo/internal/waitgraph"
)

// view is the job, as far as it is known.
type view struct {
	ranks []rankView
	names shortpath.Names // of the source files
	// waiters has, for each rank, the ranks that wait for it directly.
	waiters [][]int
	// certain is a deadlock that cannot be released. possible is the deadlock under the assumption
	// that every goroutine blocked outside of the library stays blocked.
	certain, possible waitgraph.Deadlock
}

// rankView is one rank.
type rankView struct {
	Rank
	observe.Snapshot      // zero without a report
	known            bool // Snapshot was taken
	left             bool // it makes no further call
	outside          []introspect.Goroutine
	// returning are the goroutines that were in calls, if no call of the rank waited when the
	// operations were listed. Such a rank goes on.
	returning []introspect.Goroutine
	// starts has the number of starts of each persistent collective that it has not freed, by the
	// place of the Init call.
	starts map[observe.Collective]uint64
	runs   bool // it may go on even if its calls wait
	acts   bool // like runs, but ignoring goroutines blocked outside of the library
}

func newView(ranks []Rank) *view {
	v := &view{ranks: make([]rankView, len(ranks))}
	var files []string
	for i, r := range ranks {
		rv := &v.ranks[i]
		rv.Rank = r
		rv.left = r.Left || r.Missing == Finalized || r.Missing == Exited
		if r.Report == nil {
			rv.runs, rv.acts = !rv.left, !rv.left
			continue
		}
		rv.Snapshot, rv.known = r.Report.Snapshot, !r.Report.Locked
		rv.left = rv.left || rv.Ended
		rv.starts = make(map[observe.Collective]uint64, len(rv.Starts))
		for _, made := range rv.Starts {
			rv.starts[placeOf(made)] = made.Start
		}
		rv.look()
		files = append(files, filesOf(r.Report)...)
	}
	v.names = shortpath.Of(files)
	v.markUnderWay()
	v.waiters = make([][]int, len(ranks))
	for i := range v.ranks {
		for _, other := range v.awaited(i) {
			v.waiters[other] = append(v.waiters[other], i)
		}
	}
	v.certain = waitgraph.Find(v.graph(func(r *rankView) bool { return r.runs }))
	v.possible = waitgraph.Find(v.graph(func(r *rankView) bool { return r.acts }))
	return v
}

// look determines whether the rank may go on.
func (r *rankView) look() {
	waiting, blocked, active := 0, false, false
	for _, g := range r.Report.Goroutines {
		if g.Waits {
			waiting++
			if r.known && len(r.Waits) == 0 {
				r.returning = append(r.returning, g)
			}
			continue
		}
		r.outside = append(r.outside, g)
		switch {
		case g.InCall, isActive(g.State):
			active = true
		case !needsGoroutine(g.State):
			blocked = true
		}
	}
	r.acts = !r.known || active || r.Report.GoroutinesCut || r.hasMoved() || waiting != len(r.Waits) || len(r.Waits) == 0
	r.runs = r.acts || blocked
}

// hasMoved reports whether the rank has made progress since its stacks were taken, or may have.
func (r *rankView) hasMoved() bool {
	return r.Report.Stale || r.After == nil || *r.After != r.Progress
}

// isActive reports whether a goroutine with a state runs, or will by itself.
func isActive(state string) bool {
	switch state {
	case "running", "runnable", "sleep", "":
		return true
	}
	return false
}

// needsGoroutine reports whether a goroutine in a state needs another goroutine to go on. A channel
// may belong to a timer or a signal. A timer's function has no goroutine before it runs. It may
// send to or receive from a channel, or signal a condition.
func needsGoroutine(state string) bool {
	switch state {
	case "sync.Mutex.Lock", "sync.RWMutex.Lock", "sync.RWMutex.RLock", "sync.WaitGroup.Wait",
		"chan receive (nil chan)", "chan send (nil chan)", "select (no cases)":
		return true
	}
	return false
}

// markUnderWay marks the ranks that may go on because of an operation that completes by itself, or
// because a message is under way to them.
func (v *view) markUnderWay() {
	mark := func(rank int) {
		if rank >= 0 && rank < len(v.ranks) {
			v.ranks[rank].runs, v.ranks[rank].acts = true, true
		}
	}
	for i := range v.ranks {
		for _, p := range v.ranks[i].Pending {
			if len(p.By) == 0 {
				// The operation may release a call at either end, even one that does not seem to
				// wait for it: a WaitAll ends when one of its requests fails.
				mark(i)
				mark(p.Peer)
			}
		}
		for _, c := range v.ranks[i].Channels {
			if v.underWay(i, c) > 0 {
				mark(c.Peer)
			}
		}
	}
}

// underWay is the number of fragments that a rank has posted on a channel and the peer has not
// taken. It is 0 if the peer has not reported.
func (v *view) underWay(rank int, c observe.Channel) uint64 {
	if c.Peer < 0 || c.Peer >= len(v.ranks) || !v.ranks[c.Peer].known {
		return 0
	}
	taken := uint64(0)
	for _, back := range v.ranks[c.Peer].Channels {
		if back.Peer == rank {
			taken = back.Taken
		}
	}
	return c.Posted - min(taken, c.Posted)
}

// graph makes the graph of waits.
func (v *view) graph(runs func(r *rankView) bool) []waitgraph.Rank {
	out := make([]waitgraph.Rank, len(v.ranks))
	for i := range v.ranks {
		r := &v.ranks[i]
		out[i] = waitgraph.Rank{Ended: r.left, Runs: runs(r)}
		for _, w := range r.Waits {
			out[i].Waits = append(out[i].Waits, v.waitOf(r, w))
		}
	}
	return out
}

func (v *view) waitOf(r *rankView, w observe.Wait) waitgraph.Wait {
	out := waitgraph.Wait{Need: w.Need, EndedBy: w.Members}
	ops := r.ops(w)
	if w.Shared {
		late := v.lateInShared(r, w)
		for _, rank := range late {
			out.Ops = append(out.Ops, waitgraph.Op{By: []int{rank}})
		}
		if out.Need = len(late); w.Collective == nil {
			out.Need = min(1, len(late)) // a rank that may go on is not deadlocked
		}
		if w.MayGiveUp {
			out.Need = 0
		}
		return out
	}
	if w.MayGiveUp || w.Need > len(ops) { // it waits for something unknown
		out.Need = 0
	}
	for _, p := range ops {
		out.Ops = append(out.Ops, waitgraph.Op{By: p.By, Itself: len(p.By) == 0})
	}
	if w.Collective == nil {
		return out
	}
	for _, rank := range v.notReached(w.Members, *w.Collective) {
		out.Ops = append(out.Ops, waitgraph.Op{By: []int{rank}})
		if out.Need > 0 {
			out.Need++
		}
	}
	return out
}

// lateInShared is for a call that waits for a change of shared memory. It returns the ranks that
// have not called the collective. At least one of them has to act. If there is none, the change is
// about to arrive.
func (v *view) lateInShared(r *rankView, w observe.Wait) []int {
	if len(w.In) != 1 {
		return nil
	}
	if w.Collective != nil {
		return v.notReached(w.Members, *w.Collective)
	}
	var watched []int
	for _, p := range r.ops(w) {
		watched = append(watched, p.By...)
	}
	return v.notReached(watched, w.In[0].Collective)
}

// ops returns the operations that a call waits for. Reports come over a wire, so indices are
// checked.
func (r *rankView) ops(w observe.Wait) (out []observe.Pending) {
	for _, i := range w.Ops {
		if i >= 0 && i < len(r.Pending) {
			out = append(out, r.Pending[i])
		}
	}
	return out
}

// notReached returns the members that have not called a collective, or not made a start.
func (v *view) notReached(members []int, c observe.Collective) (late []int) {
	for _, rank := range members {
		if rank < 0 || rank >= len(v.ranks) {
			continue
		}
		if v.ranks[rank].isLateFor(c) {
			late = append(late, rank)
		}
	}
	slices.Sort(late)
	return slices.Compact(late)
}

// isLateFor reports whether the rank certainly has not called a collective, or made a start. A rank
// that has freed a persistent collective is not late for it: the starts of the others fail.
func (r *rankView) isLateFor(c observe.Collective) bool {
	if c.Start > 0 {
		made, isKept := r.starts[placeOf(c)]
		return isKept && made < c.Start
	}
	at := slices.IndexFunc(r.Collectives, func(next observe.Collective) bool { return next.Comm == c.Comm })
	return at >= 0 && !r.Collectives[at].Reached(c.Number)
}

// placeOf is the place of the Init call of a persistent collective.
func placeOf(c observe.Collective) observe.Collective {
	return observe.Collective{Comm: c.Comm, Number: c.Number}
}

// awaited returns the ranks that a rank waits for, by any of its calls.
func (v *view) awaited(rank int) (out []int) {
	r := &v.ranks[rank]
	for _, w := range r.Waits {
		if w.Shared {
			out = append(out, v.lateInShared(r, w)...)
			continue
		}
		for _, p := range r.ops(w) {
			if by := p.By; len(by) > 0 {
				out = append(out, by...)
			} else if p.Peer >= 0 {
				out = append(out, p.Peer)
			}
		}
		for _, in := range w.In {
			out = append(out, v.notReached(in.Awaits, in.Collective)...)
		}
	}
	if r.Ended { // it is in Finalize, which waits for all ranks
		for other := range v.ranks {
			if !v.ranks[other].left {
				out = append(out, other)
			}
		}
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(other int) bool {
		return other == rank || other < 0 || other >= len(v.ranks)
	})
}

// waitingFor returns the ranks that wait for some of the given ranks, directly or through others.
func (v *view) waitingFor(ranks []int) (out []int) {
	seen := make([]bool, len(v.ranks))
	list := slices.Clone(ranks)
	for _, r := range list {
		seen[r] = true
	}
	for len(list) > 0 {
		next := list[0]
		list = list[1:]
		for _, r := range v.waiters[next] {
			if !seen[r] {
				seen[r] = true
				out = append(out, r)
				list = append(list, r)
			}
		}
	}
	slices.Sort(out)
	return out
}
