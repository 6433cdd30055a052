package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/mpigo/mpigo/internal/jobsocket"
	"github.com/mpigo/mpigo/mpirun-go/internal/diagnose"
	"github.com/mpigo/mpigo/mpirun-go/internal/records"
	"github.com/mpigo/mpigo/mpirun-go/internal/slots"
)

// diagnoseFlags are the arguments of mpirun-go diagnose.
type diagnoseFlags struct {
	asJSON   bool
	dir, job string
}

// runDiagnose runs mpirun-go diagnose and returns the exit status.
func runDiagnose(con *console, args []string) int {
	f, err := parseDiagnose(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Print(diagnoseHelp)
		return 0
	}
	if err != nil {
		con.logf("diagnose: %v", err)
		return statusUsage
	}
	if f.job == "" {
		if f.job, err = onlyJob(); err != nil {
			con.logf("diagnose: %v", err)
			return statusFailed
		}
	}
	if err := diagnoseJob(con, f); err != nil {
		con.logf("diagnose: %v", err)
		return statusFailed
	}
	return 0
}

func parseDiagnose(args []string) (f diagnoseFlags, err error) {
	flags := flag.NewFlagSet("diagnose", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	flags.BoolVar(&f.asJSON, "json", false, "")
	flags.StringVar(&f.dir, "dir", "", "")
	for first := true; first || flags.NArg() > 0; first = false {
		if !first { // flags may follow JOB
			if f.job != "" {
				return f, fmt.Errorf("unexpected argument %q", flags.Arg(0))
			}
			f.job, args = flags.Arg(0), flags.Args()[1:]
		}
		if err := flags.Parse(args); err != nil {
			return f, err
		}
	}
	return f, nil
}

// onlyJob returns the name of the user's only running job. If there are several, the error lists
// them.
func onlyJob() (string, error) {
	jobs := jobsocket.Jobs()
	switch len(jobs) {
	case 0:
		return "", errors.New("no job of yours runs on this machine (for a job of Hydra or Slurm: the machine of rank 0)")
	case 1:
		return jobs[0].Name, nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d jobs are running, name one of them:", len(jobs))
	for _, j := range jobs {
		fmt.Fprintf(&b, "\n  %s", j.Name)
		if j.Size == 0 {
			b.WriteString("  does not answer: its launcher may be stopped")
			continue
		}
		fmt.Fprintf(&b, "  %s for %v: %.60s", slots.Plural(j.Size, "rank"), time.Since(j.Started).Round(time.Second), j.Command)
	}
	return "", errors.New(b.String())
}

// reportTrace has a job make its trace, and says where it is.
func reportTrace(con *console, c *jobsocket.Client) {
	a, err := c.Trace()
	line := a.Trace
	if err == nil && a.Job.TraceDir != "" {
		line = traceUntilNow(context.Background(), a.Job.TraceDir, records.Job{ID: a.Job.TraceJob, Size: a.Job.Size}, a.Members)
	}
	switch {
	case errors.Is(err, io.EOF):
		line = "trace: the job has ended"
	case err != nil:
		line = "trace: " + err.Error()
	}
	con.logf("%s", line)
}

func diagnoseJob(con *console, f diagnoseFlags) error {
	c, err := jobsocket.Dial(f.job)
	if err != nil {
		return err
	}
	defer c.Close()
	a, err := c.Report()
	if err != nil {
		return err
	}
	report := diagnose.New(a.Job, a.Members)
	if a.Job.Traces {
		// Report the trace even if the report fails, on standard error: standard output may be
		// JSON.
		defer func() { reportTrace(con, c) }()
	}
	if f.dir != "" {
		if err := report.WriteDir(f.dir); err != nil {
			return err
		}
	}
	if f.asJSON {
		return report.JSON(os.Stdout)
	}
	if !report.HasAnswers() {
		return fmt.Errorf("no rank of job %s can be asked: ranks answer between the end of Init and Finalize of mpigo", a.Job.Name)
	}
	fmt.Print(report.Text())
	if f.dir != "" {
		fmt.Println("full reports with the stacks of all goroutines: " + f.dir)
	}
	return nil
}
