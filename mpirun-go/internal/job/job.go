// Package job runs a job from the start of its first rank to the exit of its last process, and
// determines the job's exit status.
//
// Run's goroutine makes all decisions. Other goroutines wait for a process, a connection or a
// stream, and post what they observe as a function, which Run's goroutine calls. The first failure
// is the job's failure; later ones do not change it. Since a failure may be the consequence of
// another rank's death that the launcher has not observed yet, a failure is pending for a moment
// before it counts (failure.go).
//
// Then the launcher ends the job: it sends a signal to all ranks, and after a grace period SIGKILL
// to all processes of the job.
package job

import (
	"context"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/jobsocket"
	"github.com/mpigo/mpigo/internal/wireup"
	"github.com/mpigo/mpigo/mpirun-go/internal/output"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
)

// Host starts ranks on a machine: procs.Local on this machine, remote.Host on another.
type Host interface {
	Name() string
	// StartAll starts ranks in order, and calls report for each, with an error if the rank cannot
	// be started. It stops after an error, or when report returns false. Starts that are already on
	// their way to another machine still happen then.
	StartAll(specs []procs.Spec, report func(procs.Spec, *procs.Proc, error) (goOn bool))
	SignalGroups(syscall.Signal) // sends a signal to the ranks' process groups
	KillGroups()                 // sends SIGKILL to the ranks' process groups
	// Kill kills all processes of the job. Another machine starts no rank after it.
	Kill()
	// Watch calls lost, on another goroutine, if the host becomes unreachable.
	Watch(lost func(error))
}

// Config describes a job that is ready to start.
type Config struct {
	Hosts    []Host
	Remote   bool         // Hosts has other machines; reports about their ranks arrive late
	Specs    []procs.Spec // one for each rank, in order
	AppNum   []int        // for each rank, the index of its program
	JobID    string
	Universe int // number of slots of all hosts

	Command string           // the command line, for people who look for the job
	Timeout time.Duration    // 0: no limit
	Signals <-chan os.Signal // signals to the launcher
	// KillAfter is the time that ranks have from a signal to the launcher, or from Timeout, to
	// SIGKILL. 0 means signalGrace and failureGrace.
	KillAfter time.Duration

	HangAfter time.Duration // print a report after this time without progress; 0: never
	ReportDir string        // where full reports go; "": nowhere
	// DumpTrace makes a trace of the running job, after the ranks were asked to write their traces
	// (introspect.WantTrace), and returns the result in one line. It is nil if the job records no
	// trace. Any goroutine may call it. It returns soon after ctx ends.
	DumpTrace func(ctx context.Context, members []introspect.Member) string
	// OnSocket is called with the path of the socket that the job opens for mpirun-go diagnose. If
	// it is nil, the job opens none.
	OnSocket func(path string)
	// OnStart, if not nil, is called before the ranks start, with a job that can be asked. Its
	// result is called when the job is over.
	OnStart func(jobsocket.Job) (stop func())

	Input   io.Reader // copied to the ranks whose Stdin is a pipe
	Stdout  io.Writer
	Stderr  *output.Sink   // also gets lines of the caller; Run does not wait until all is written
	Files   []output.Files // for each rank, used instead of Stdout and Stderr; nil: unused
	Style   output.Style
	Notices <-chan string // lines of agents, for Stderr; nil: none
	// ReportBindings prints to which processors the ranks are bound.
	ReportBindings bool
	// SetSilenceLimit makes a host count as lost if it is silent for this time from now on. It is
	// nil if no host is remote.
	SetSilenceLimit func(time.Duration)
	// Flush waits for a moment until signals to remote hosts have been sent. It is nil if no host
	// is remote.
	Flush func()
}

