package job

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/jobsocket"
	"github.com/mpigo/mpigo/internal/wireup"
	"github.com/mpigo/mpigo/mpirun-go/internal/diagnose"
)

// peers returns what is known of each rank, and how to ask it.
func (r *run) peers() []introspect.Peer {
	peers := make([]introspect.Peer, len(r.cfg.Specs))
	for i, spec := range r.cfg.Specs {
		peers[i].Member = introspect.Member{Rank: i, Host: r.cfg.Hosts[spec.Host].Name(), State: introspect.StateNotBegun}
	}
	for _, k := range r.ranks {
		p := &peers[k.Rank]
		p.Member.PID, p.Member.State = k.PID, r.stateOf(k)
		switch p.Member.State {
		case introspect.StateAnswered:
			p.Conn, p.Process = k.questions, k.process
		case introspect.StateNotInited, introspect.StateForeign, introspect.StateSilent:
			p.Process = k.process
		}
	}
	return peers
}

// stateOf returns the state of a rank. StateAnswered stands for a rank that can be asked.
func (r *run) stateOf(k *rank) introspect.State {
	switch {
	case k.lost:
		return introspect.StateLost
	case k.exited:
		return introspect.StateExited
	case k.isAskable():
		return introspect.StateAnswered
	case k.questions.HasEnded():
		return introspect.StateFinalized
	case k.questions.HasGreeted(): // an error ended its connection, or it broke the protocol
		return introspect.StateSilent
	}
	switch r.server.State(k.Rank) {
	case wireup.StateNeverInited:
		return introspect.StateNotInited
	case wireup.StateFinalized:
		return introspect.StateFinalized
	}
	return introspect.StateForeign
}

// isAskable reports whether the rank uses the library, and is between Init and Finalize.
func (k *rank) isAskable() bool { return k.questions.HasGreeted() && !k.questions.IsGone() }

// process implements introspect.Peer.Process.
func (k *rank) process(ctx context.Context) (text string, isStopped bool) {
	s := k.State(ctx)
	return s.String(), s.IsStopped()
}

// canAsk reports whether some rank can be asked.
func (r *run) canAsk() bool {
	for _, k := range r.ranks {
		if k.isAskable() {
			return true
		}
	}
	return false
}

// diagnose asks all ranks what they do, and makes a report. It calls print, which decides whether
// the report is printed and under which title, and finally then. It calls neither if the job has
// failed or ended meanwhile. Run's goroutine makes both calls, and handles other events while the
// ranks are asked, for a little more than introspect.AnswerTimeout, and while files are written.
// After a report was printed, another goroutine calls record.
func (r *run) diagnose(print func(*diagnose.Report) (title string), record, then func()) {
	r.diagnosing = true
	peers, info := r.peers(), r.Info()
	after := func(f func()) {
		r.post(func() {
			if r.failure == nil && r.alive > 0 {
				f()
			}
		})
	}
	go func() {
		ctx, cancel := r.untilDone(context.Background())
		defer cancel()
		report := diagnose.New(info, introspect.AskAll(ctx, introspect.WantReport, peers))
		after(func() {
			title := print(report)
			go func() {
				if title != "" {
					r.printReport(title, report)
					record()
				}
				r.post(func() { r.diagnosing = false })
				after(then)
			}()
		})
	}()
}

