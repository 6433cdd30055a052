package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/mpirun-go/internal/cli"
	"github.com/mpigo/mpigo/mpirun-go/internal/doctor"
	"github.com/mpigo/mpigo/mpirun-go/internal/job"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
	"github.com/mpigo/mpigo/mpirun-go/internal/remote"
	"github.com/mpigo/mpigo/mpirun-go/internal/slots"
	"github.com/mpigo/mpigo/mpirun-go/internal/stdin"
)

// doctorOptions are the flags of mpirun-go doctor itself.
type doctorOptions struct {
	json, all, help bool
}

// parseDoctor parses the arguments of mpirun-go doctor. The command it returns runs this program,
// in another mode, as one rank on each host.
func parseDoctor(args []string) (*cli.Command, doctorOptions, error) {
	flags := flag.NewFlagSet("doctor", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	var o doctorOptions
	flags.BoolVar(&o.json, "json", false, "")
	for _, name := range []string{"v", "verbose"} {
		flags.BoolVar(&o.all, name, false, "")
	}
	var forJob []string
	for _, name := range []string{"H", "host", "hostfile", "launcher", "agent", "connect-timeout", "btl", "set"} {
		flags.Func(name, "", func(s string) error {
			forJob = append(forJob, "--"+name, s)
			return nil
		})
	}
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil, doctorOptions{help: true}, nil
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if err != nil {
		return nil, o, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, o, err
	}
	cmd, err := cli.Parse(append(forJob, "--map-by", "ppr:1:node", "--stdin", "none", self, doctor.RankArg))
	return cmd, o, err
}

// runDoctor runs mpirun-go doctor and returns the exit status: 1 if something is broken.
func runDoctor(con *console, args []string) int {
	cmd, o, err := parseDoctor(args)
	if o.help {
		fmt.Print(doctorHelp)
		return 0
	}
	if err != nil {
		con.logf("doctor: %v (mpirun-go doctor --help)", err)
		return statusUsage
	}
	examined, err := examine(con, cmd, con.catchSignals())
	if err != nil {
		return reportStart(con, procs.ExplainDescriptors(err, 1))
	}
	report := doctor.NewReport(examined)
	err = con.print(func() error {
		if o.json {
			return report.JSON(os.Stdout)
		}
		return report.Text(os.Stdout, o.all)
	})
	interrupted := (*interruptedError)(nil)
	switch {
	case errors.As(err, &interrupted):
		return interrupted.status()
	case err != nil:
		con.logf("doctor: %v", err)
		return statusFailed
	case !report.Healthy:
		return statusFailed
	}
	return 0
}

// doctorTimeout bounds the doctor's job. Its steps have limits of their own; this is for a host
// that stops in between.
func doctorTimeout(hosts int) time.Duration {
	return time.Minute + time.Duration(hosts)*2*time.Second
}

// examine runs the doctor's job.
func examine(con *console, cmd *cli.Command, signals <-chan os.Signal) (*doctor.Job, error) {
	set, err := tunables(cmd.Settings)
	if err != nil {
		return nil, usageError(oneLine(err))
	}
	warnUnknownVariables(con, nil)
	machine := slots.ThisMachine()
	requested, agent, err := requestedHosts(cmd, machine)
	if err != nil {
		return nil, usageError(err)
	}
	id, err := newIdentity(len(requested))
	if err != nil {
		return nil, err
	}
	waiting := showWaiting(con, fmt.Sprintf("connecting to %s", slots.Plural(len(requested), "host")))
	hs, unreachable, err := openReachable(con, cmd, requested, agent, id, machine, signals)
	waiting()
	defer hs.close()
	if err != nil {
		return nil, err
	}
	out := &doctor.Job{Settings: set}
	for i, h := range hs.requested {
		out.Hosts = append(out.Hosts, doctor.Host{Name: h.Name, Rank: i, Slots: max(1, h.SlotCount(hs.machines[i].CPUs()))})
	}
	reader := &doctor.Reader{OnProgress: func(done, of int) { con.logf("doctor: trying connections: %d of %d are done", done, of) }}
	if len(hs.requested) > 0 {
		id.Size, cmd.Groups[0].Ranks = len(hs.requested), len(hs.requested)
		if err := runDoctorJob(con, cmd, hs, id, set, signals, reader); err != nil {
			return nil, err
		}
	}
	for _, failed := range unreachable {
		out.Hosts = append(out.Hosts, doctor.Host{Name: failed.Host, Rank: len(out.Hosts), Error: failed.Error()})
	}
	reader.Fill(out, "its rank ended before it had looked at the host")
	return out, nil
}

// runDoctorJob runs the job on hosts that are connected.
func runDoctorJob(con *console, cmd *cli.Command, hs *hostSet, id job.Identity, set tunable.Set, signals <-chan os.Signal, reader *doctor.Reader) error {
	places, err := slots.Map(id.Size, hs.requested, hs.machines, cmd.MapBy, false)
	if err != nil {
		return usageError(err)
	}
	specs, appNum, err := plan(cmd, places, id, set, hs)
	if err != nil {
		return err
	}
	cleanUp, err := buildPrograms(con, cmd, specs, appNum, id.JobID, hs.local, signals)
	defer cleanUp()
	if err != nil {
		return err
	}
	if err := hs.ensurePrograms(specs, signals); err != nil {
		return err
	}
	cfg := job.Config{
		Hosts: hs.hosts, Remote: hs.cluster != nil, Specs: specs, AppNum: appNum, JobID: id.JobID,
		Universe: id.Size, Timeout: doctorTimeout(id.Size), Signals: signals,
		Input: stdin.Source(os.Stdin), Stdout: reader, Stderr: con.stderr, Notices: hs.notices,
	}
	if hs.cluster != nil {
		cfg.Flush, cfg.SetSilenceLimit = hs.cluster.Flush, hs.cluster.SetSilenceLimit
	}
	wasInterrupted := catchInterrupts()
	job.Run(cfg)
	return wasInterrupted() // a rank that failed may have reported a part, or nothing
}

// catchInterrupts catches the signals that end a job. The result returns an error if one has come.
// The job's exit status cannot tell, because a signal may also have killed a rank.
func catchInterrupts() (wasInterrupted func() error) {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(caught, syscall.SIGHUP)
	}
	return func() error {
		signal.Stop(caught)
		select {
		case s := <-caught:
			status := 128
			if number, ok := s.(syscall.Signal); ok {
				status += int(number)
			}
			return &statusError{status, errors.New("doctor: interrupted")}
		default:
			return nil
		}
	}
}