// run is the state of Run. Only Run's goroutine accesses it, except fields marked as shared.
type run struct {
	cfg    Config
	server *wireup.Server // shared
	ranks  []*rank        // the ranks that have started
	alive  int            // number of ranks whose exit has not been reported

	starting  int           // number of hosts in StartAll
	stopStart chan struct{} // shared; closed when no more ranks are to start
	postponed []os.Signal   // sent to the ranks when all have started

	calls chan func()   // shared, used by post
	done  chan struct{} // shared; closed when Run returns

	stdout, stderr sink           // shared
	sinks          []sink         // stdout, stderr and the sinks of files
	outputs        sync.WaitGroup // counts the streams being copied
	outputDone     chan struct{}  // closed when all streams have ended

	lostHosts  map[int]bool // by index in cfg.Hosts
	failure    *failure     // nil: the job has not failed
	pending    []*failure   // one of these becomes failure; the job is not being ended yet
	exiting    []*rank      // ranks whose exits are awaited before failure is chosen
	killed     bool
	gaveUp     bool // some ranks survive SIGKILL
	endNow     bool // the job must end now: do not wait for a slow reader of the output
	lastSignal signalFilter
	info       jobsocket.Info // shared; does not change
	hang       *hangWatch     // nil: hangs are not detected
	quitting   bool           // a first SIGQUIT has come
	// A first SIGINT has come: the ranks are asked why they make no progress, or the job ends.
	interrupted bool
	diagnosing  bool // the ranks are asked for a report, or it is being printed
}

// rank is Run's view of one rank.
type rank struct {
	*procs.Proc
	host      int           // index of its host
	served    chan struct{} // closed when its PMI connection has ended
	serveErr  error         // result of Serve; written before served is closed
	questions *introspect.Conn
	sampler   sampler
	exited    bool
	exitOrder int // position in the order of exits on its host, from 1; valid if exited
	// Position among all ranks in the order in which the exits were reported.
	arrival      int
	lost         bool       // its host was lost; exited is set too
	unresponsive bool       // its host does not answer, so it may still run
	exit         procs.Exit // valid if exited and not lost
	aborted      bool
	signalled    bool // was running when the job's end began, and got a signal to end
}

// Run starts the ranks, and returns the job's exit status when no process of the job is left. It
// reports a failure in one line on cfg.Stderr. The caller waits for the reader of that line
// (output.Sink.Written).
func Run(cfg Config) int {
	r := &run{
		cfg: cfg, calls: make(chan func(), 64), done: make(chan struct{}),
		stopStart: make(chan struct{}), outputDone: make(chan struct{}),
	}
	defer close(r.done)
	r.stdout = r.addSink("standard output", output.NewSink(cfg.Stdout))
	r.stderr = r.addSink("standard error", cfg.Stderr)
	server, err := wireup.NewServer(wireup.ServerConfig{
		Size: len(cfg.Specs), JobID: cfg.JobID, NodeOf: hostIndexes(cfg.Specs), AppNum: cfg.AppNum,
		UniverseSize: cfg.Universe,
		OnAbort:      func(a wireup.Abort) { r.post(func() { r.onAbort(a) }) },
	})
	if err != nil {
		r.stderr.Line("mpirun-go: " + err.Error())
		return 1
	}
	r.server = server

	host, _ := os.Hostname()
	r.info = jobsocket.Info{
		Name: cfg.JobID, PID: os.Getpid(), Host: host, Size: len(cfg.Specs), Command: cfg.Command, Started: time.Now(),
		Traces: cfg.DumpTrace != nil,
	}
	defer r.closeQuestions()
	defer r.listen()()
	if cfg.OnStart != nil {
		defer cfg.OnStart(r)()
	}
	if cfg.Timeout > 0 {
		r.after(cfg.Timeout, r.onTimeout)
	}
	r.watchProgress()
	defer r.watchStdout()()
	for i, h := range cfg.Hosts {
		h.Watch(func(err error) { r.post(func() { r.onLost(i, err) }) })
	}
	r.forwardNotices()
	r.startRanks()
	for (r.alive > 0 || r.starting > 0) && !r.gaveUp {
		r.handleNext()
	}
	r.server.Fail(nil)
	r.finishOutput()
	return r.report()
}

// post makes Run's goroutine call f.
func (r *run) post(f func()) {
	select {
	case r.calls <- f:
	case <-r.done:
	}
}

// after makes Run's goroutine call f when d has passed.
func (r *run) after(d time.Duration, f func()) {
	time.AfterFunc(d, func() { r.post(f) })
}

// handleNext waits for the next event and handles it.
func (r *run) handleNext() {
	select {
	case f := <-r.calls:
		f()
	case sig := <-r.cfg.Signals:
		r.onSignal(sig)
	}
}

// hostIndexes returns the index of each rank's host.
func hostIndexes(specs []procs.Spec) []int {
	nodeOf := make([]int, len(specs))
	for i, spec := range specs {
		nodeOf[i] = spec.Host
	}
	return nodeOf
}

