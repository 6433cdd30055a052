package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/mpigo/mpigo/internal/jobsocket"
	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/mpirun-go/internal/cli"
	"github.com/mpigo/mpigo/mpirun-go/internal/job"
	"github.com/mpigo/mpigo/mpirun-go/internal/live"
	"github.com/mpigo/mpigo/mpirun-go/internal/output"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
	"github.com/mpigo/mpigo/mpirun-go/internal/slots"
	"github.com/mpigo/mpigo/mpirun-go/internal/stdin"
)

// statusError is an error with the launcher's exit status for it.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

func usageError(err error) error { return &statusError{statusUsage, err} }

// launch runs the job that cmd describes, or reports err, the error of parsing the command line.
// helpCommand is the command that prints help. launch returns the exit status.
func launch(con *console, cmd *cli.Command, err error, helpCommand string) int {
	switch {
	case errors.Is(err, cli.ErrHelp):
		fmt.Print(help)
		return 0
	case errors.Is(err, cli.ErrVersion):
		printVersion()
		return 0
	case err != nil:
		con.logf("%v (%s)", err, helpCommand)
		return statusUsage
	}
	signals := con.catchSignals()
	status, err := runJob(con, cmd, signals)
	if err == nil {
		return status
	}
	return reportStart(con, procs.ExplainDescriptors(err, cmd.Size()))
}

// reportStart prints why a job did not start, and returns the exit status for it.
func reportStart(con *console, err error) int {
	if interrupted := (*interruptedError)(nil); errors.As(err, &interrupted) {
		con.logf("%v before any rank was started", err)
		return interrupted.status()
	}
	con.logf("%v", err)
	if s := (*statusError)(nil); errors.As(err, &s) {
		return s.status
	}
	return statusFailed
}

// runJob runs the job that cmd describes. It returns an error only for a failure before the job
// starts; job.Run reports later failures.
func runJob(con *console, cmd *cli.Command, signals <-chan os.Signal) (int, error) {
	records, err := newRecorder(con, cmd)
	if err != nil {
		return 0, usageError(err)
	}
	if cmd.ReportDir != "" {
		if err := makeWritable(cmd.ReportDir); err != nil {
			return 0, usageError(fmt.Errorf("--report-dir: %w", err))
		}
	}
	set, err := tunables(cmd.Settings)
	if err != nil {
		return 0, usageError(oneLine(err))
	}
	warnUnknownVariables(con, cmd.Groups)
	machine := slots.ThisMachine()
	requested, agent, err := requestedHosts(cmd, machine)
	if err != nil {
		return 0, usageError(err)
	}
	id, err := newIdentity(cmd.Size())
	if err != nil {
		return 0, err
	}
	hs, err := openHosts(con, cmd, requested, agent, id, machine, signals)
	defer hs.close()
	if err != nil {
		return 0, err
	}
	places, err := slots.Map(id.Size, hs.requested, hs.machines, cmd.MapBy, cmd.BindTo == cli.BindCore)
	if err != nil {
		return 0, usageError(err)
	}
	if err := hs.checkDescriptors(places); err != nil {
		return 0, err
	}
	specs, appNum, err := plan(cmd, places, id, set, hs)
	if err != nil {
		return 0, err
	}
	cleanUp, err := buildPrograms(con, cmd, specs, appNum, id.JobID, hs.local, signals)
	defer cleanUp()
	if err != nil {
		return 0, err
	}
	if err := hs.ensurePrograms(specs, signals); err != nil {
		return 0, err
	}
	if cmd.Debug {
		if err := debug(con, cmd, specs, hs); err != nil {
			return 0, err
		}
	}
	err = interruptible(signals, func(ctx context.Context) error {
		records.findHosts(ctx, hs, specs, id.JobID)
		return context.Cause(ctx)
	})
	if err != nil {
		return 0, err
	}
	var files []output.Files
	if cmd.OutputDir != "" {
		if files, err = output.OpenFiles(cmd.OutputDir, id.Size); err != nil {
			return 0, usageError(err)
		}
	}
	if !cmd.Oversubscribe {
		hs.warnOversubscribed(places)
	}
	cfg := job.Config{
		Hosts: hs.hosts, Remote: hs.cluster != nil, Specs: specs, AppNum: appNum, JobID: id.JobID,
		Universe: max(id.Size, hs.universe()), Timeout: cmd.Timeout, KillAfter: cmd.KillAfter, Signals: signals,
		Command: commandLine(cmd.Groups), HangAfter: cmd.HangAfter, ReportDir: cmd.ReportDir, OnSocket: hs.local.RemoveIfKilled,
		Input: stdin.Source(os.Stdin), Stdout: os.Stdout, Stderr: con.stderr, Files: files,
		Style:   output.Style{Tag: cmd.TagOutput, Timestamp: cmd.TimestampOutput},
		Notices: hs.notices, ReportBindings: cmd.ReportBindings || set.Bool("verbose"),
	}
	if cmd.Trace != "" {
		cfg.DumpTrace = records.dumpTrace
	}
	if hs.cluster != nil {
		cfg.Flush, cfg.SetSilenceLimit = hs.cluster.Flush, hs.cluster.SetSilenceLimit
	}
	if cmd.Metrics != "" {
		listener, err := listenForMetrics(con, cmd.Metrics)
		if err != nil {
			return 0, usageError(err)
		}
		cfg.OnStart = func(j jobsocket.Job) (stop func()) {
			return live.Serve(listener, j, func(err error) { con.logf("warning: --metrics: %v", err) })
		}
	}
	status := job.Run(cfg)
	// The first signal ends the wait for other hosts. The records that have arrived are still
	// merged.
	for _, do := range []func(context.Context){records.fetchLast, records.finish} {
		_ = interruptible(signals, func(ctx context.Context) error {
			do(ctx)
			return nil
		})
	}
	return status, nil
}

