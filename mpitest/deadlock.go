package mpitest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/internal/observe"
	"github.com/mpigo/mpigo/internal/waitgraph"
)

// view is the state of a rank for the report of a hang.
type view struct {
	observe.Snapshot
	known    bool // Snapshot was taken
	returned bool // the body has returned
	busy     bool // some goroutine of the rank may be outside of calls that wait
}

// progress is the number of run.progress.
func (v *view) progress() uint64 {
	if v.returned {
		return v.Progress + 1
	}
	return v.Progress
}

// isBusy reports whether some goroutine of a rank may be outside of the calls that are known to
// wait.
func isBusy(stacks []stack, rank, waits int) bool {
	waiting := 0
	for _, s := range stacks {
		switch {
		case s.rank != fmt.Sprint(rank), s.isAsyncProgress():
		case !s.waits():
			return true
		default:
			waiting += s.count
		}
	}
	return waits == 0 || waiting != waits
}

// findDeadlock finds ranks that no rank can release.
func findDeadlock(views []view) waitgraph.Deadlock {
	ranks := make([]waitgraph.Rank, len(views))
	for i := range views {
		v := &views[i]
		r := &ranks[i]
		r.Ended = v.returned || v.Ended
		r.Runs = !v.known || v.busy
		for _, w := range v.Waits {
			r.Waits = append(r.Waits, waitOf(views, v, w))
		}
	}
	for i := range views {
		for _, p := range views[i].Pending {
			if len(p.By) > 0 {
				continue
			}
			// The operation completes or fails by itself. It may release a call at either end, even
			// one that is not known to wait for it: a WaitAll ends when one of its requests fails.
			ranks[i].Runs = true
			if p.Peer >= 0 {
				ranks[p.Peer].Runs = true
			}
		}
	}
	return waitgraph.Find(ranks)
}

func waitOf(views []view, v *view, w observe.Wait) waitgraph.Wait {
	out := waitgraph.Wait{Need: w.Need, EndedBy: w.Members}
	if w.MayGiveUp || w.Need > len(w.Ops) { // it waits for something unknown
		out.Need = 0
	}
	for _, op := range w.Ops {
		by := v.Pending[op].By
		out.Ops = append(out.Ops, waitgraph.Op{By: by, Itself: len(by) == 0})
	}
	for _, rank := range missingMembers(views, w) {
		out.Ops = append(out.Ops, waitgraph.Op{By: []int{rank}})
		if out.Need > 0 {
			out.Need++
		}
	}
	return out
}

// missingMembers are the ranks that have not called the collective that a call waits in.
func missingMembers(views []view, w observe.Wait) []int {
	if w.Collective == nil {
		return nil
	}
	var missing []int
	for _, rank := range w.Members {
		at := slices.IndexFunc(views[rank].Collectives, func(c observe.Collective) bool { return c.Comm == w.Collective.Comm })
		if at >= 0 && !views[rank].Collectives[at].Reached(w.Collective.Number) {
			missing = append(missing, rank)
		}
	}
	return missing
}

func describeDeadlock(b *strings.Builder, d waitgraph.Deadlock) {
	if len(d.Ranks) == 0 {
		return
	}
	fmt.Fprintf(b, "a deadlock: nothing can release %s\n", rankList(d.Ranks))
	if len(d.Cycle) == 0 {
		return
	}
	fmt.Fprintf(b, "a cycle: rank %d", d.Cycle[0])
	for _, rank := range append(d.Cycle[1:], d.Cycle[0]) {
		fmt.Fprintf(b, " waits for rank %d", rank)
		if rank != d.Cycle[0] {
			b.WriteString(", which")
		}
	}
	b.WriteByte('\n')
}