// startRanks starts the ranks.
func (r *run) startRanks() {
	if r.cfg.Remote {
		r.startAll()
		return
	}
	r.startLocal()
	r.allStarted()
}

// startLocal starts one rank after another, until all have started or the job has failed.
func (r *run) startLocal() {
	r.cfg.Hosts[0].StartAll(r.cfg.Specs, func(spec procs.Spec, proc *procs.Proc, err error) bool {
		if err != nil {
			r.onStartError(spec.Rank, err)
			return false
		}
		r.serveRank(proc)
		for {
			select {
			case f := <-r.calls:
				f()
			case sig := <-r.cfg.Signals:
				r.onSignal(sig)
			default:
				return !r.failed()
			}
		}
	})
}

// startAll starts the ranks of all hosts concurrently, until all have started or the job has
// failed.
func (r *run) startAll() {
	specs := make([][]procs.Spec, len(r.cfg.Hosts))
	for _, spec := range r.cfg.Specs {
		specs[spec.Host] = append(specs[spec.Host], spec)
	}
	r.starting = len(specs)
	for i, host := range r.cfg.Hosts {
		go func() {
			defer r.post(func() {
				if r.starting--; r.starting == 0 {
					r.allStarted()
				}
			})
			if r.startStopped() {
				return
			}
			host.StartAll(specs[i], func(spec procs.Spec, proc *procs.Proc, err error) bool {
				if err != nil {
					r.post(func() { r.onStartError(spec.Rank, err) })
					return false
				}
				r.post(func() { r.onLateStart(r.serveRank(proc)) })
				return !r.startStopped()
			})
		}()
	}
}

// startStopped reports whether no more ranks are to start. Any goroutine may call it.
func (r *run) startStopped() bool {
	select {
	case <-r.stopStart:
		return true
	default:
		return false
	}
}

// onLateStart handles a rank whose start is reported after the job's end began.
func (r *run) onLateStart(k *rank) {
	if r.failure == nil {
		return
	}
	k.signalled = true
	// A daemon handles the kill after this start, so it needs no second one.
	if r.killed && k.Remote == nil {
		r.hostOf(k).Kill()
	}
}

// allStarted runs the actions that need all ranks of the job.
func (r *run) allStarted() {
	if r.cfg.ReportBindings {
		r.reportBindings()
	}
	r.forwardStdin()
	for _, s := range r.postponed {
		r.onSignal(s)
	}
	r.postponed = nil
	go func() {
		r.outputs.Wait()
		close(r.outputDone)
	}()
}

// hostOf returns the rank's host.
func (r *run) hostOf(k *rank) Host { return r.cfg.Hosts[k.host] }

// serveRank starts to serve a rank that has just started.
func (r *run) serveRank(proc *procs.Proc) *rank {
	k := &rank{
		Proc: proc, host: r.cfg.Specs[proc.Rank].Host, served: make(chan struct{}),
		questions: introspect.NewConn(proc.Introspect),
	}
	r.ranks = append(r.ranks, k)
	r.alive++

	go func() {
		k.serveErr = r.server.Serve(k.Rank, k.PMI)
		close(k.served)
		if k.serveErr != nil {
			r.post(func() { r.onConnectionError(k) })
		}
	}()
	go func() {
		exit, exitOrder, err := k.Wait()
		// The connection normally ends before the process exits. A process that the rank has
		// started may hold it open.
		select {
		case <-k.served:
		case <-time.After(connectionGrace):
		}
		_ = k.questions.Close() // the same holds for this one
		r.post(func() { r.onExit(k, exit, exitOrder, err) })
	}()

	stdout, stderr, alone := r.stdout, r.stderr, len(r.cfg.Specs) == 1
	if r.cfg.Files != nil {
		files := r.cfg.Files[k.Rank]
		stdout = r.addSink(files.Stdout.Name(), output.NewSink(files.Stdout))
		stderr = r.addSink(files.Stderr.Name(), output.NewSink(files.Stderr))
		alone = true
	}
	r.copyOutput(k.Stdout, output.NewStream(stdout.Sink, k.Rank, r.cfg.Style, alone))
	errors := output.NewStream(stderr.Sink, k.Rank, r.cfg.Style, alone)
	if !alone {
		errors.TagPanics()
	}
	r.copyOutput(k.Stderr, errors)
	return k
}
