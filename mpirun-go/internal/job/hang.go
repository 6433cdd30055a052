package job

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/atomic"

	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/mpirun-go/internal/diagnose"
)

// hangWatch checks periodically whether some rank makes progress. It counts checks instead of time,
// so that a launcher that was stopped for a while reports no hang.
type hangWatch struct {
	every    time.Duration // between checks
	limit    int           // checks without progress after which the job hangs
	early    int           // checks without progress after which a certain deadlock is looked for
	quiet    int           // checks without progress
	next     int           // checks without progress at the next look for a certain deadlock
	reported bool          // the hang has been reported; set back by progress
	last     map[int]rankProgress
}

// rankProgress is the state of a rank at a check. A rank that finalizes or exits makes progress,
// too.
type rankProgress struct {
	number uint64
	state  introspect.State
}

// Limits of the time between two checks.
const (
	minLook = 100 * time.Millisecond
	maxLook = 2 * time.Second
)

// deadlockAfter is the time without progress after which a deadlock is reported if it is certain:
// no patience makes such a job go on.
const deadlockAfter = 10 * time.Second

// newHangWatch returns a watch that reports a hang after d and at most two more checks, and a
// certain deadlock after deadlockAfter.
func newHangWatch(d time.Duration) *hangWatch {
	every := min(max(d/20, minLook), maxLook)
	checks := func(d time.Duration) int { return max(1, int((d+every-1)/every)) }
	w := &hangWatch{every: every, limit: checks(d), early: checks(min(d, deadlockAfter))}
	w.restart()
	return w
}

// restart begins a new count, because a rank has made progress.
func (w *hangWatch) restart() { w.quiet, w.next, w.reported = 0, w.early, false }

// isTime reports whether to ask the ranks for reports now. certain says that only a certain
// deadlock is news. A job that may only compute is asked ever less often.
func (w *hangWatch) isTime() (now, certain bool) {
	switch {
	case w.reported:
		return false, false
	case w.quiet >= w.limit:
		return true, false
	case w.quiet >= w.next:
		w.next = 2 * w.quiet
		return true, true
	}
	return false, false
}

// sampler holds the latest progress that a rank has reported. A question to a stopped rank stays
// open; at most one question is open at a time.
type sampler struct {
	asking atomic.Bool
	number atomic.Uint64
	known  atomic.Bool // it has answered once
}

// sample asks the rank for its progress, unless a question is open.
func (k *rank) sample() {
	if !k.isAskable() || !k.sampler.asking.CompareAndSwap(false, true) {
		return
	}
	go func() {
		// The connection ends at the latest with the job.
		a, err := k.questions.Ask(context.Background(), introspect.WantProgress)
		// A rank that could not take its lock reports 0.
		if err == nil && (a.Progress > 0 || !k.sampler.known.Load()) {
			k.sampler.number.Store(a.Progress)
			k.sampler.known.Store(true)
		}
		k.sampler.asking.Store(false)
	}()
}

// watchProgress starts the periodic checks for hangs.
func (r *run) watchProgress() {
	if r.cfg.HangAfter <= 0 {
		return
	}
	w := newHangWatch(r.cfg.HangAfter)
	w.last = map[int]rankProgress{}
	r.hang = w
	r.after(w.every, r.look)
}

// look is one check: it compares the progress of all ranks with their progress at the last check.
func (r *run) look() {
	if r.failure != nil {
		return
	}
	w := r.hang
	defer r.after(w.every, r.look)
	moved, answering := false, false
	for _, k := range r.ranks {
		now := rankProgress{k.sampler.number.Load(), r.stateOf(k)}
		if now != w.last[k.Rank] {
			moved = true
		}
		w.last[k.Rank] = now
		answering = answering || now.state == introspect.StateAnswered && k.sampler.known.Load()
		k.sample()
	}
	switch {
	case moved || !answering:
		w.restart()
	default:
		w.quiet++
	}
	if r.diagnosing {
		return
	}
	if now, certain := w.isTime(); now {
		w.reported = !certain
		title := func(report *diagnose.Report) string { return r.hangTitle(report, certain) }
		r.diagnose(title, r.printTrace, func() {})
	}
}

// hangTitle returns the title of a report about a hang, or "" if the report shows that the job does
// not hang or, if certain is set, that it might go on.
func (r *run) hangTitle(report *diagnose.Report, certain bool) string {
	w := r.hang
	for _, m := range report.Members {
		last := w.last[m.Rank].number
		hasMoved := m.Report != nil && !m.Report.Locked && m.Report.Snapshot.Progress != last
		if hasMoved || m.After != nil && *m.After > last { // 0 if the rank could not take its lock
			w.restart() // the rank has made progress since
			return ""
		}
	}
	quiet := time.Duration(w.limit) * w.every // at least: more time has passed with the report
	switch {
	case certain && !report.Finding.HasCycle():
		return "" // the count goes on
	case certain:
		quiet = time.Duration(w.quiet) * w.every
		w.reported = true
	case diagnose.IsComputing(report.Members):
		w.restart()
		return ""
	}
	return fmt.Sprintf("no rank has made progress for %v; the job goes on", quiet)
}
