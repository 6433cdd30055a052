package mpitest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mpigo/mpigo/internal/hangreport"
	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/observe"
)

// watch waits until the ranks have ended or hang. back is false if ranks have not returned.
func (r *run) watch(ended <-chan error) (err error, back bool) {
	r.t.Helper()
	defer r.reportFindings()
	select {
	case err := <-ended:
		return err, true
	case <-r.attached:
	}
	early := min(r.hangAfter, deadlockAfter)
	tick := time.NewTicker(min(max(r.hangAfter/20, time.Millisecond), early/10+time.Millisecond))
	defer tick.Stop()
	last, since := r.progress(), time.Now()
	next := early // time without progress at the next look for a certain deadlock
	var report string
	for report == "" {
		select {
		case err := <-ended:
			return err, true
		case <-r.findings.wake:
			r.reportFindings() // at once, because the test may be killed
		case <-tick.C:
		}
		now, quiet := r.progress(), time.Since(since)
		switch {
		case !slices.Equal(now, last):
			last, since, next = now, time.Now(), early
		case quiet >= r.hangAfter:
			report, _ = r.hangReport(last, r.hangAfter)
		case quiet >= next:
			// A rank that computes is not asked all the time.
			text, isCertain := r.hangReport(last, next)
			if next = 2 * quiet; isCertain {
				report = text
			}
		}
	}

	r.t.Error(report)
	r.stop(errors.New("mpitest: no rank has made progress: see the report"))
	grace := min(max(r.hangAfter, minEndGrace), maxEndGrace)
	select {
	case err := <-ended:
		return err, true
	case <-time.After(grace):
		r.t.Errorf("%s left behind: not back %v after every call was ended", r.unreturned(), grace)
		return nil, false
	}
}

// progress returns, for each rank, a number that changes when the rank makes progress. It does not
// wait for a rank that holds its lock, so a number may be one tick old.
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

// progressOf is the progress of a rank; the return of its body counts as progress.
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

// hangReport explains the hang after a time without progress. last is the progress of the ranks
// when the hang began. isCertain says that the ranks wait for each other in a cycle, and that
// waiting longer brings no news.
func (r *run) hangReport(last []uint64, quiet time.Duration) (text string, isCertain bool) {
	var b strings.Builder
	fmt.Fprintf(&b, "hang: no rank has made progress for %v\n", quiet.Round(100*time.Millisecond))
	ranks, stacks := r.reports()
	for i := range ranks {
		if rep := ranks[i].Report; rep != nil && !rep.Locked && progressOf(rep.Snapshot.Progress, ranks[i].Left) != last[i] {
			ranks[i].After = nil // the hang is over
		}
	}
	finding := hangreport.Analyze(ranks)
	b.WriteString(finding.Text("  "))
	for _, f := range foldStacks(stacks) {
		fmt.Fprintf(&b, "\n%s, %s", rankList(f.ranks), f.stack)
	}
	return b.String(), finding.HasCycle()
}

// reports asks the ranks for their reports.
func (r *run) reports() (out []hangreport.Rank, stacks []stack) {
	out = make([]hangreport.Rank, len(r.ranks))
	locked := make([]bool, len(r.ranks))
	before := ask(r.ranks, locked, observe.Rank.Progress)
	// Before the snapshots: a goroutine that runs now and waits later counts as running.
	stacks = goroutines(r.id)
	for i := range r.ranks {
		out[i].Left = r.states[i].returned.Load()
	}
	answers := ask(r.ranks, locked, report)
	for i := range r.ranks {
		report := introspect.Report{Locked: true}
		if answers[i] != nil {
			report = *answers[i]
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
	for i, after := range ask(r.ranks, locked, observe.Rank.Progress) {
		out[i].After = after
	}
	return out, stacks
}

// report returns the report of a rank, without its goroutines.
func report(rank observe.Rank) introspect.Report {
	if r, ok := rank.(introspect.Describer); ok {
		return r.Report()
	}
	return introspect.Report{Snapshot: rank.Snapshot(), Unreceived: rank.Unreceived()}
}

// askLimit is the time that a rank may hold its lock before it counts as locked.
const askLimit = 5 * time.Second

// ask calls f, which may wait for a rank's lock, for all ranks at once. It adds ranks that hold
// their locks for too long to locked. The answer is nil for all ranks in locked.
func ask[T any](ranks []observe.Rank, locked []bool, f func(observe.Rank) T) []*T {
	coming, out := make([]chan T, len(ranks)), make([]*T, len(ranks))
	for i, rank := range ranks {
		if coming[i] = make(chan T, 1); !locked[i] {
			go func() { coming[i] <- f(rank) }()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	for i, answer := range coming {
		if locked[i] {
			continue
		}
		select {
		case v := <-answer:
			out[i] = &v
			continue
		case <-ctx.Done():
		}
		select {
		case v := <-answer:
			out[i] = &v
		default:
			locked[i] = true
		}
	}
	return out
}

// rankList names ranks.
func rankList(ranks []int) string {
	if len(ranks) == 1 {
		return "rank " + hangreport.Ranks(ranks)
	}
	return "ranks " + hangreport.Ranks(ranks)
}
