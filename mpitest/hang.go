package mpitest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mpigo/mpigo/internal/observe"
)

// watch waits until the ranks have ended, or hang. back is false if ranks have not returned.
func (r *run) watch(ended <-chan error) (err error, back bool) {
	r.t.Helper()
	defer r.reportFindings()
	select {
	case err := <-ended:
		return err, true
	case <-r.attached:
	}
	tick := time.NewTicker(min(max(r.hangAfter/20, time.Millisecond), time.Second))
	defer tick.Stop()
	last, since := r.progress(), time.Now()
	for {
		select {
		case err := <-ended:
			return err, true
		case <-r.findings.wake:
			r.reportFindings() // at once, because the test may be killed
		case <-tick.C:
		}
		if now := r.progress(); !slices.Equal(now, last) {
			last, since = now, time.Now()
		} else if time.Since(since) >= r.hangAfter {
			break
		}
	}

	r.t.Error(r.hangReport(last))
	r.stop(fmt.Errorf("mpitest: no rank has made progress for %v", r.hangAfter))
	grace := min(max(r.hangAfter, minEndGrace), maxEndGrace)
	select {
	case err := <-ended:
		return err, true
	case <-time.After(grace):
		r.t.Errorf("%s left behind: not back %v after every call was ended", r.unreturned(), grace)
		return nil, false
	}
}

// progress returns a number for each rank that changes when the rank makes progress. It does not
// wait for a rank that holds its lock, so a number may be a tick old.
func (r *run) progress() []uint64 {
	var out []uint64
	for i, rank := range r.ranks {
		s := &r.states[i]
		if s.sampling.CompareAndSwap(false, true) {
			go func() {
				s.progress.Store(rank.Progress())
				s.sampling.Store(false)
			}()
		}
		out = append(out, s.progress.Load())
		if s.returned.Load() {
			out[i]++
		}
	}
	return out
}

// unreturned names the ranks whose bodies have not returned.
func (r *run) unreturned() string {
	var left []int
	for i := range r.states {
		if !r.states[i].returned.Load() {
			left = append(left, i)
		}
	}
	switch len(left) {
	case 0:
		return "ranks that are being finalized are"
	case 1:
		return rankList(left) + " is"
	}
	return rankList(left) + " are"
}

// hangReport describes what every rank is doing. last is the progress of the ranks since the hang
// began.
func (r *run) hangReport(last []uint64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "hang: no rank has made progress for %v\n", r.hangAfter)
	// Before the snapshots, so that a goroutine that runs now and waits later counts as running.
	stacks := goroutines(r.id)
	views := make([]view, len(r.ranks))
	quiet := true
	for i := range r.ranks {
		v := &views[i]
		v.returned = r.states[i].returned.Load()
		v.Snapshot, v.known = r.snapshot(r.ranks[i])
		v.busy = isBusy(stacks, i, len(v.Waits))
		quiet = quiet && (!v.known || v.progress() == last[i])
	}
	for i := range views {
		r.describeRank(&b, views, i)
	}
	if quiet {
		describeDeadlock(&b, findDeadlock(views))
	}
	for i := range r.ranks {
		for _, s := range stacks {
			if s.rank == fmt.Sprint(i) {
				fmt.Fprintf(&b, "\nrank %d, %s", i, s)
			}
		}
	}
	return b.String()
}

// snapshot takes a snapshot of a rank. ok is false if the rank holds its lock for too long.
func (r *run) snapshot(rank observe.Rank) (snap observe.Snapshot, ok bool) {
	answer := make(chan observe.Snapshot, 1)
	go func() { answer <- rank.Snapshot() }()
	select {
	case snap := <-answer:
		return snap, true
	case <-time.After(time.Second):
		return observe.Snapshot{}, false
	}
}

// describeRank describes what one rank is doing.
func (r *run) describeRank(b *strings.Builder, views []view, rank int) {
	v := &views[rank]
	fmt.Fprintf(b, "rank %d: ", rank)
	if v.returned {
		b.WriteString("its body has returned")
	} else {
		b.WriteString("in its body")
	}
	switch {
	case !v.known:
		b.WriteString("; its lock is held, so its pending operations are unknown\n")
		return
	case len(v.Pending) == 0:
		b.WriteString("; nothing pending\n")
	default:
		b.WriteByte('\n')
	}
	waited := make([]bool, len(v.Pending))
	for _, w := range v.Waits {
		indent := "    "
		switch n := len(w.Ops); {
		case n > 1 && w.Need == n:
			b.WriteString("    all of:\n")
			indent += indent
		case n > 1 && w.Need == 1:
			b.WriteString("    any of:\n")
			indent += indent
		case n > 1:
			fmt.Fprintf(b, "    %d of:\n", w.Need)
			indent += indent
		}
		for _, op := range w.Ops {
			waited[op] = true
			fmt.Fprintf(b, "%s%s\n", indent, r.describe(v.Pending[op]))
		}
		if missing := missingMembers(views, w); len(missing) > 0 {
			fmt.Fprintf(b, "        not called yet by %s\n", rankList(missing))
		}
	}
	for op, p := range v.Pending {
		if !waited[op] {
			fmt.Fprintf(b, "    %s; no call waits for it\n", r.describe(p))
		}
	}
	if len(v.Waits) > 0 && v.busy && !v.returned {
		b.WriteString("    a goroutine of the rank is in no call that waits, and may go on\n")
	}
}

// rankList names ranks.
func rankList(ranks []int) string {
	names := make([]string, len(ranks))
	for i, rank := range ranks {
		names[i] = fmt.Sprint(rank)
	}
	if len(names) == 1 {
		return "rank " + names[0]
	}
	return "ranks " + strings.Join(names, ", ")
}

func (r *run) describe(p observe.Pending) string {
	var b strings.Builder
	preposition := "with"
	switch {
	case p.Collective, strings.HasPrefix(p.Op, "sendrecv"):
	case strings.Contains(p.Op, "send"):
		preposition = "to"
	default:
		preposition = "from"
	}
	peer := "any rank"
	if p.Peer >= 0 {
		peer = fmt.Sprintf("rank %d", p.Peer)
	}
	fmt.Fprintf(&b, "%s %s %s", p.Op, preposition, peer)
	if p.Peer >= 0 && p.Peer < len(r.states) && r.states[p.Peer].returned.Load() {
		b.WriteString(" (its body has returned)")
	}
	switch {
	case p.Collective:
	case p.Tag < 0:
		b.WriteString(", any tag")
	default:
		fmt.Fprintf(&b, ", tag %d", p.Tag)
	}
	if !strings.HasSuffix(p.Op, "probe") {
		fmt.Fprintf(&b, ", %d bytes", p.Bytes)
	}
	if p.Comm != "world" {
		fmt.Fprintf(&b, ", in %s", p.Comm)
	}
	fmt.Fprintf(&b, ": %s", p.Phase)
	return b.String()
}
