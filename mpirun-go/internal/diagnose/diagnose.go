// Package diagnose makes a report about a job from the answers of its ranks: one screen of text,
// JSON, and a directory with the full answer of each rank.
package diagnose

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/internal/hangreport"
	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/jobsocket"
)

// Report holds the answers of a job's ranks and what they show.
type Report struct {
	Job     jobsocket.Info      `json:"job"`
	Finding hangreport.Finding  `json:"finding"`
	Members []introspect.Member `json:"ranks"`
}

// New analyzes the answers of a job's ranks.
func New(job jobsocket.Info, members []introspect.Member) *Report {
	ranks := make([]hangreport.Rank, len(members))
	for i, m := range members {
		ranks[i] = hangreport.Rank{
			Report: m.Report, After: m.After, Missing: missing(m),
			PID: m.PID, Host: m.Host, Process: m.Process,
		}
	}
	finding := analyze(len(ranks), func() hangreport.Finding { return hangreport.Analyze(ranks) })
	return &Report{Job: job, Finding: finding, Members: members}
}

// analyze returns what f finds about a job of a size. The reports come from the ranks and are not
// trusted, and the job has to go on. So it turns a panic in f into a finding.
func analyze(size int, f func() hangreport.Finding) (finding hangreport.Finding) {
	defer func() {
		if x := recover(); x != nil {
			text := fmt.Sprintf("the reports of the ranks could not be analyzed, because of a bug in mpirun-go: %v", x)
			finding = hangreport.Finding{
				Version: hangreport.Version, Size: size,
				Causes: []hangreport.Cause{{Kind: hangreport.KindUnknown, Text: text}},
			}
		}
	}()
	return f()
}

// missing says why a rank has no report.
func missing(m introspect.Member) hangreport.Missing {
	switch {
	case m.Report != nil:
		return ""
	case m.State == introspect.StateFinalized:
		return hangreport.Finalized
	case m.State == introspect.StateExited, m.Process == "exited":
		return hangreport.Exited
	case m.State == introspect.StateLost:
		return hangreport.HostLost
	case isStopped(m):
		return hangreport.Stopped
	case m.State == introspect.StateNotInited:
		return hangreport.NotInited
	case m.State == introspect.StateNotBegun:
		return hangreport.NotStarted
	case m.State == introspect.StateLeaving:
		return hangreport.Leaving
	case m.State == introspect.StateVersion:
		return hangreport.OtherVersion
	case m.State == introspect.StateForeign:
		return hangreport.Foreign
	case m.State == introspect.StateAnswered:
		return hangreport.NoReport
	case m.State == introspect.StateSilent && m.PID == 0 && m.Process == "":
		// Under another launcher a rank is known once it has connected (internal/relay).
		return hangreport.NotConnected
	}
	return hangreport.NoAnswer
}

// Stopped is the text of introspect.Member.Process for a process that a signal has stopped.
const Stopped = "stopped by a signal"

func isStopped(m introspect.Member) bool { return m.Process == Stopped }

// IsComputing reports whether all ranks that have answered run the program's own code, outside of
// the library. Such a job makes no progress that the library sees, but does not hang.
func IsComputing(members []introspect.Member) bool {
	any := false
	for _, m := range members {
		switch {
		case m.State == introspect.StateSilent, m.State == introspect.StateVersion, m.State == introspect.StateAnswered && m.Report == nil:
			return false
		case m.Report == nil:
			continue
		}
		if len(m.Report.Snapshot.Waits) > 0 || m.Report.Locked || !computes(m.Report.Goroutines) {
			return false
		}
		any = true
	}
	return any
}

// computes reports whether at least one goroutine runs or sleeps, and none is in a call of the
// library.
func computes(list []introspect.Goroutine) bool {
	active := false
	for _, g := range list {
		if g.InCall {
			return false
		}
		switch g.State {
		case "running", "runnable", "sleep", "syscall", "IO wait":
			active = true
		}
	}
	return active
}

// HasAnswers reports whether a rank has answered, or was expected to answer.
func (r *Report) HasAnswers() bool {
	for _, m := range r.Members {
		switch m.State {
		case introspect.StateAnswered, introspect.StateSilent, introspect.StateVersion:
			return true
		}
	}
	return false
}

// Text returns the finding for people, at most one screen. In a job that runs well, ranks also wait
// for each other at any moment. So Text says that the job does not hang if ranks make progress, or
// if all ranks run the program's own code.
func (r *Report) Text() string {
	const noHang = "no hang: ranks make progress\n"
	switch kind := r.Finding.Causes[0].Kind; kind {
	case hangreport.KindUnknown:
		if r.isMoving() {
			_, rest, _ := strings.Cut(r.Finding.String(), "\n")
			return noHang + rest
		}
	case hangreport.KindLate, hangreport.KindMayDeadlock, hangreport.KindComputes, hangreport.KindUnderWay, hangreport.KindAwaitsOthers:
		if r.isMoving() {
			return noHang + r.Finding.Text("at this moment: ")
		}
		if (kind == hangreport.KindComputes || kind == hangreport.KindAwaitsOthers) && IsComputing(r.Members) {
			return r.Finding.Text("all ranks compute: ")
		}
	}
	return r.Finding.String()
}

// Brief returns the first lines of the finding of a job in which no rank makes progress. It returns
// "" if a rank makes progress, if all ranks run the program's own code, or if none has reported.
func (r *Report) Brief(lines int) string {
	reported := slices.ContainsFunc(r.Members, func(m introspect.Member) bool { return m.Report != nil })
	if !reported || r.isMoving() || IsComputing(r.Members) {
		return ""
	}
	all := slices.Collect(strings.Lines(r.Text()))
	return strings.Join(all[:min(lines, len(all))], "")
}

// isMoving reports whether a rank has made progress since its report, or is about to. A report of a
// rank that held its lock contains no progress.
func (r *Report) isMoving() bool {
	return slices.ContainsFunc(r.Members, func(m introspect.Member) bool {
		if m.Report == nil || m.Report.Locked {
			return false
		}
		return m.After != nil && *m.After > m.Report.Snapshot.Progress || isReturning(m.Report)
	})
}

// isReturning reports whether a rank runs in a call that has stopped waiting.
func isReturning(r *introspect.Report) bool {
	return !r.Snapshot.Ended && len(r.Snapshot.Waits) == 0 &&
		slices.ContainsFunc(r.Goroutines, func(g introspect.Goroutine) bool {
			return g.Waits && (g.State == "running" || g.State == "runnable")
		})
}

// JSON writes the finding and all reports.
func (r *Report) JSON(w io.Writer) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return fmt.Errorf("report as JSON: %w", err)
	}
	_, err = w.Write(append(text, '\n'))
	return err
}
