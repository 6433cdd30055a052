package mpitest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mpigo/mpigo/internal/hangreport"
	"github.com/mpigo/mpigo/internal/introspect"
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
		out[i] = progressOf(out[i], s.returned.Load())
	}
	return out
}

// progressOf is the progress of a rank with the return of its body.
func progressOf(progress uint64, hasReturned bool) uint64 {
	if hasReturned {
		return progress + 1
	}
	return progress
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

// hangReport explains the hang. last is the progress of the ranks since it began.
func (r *run) hangReport(last []uint64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "hang: no rank has made progress for %v\n", r.hangAfter)
	ranks, stacks := r.reports()
	for i := range ranks {
		if rep := ranks[i].Report; rep != nil && !rep.Locked && progressOf(rep.Snapshot.Progress, ranks[i].Left) != last[i] {
			ranks[i].After = nil // the hang is over
		}
	}
	b.WriteString(hangreport.Analyze(ranks).Text("  "))
	for _, f := range foldStacks(stacks) {
		fmt.Fprintf(&b, "\n%s, %s", rankList(f.ranks), f.stack)
	}
	return b.String()
}

// reports asks the ranks what they do.
func (r *run) reports() (out []hangreport.Rank, stacks []stack) {
	out = make([]hangreport.Rank, len(r.ranks))
	before := r.askProgress()
	// Before the snapshots, so that a goroutine that runs now and waits later counts as running.
	stacks = goroutines(r.id)
	for i, rank := range r.ranks {
		out[i].Left = r.states[i].returned.Load()
		report, ok := ask(func() introspect.Report { return report(rank) })
		if !ok {
			report = introspect.Report{Locked: true}
		}
		report.Rank, report.Size = i, len(r.ranks)
		report.Stale = before[i] == nil || *before[i] != report.Snapshot.Progress
		for _, s := range stacks {
			if s.rank == fmt.Sprint(i) && !s.isAsyncProgress() {
				for range s.count {
					report.Goroutines = append(report.Goroutines, s.goroutine())
				}
			}
		}
		out[i].Report = &report
	}
	for i, after := range r.askProgress() {
		out[i].After = after
	}
	return out, stacks
}

// askProgress asks the ranks for their progress: nil if a rank holds its lock for too long.
func (r *run) askProgress() []*uint64 {
	out := make([]*uint64, len(r.ranks))
	for i, rank := range r.ranks {
		if progress, ok := ask(rank.Progress); ok {
			out[i] = &progress
		}
	}
	return out
}

// report returns the report of a rank, without its goroutines.
func report(rank observe.Rank) introspect.Report {
	if r, ok := rank.(introspect.Describer); ok {
		return r.Report()
	}
	return introspect.Report{Snapshot: rank.Snapshot(), Unreceived: rank.Unreceived()}
}

// ask calls f, which may wait for a rank's lock. ok is false if the rank holds it for too long.
func ask[T any](f func() T) (result T, ok bool) {
	answer := make(chan T, 1)
	go func() { answer <- f() }()
	select {
	case result = <-answer:
		return result, true
	case <-time.After(time.Second):
		return result, false
	}
}

// rankList names ranks.
func rankList(ranks []int) string {
	if len(ranks) == 1 {
		return "rank " + hangreport.Ranks(ranks)
	}
	return "ranks " + hangreport.Ranks(ranks)
}