// untilDone returns a context that also ends with the job. The caller has to call cancel.
func (r *run) untilDone(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	ctx, cancel = context.WithCancel(parent)
	go func() {
		select {
		case <-r.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

const (
	// reportLimit bounds the time from the moment at which a job is to end to its end, within which
	// the ranks are asked and the report is printed. Slow files and silent hosts cannot exceed it.
	// traceLimit is added in a job that records a trace.
	reportLimit = introspect.AnswerTimeout + 3*time.Second
	traceLimit  = introspect.AnswerTimeout
)

// reportAndEnd prints a report under a title, and makes the ranks write their traces, because a
// rank that hangs would not write its trace at the end. Then it calls end, which must end the job.
// It calls end after reportLimit and traceLimit at the latest.
func (r *run) reportAndEnd(title string, end func()) {
	endOnce := func() {
		if r.failure == nil {
			end()
		}
	}
	limit := reportLimit
	if r.cfg.DumpTrace != nil {
		limit += traceLimit
	}
	r.after(limit, endOnce)
	r.diagnose(func(*diagnose.Report) string { return title }, func() {
		if r.cfg.DumpTrace != nil {
			ctx, cancel := context.WithTimeout(context.Background(), traceLimit)
			defer cancel()
			r.Ask(ctx, introspect.WantTrace)
		}
	}, endOnce)
}

// Trace implements jobsocket.Tracer. It returns the result in one line, or "" if the job ends or
// records no trace.
func (r *run) Trace(ctx context.Context) string {
	if r.cfg.DumpTrace == nil {
		return ""
	}
	ctx, cancel := r.untilDone(ctx)
	defer cancel()
	members := r.Ask(ctx, introspect.WantTrace)
	if members == nil {
		return ""
	}
	line := r.cfg.DumpTrace(ctx, members)
	if ctx.Err() != nil {
		return "" // the trace at the job's end replaces this one
	}
	return line
}

// printTrace makes the trace of the job so far, and prints its path.
func (r *run) printTrace() {
	if line := r.Trace(context.Background()); line != "" {
		r.printLine(line)
	}
}

// reportDirGrace bounds the time for writing the files of --report-dir, because a file system may
// hang.
const reportDirGrace = 5 * time.Second

// printReport prints a report, and writes the files of --report-dir.
func (r *run) printReport(title string, report *diagnose.Report) {
	text := title + "\n" + report.Text()
	if r.cfg.ReportDir == "" {
		r.printLine(text + "(mpirun-go diagnose --dir DIR and --report-dir DIR write the stacks of all goroutines)")
		return
	}
	r.printLine(strings.TrimSuffix(text, "\n"))
	if err := bounded(reportDirGrace, func() error { return report.WriteDir(r.cfg.ReportDir) }); err != nil {
		r.printLine("--report-dir: " + err.Error())
		return
	}
	r.stderr.Line("full reports with the stacks of all goroutines: " + r.cfg.ReportDir)
}

// bounded calls f on a goroutine of its own, and waits for at most limit until it returns.
func bounded(limit time.Duration, f func() error) error {
	result := make(chan error, 1)
	go func() { result <- f() }()
	select {
	case err := <-result:
		return err
	case <-time.After(limit):
		return fmt.Errorf("the files are not written after %v", limit)
	}
}

// closeQuestions closes the connections to the ranks. Processes that the ranks have left running
// may hold the other ends open.
func (r *run) closeQuestions() {
	for _, k := range r.ranks {
		_ = k.questions.Close()
	}
}

// Info implements jobsocket.Job.
func (r *run) Info() jobsocket.Info { return r.info }

// Ask implements jobsocket.Job. Any goroutine may call it.
func (r *run) Ask(ctx context.Context, want introspect.Want) []introspect.Member {
	peers := make(chan []introspect.Peer, 1)
	select {
	case r.calls <- func() { peers <- r.peers() }:
	case <-r.done:
		return nil
	case <-ctx.Done():
		return nil
	}
	select {
	case list := <-peers:
		return introspect.AskAll(ctx, want, list)
	case <-r.done:
	case <-ctx.Done():
	}
	return nil
}

// listen opens the job's socket for mpirun-go diagnose. If it fails, the job runs without the
// socket.
func (r *run) listen() (stop func()) {
	if r.cfg.OnSocket == nil {
		return func() {}
	}
	s, err := jobsocket.Listen(r)
	if err != nil {
		r.printLine("warning: mpirun-go diagnose will not find this job: " + err.Error())
		return func() {}
	}
	r.cfg.OnSocket(s.Path())
	return s.Close
}