// openReachable calls openHosts, without the hosts that cannot be reached, and returns the reasons.
// If one host cannot be reached, it tries each host by itself, to find all such hosts at once.
func openReachable(con *console, cmd *cli.Command, requested []slots.Host, agent remote.Agent, id job.Identity, machine slots.Machine, signals <-chan os.Signal) (hs *hostSet, failed []*remote.HostError, err error) {
	for {
		id.Size = len(requested)
		hs, err = openHosts(con, cmd, requested, agent, id, machine, signals)
		var first *remote.HostError
		if !errors.As(err, &first) {
			return hs, failed, err
		}
		hs.close()
		hs = &hostSet{con: con, notices: hs.notices}
		found, err := unreachableHosts(cmd, requested, agent, id, signals)
		if err != nil {
			return hs, failed, err
		}
		for _, f := range append(found, first) {
			isSame := func(h slots.Host) bool { return h.Name == f.Host }
			if i := slices.IndexFunc(requested, isSame); i >= 0 {
				failed = append(failed, f)
				requested = slices.Delete(slices.Clone(requested), i, i+1)
			}
		}
		if len(requested) == 0 {
			return hs, failed, nil
		}
	}
}

// maxTries bounds how many hosts are tried at a time.
const maxTries = 16

// unreachableHosts tries each remote host by itself. Only a signal is an error.
func unreachableHosts(cmd *cli.Command, requested []slots.Host, agent remote.Agent, id job.Identity, signals <-chan os.Signal) (failed []*remote.HostError, err error) {
	err = interruptible(signals, func(ctx context.Context) error {
		var mu sync.Mutex
		var tries sync.WaitGroup
		free := make(chan struct{}, maxTries)
		for _, h := range requested {
			if h.Local {
				continue
			}
			free <- struct{}{}
			tries.Go(func() {
				defer func() { <-free }()
				c, err := remote.Connect(ctx, remote.Config{
					Agent: agent, Names: []string{h.Name}, Secret: id.Secret, JobID: id.JobID, Timeout: cmd.ConnectTimeout,
					Notify: func(host, line string) {},
				})
				if err == nil {
					c.Close()
				}
				if why := (*remote.HostError)(nil); errors.As(err, &why) {
					mu.Lock()
					failed = append(failed, why)
					mu.Unlock()
				}
			})
		}
		tries.Wait()
		return context.Cause(ctx)
	})
	return failed, err
}

// showWaiting prints what takes long, after 2 s and then every 10 s, until the result is called.
func showWaiting(con *console, what string) (stop func()) {
	done := make(chan struct{})
	go func() {
		next := time.NewTimer(2 * time.Second)
		defer next.Stop()
		for {
			select {
			case <-done:
				return
			case <-next.C:
				con.logf("doctor: %s", what)
				next.Reset(10 * time.Second)
			}
		}
	}()
	return func() { close(done) }
}
