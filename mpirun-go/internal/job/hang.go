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
	quiet    int           // checks without progress
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
	maxLook = 15 * time.Second
)

// newHangWatch returns a watch that reports a hang after d and at most two more checks.
func newHangWatch(d time.Duration) *hangWatch {
	every := min(max(d/20, minLook), maxLook)
	return &hangWatch{every: every, limit: max(1, int((d+every-1)/every))}
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
		w.quiet, w.reported = 0, false
	default:
		w.quiet++
	}
	if w.quiet >= w.limit && !w.reported && !r.diagnosing {
		w.reported = true
		r.diagnose(r.hangTitle, r.printTrace, func() {})
	}
}

// hangTitle returns the title of a report about a hang, or "" if the report shows that the job does
// not hang.
func (r *run) hangTitle(report *diagnose.Report) string {
	w := r.hang
	for _, m := range report.Members {
		last := w.last[m.Rank].number
		hasMoved := m.Report != nil && !m.Report.Locked && m.Report.Snapshot.Progress != last
		if hasMoved || m.After != nil && *m.After > last { // 0 if the rank could not take its lock
			w.quiet, w.reported = 0, false // the rank has made progress since
			return ""
		}
	}
	if diagnose.IsComputing(report.Members) {
		w.quiet, w.reported = 0, false
		return ""
	}
	quiet := time.Duration(w.limit) * w.every // at least: more time has passed with the report
	return fmt.Sprintf("no rank has made progress for %v; the job goes on", quiet)
}
