package mpitest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mpigo/mpigo/internal/observe"
)

// watch waits for the ranks to end, and for a hang. back is false if ranks are left
// behind.
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
		case <-r.findings.bell:
			r.reportFindings() // at once, lest a test that is killed leaves them unsaid
		case <-tick.C:
		}
		if now := r.progress(); !slices.Equal(now, last) {
			last, since = now, time.Now()
		} else if time.Since(since) >= r.hangAfter {
			break
		}
	}

	r.t.Error(r.hangReport())
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

// progress is a picture of how far the ranks are. Reading it does not wait for a rank
// that holds its lock; what is read may be a tick old.
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
	var names []string
	for i := range r.states {
		if !r.states[i].returned.Load() {
			names = append(names, fmt.Sprint(i))
		}
	}
	switch len(names) {
	case 0:
		return "ranks that are being finalized are"
	case 1:
		return "rank " + names[0] + " is"
	}
	return "ranks " + strings.Join(names, ", ") + " are"
}

// hangReport says what every rank is doing.
func (r *run) hangReport() string {
	var b strings.Builder
	fmt.Fprintf(&b, "hang: no rank has made progress for %v\n", r.hangAfter)
	waits := make([][]int, len(r.ranks)) // for which ranks each waits
	for i, rank := range r.ranks {
		where := "in its body"
		if r.states[i].returned.Load() {
			where = "its body has returned"
		}
		pending, ok := r.pending(rank)
		switch {
		case !ok:
			fmt.Fprintf(&b, "rank %d: %s; its lock is held, so what is pending cannot be told\n", i, where)
		case len(pending) == 0:
			fmt.Fprintf(&b, "rank %d: %s; nothing pending\n", i, where)
		default:
			fmt.Fprintf(&b, "rank %d: %s\n", i, where)
		}
		for _, p := range pending {
			fmt.Fprintf(&b, "    %s\n", r.describe(p))
			if p.Peer >= 0 {
				waits[i] = append(waits[i], p.Peer)
			}
		}
	}
	if c := cycle(waits); c != nil {
		fmt.Fprintf(&b, "a cycle: rank %d", c[0])
		for _, rank := range append(c[1:], c[0]) {
			fmt.Fprintf(&b, " waits for rank %d", rank)
			if rank != c[0] {
				b.WriteString(", which")
			}
		}
		b.WriteByte('\n')
	}
	stacks := goroutines(r.id)
	for i := range r.ranks {
		for _, s := range stacks {
			if s.rank == fmt.Sprint(i) {
				fmt.Fprintf(&b, "\nrank %d, %s", i, s)
			}
		}
	}
	return b.String()
}

// pending asks a rank what is under way there; ok is false if it does not answer.
func (r *run) pending(rank observe.Rank) (list []observe.Pending, ok bool) {
	answer := make(chan []observe.Pending, 1)
	go func() { answer <- rank.Pending() }()
	select {
	case list := <-answer:
		return list, true
	case <-time.After(time.Second):
		return nil, false
	}
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

// cycle finds ranks that wait for each other in a ring, or returns nil.
func cycle(waits [][]int) []int {
	const (
		unseen = iota
		onPath
		done
	)
	seen := make([]int, len(waits))
	var path []int
	var visit func(rank int) []int
	visit = func(rank int) []int {
		seen[rank] = onPath
		path = append(path, rank)
		for _, next := range waits[rank] {
			switch seen[next] {
			case onPath:
				return path[slices.Index(path, next):]
			case unseen:
				if c := visit(next); c != nil {
					return c
				}
			}
		}
		seen[rank] = done
		path = path[:len(path)-1]
		return nil
	}
	for rank := range waits {
		if seen[rank] == unseen {
			if c := visit(rank); c != nil {
				return c
			}
		}
	}
	return nil
}