// commandLine returns the programs and their arguments in one line.
func commandLine(groups []cli.Group) string {
	var words []string
	for i, g := range groups {
		if i > 0 {
			words = append(words, ":")
		}
		words = append(words, g.Program)
		words = append(words, g.Args...)
	}
	return strings.Join(words, " ")
}

// listenForMetrics listens for Prometheus. With port 0 the system chooses a port, which is printed.
func listenForMetrics(con *console, address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--metrics %s: %w", address, err)
	}
	if strings.HasSuffix(address, ":0") {
		con.logf("metrics are at http://%s/metrics", listener.Addr())
	}
	return listener, nil
}

// warnOversubscribed prints a warning about the first host that has more ranks than slots.
func (hs *hostSet) warnOversubscribed(places []slots.Place) {
	for i, h := range hs.requested {
		ranks, slotCount := ranksOn(places, i), h.SlotCount(hs.machines[i].CPUs())
		if ranks > slotCount {
			hs.con.logf("warning: %d ranks on %s, which has %s: waiting ranks yield their processor (--oversubscribe turns this warning off)",
				ranks, h.Name, slots.Plural(slotCount, "slot"))
			return
		}
	}
}

// checkDescriptors checks the limit on open files for the ranks of this machine.
func (hs *hostSet) checkDescriptors(places []slots.Place) error {
	for i, h := range hs.requested {
		if h.Local {
			return procs.CheckDescriptors(ranksOn(places, i))
		}
	}
	return nil
}

// ranksOn returns the number of ranks on a host.
func ranksOn(places []slots.Place, host int) int {
	for _, place := range places {
		if place.Host == host {
			return place.LocalSize
		}
	}
	return 0
}

// tunables returns the tunables of the environment, overridden by those of the command line.
func tunables(settings []cli.Setting) (tunable.Set, error) {
	set, err := tunable.FromEnv(os.Getenv)
	if err != nil {
		return set, err
	}
	for _, s := range settings {
		if set, err = set.With(s.Key, s.Value, tunable.FromCommandLine); err != nil {
			return set, fmt.Errorf("%w (mpirun-go info lists all tunables)", err)
		}
	}
	return set, nil
}

// warnUnknownVariables prints a warning about each environment variable, the launcher's or one of
// -x, that is probably a misspelt tunable.
func warnUnknownVariables(con *console, groups []cli.Group) {
	environ := os.Environ()
	for _, g := range groups {
		for _, v := range g.Env {
			environ = append(environ, v.Name+"="+v.Value)
		}
	}
	for _, warning := range tunable.UnknownVariables(environ) {
		con.logf("warning: %s (mpirun-go info lists all tunables)", warning)
	}
}

// oneLine joins the lines of an error.
func oneLine(err error) error {
	return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
}
