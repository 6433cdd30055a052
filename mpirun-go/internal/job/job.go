// Package job runs a job from the start of its first rank to the end of its last
// process, and decides how it ended.
//
// All decisions are made on one goroutine, in Run. The others wait (for a process,
// a connection, a stream) and post what they saw as a function for that goroutine
// to call. The first thing that goes wrong is the job's verdict; nothing later
// changes it. Only that is not always what is seen first: a verdict that may be no
// more than the symptom of another rank's death is held for a moment (blame.go).
// From then on the job is being ended: a signal to all ranks, and after
// a grace time SIGKILL to whatever is left.
package job

import (
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/mpigo/mpigo/internal/wireup"
	"github.com/mpigo/mpigo/mpirun-go/internal/output"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
)

// A Host is a place where ranks are started: this machine (procs.Local), or another one (remote.Host).
type Host interface {
	Name() string
	// StartAll starts ranks in order, until one cannot be started. It calls started for each, with an error if there is one. When that
	// says no, those that are on their way to another machine are started all the same.
	StartAll(specs []procs.Spec, started func(procs.Spec, *procs.Proc, error) (goOn bool))
	SignalGroups(syscall.Signal) // to every rank and what it started
	KillGroups()                 // the same with SIGKILL
	Kill()                       // and to what has left the ranks' process groups; another machine starts no rank after it
	Watch(lost func(error))      // has lost called, on another goroutine, if the host cannot be reached any more
}

// Config is a job that is ready to start.
type Config struct {
	Hosts    []Host
	Remote   bool         // some of them are other machines: of their ranks one hears late
	Specs    []procs.Spec // in order of ranks; each says which of the hosts it is for
	AppNum   []int        // index of each rank's program
	JobID    string
	Universe int // processes that there is room for

	Timeout time.Duration    // 0: none
	Signals <-chan os.Signal // what the launcher gets

	Input           io.Reader // for the ranks whose Stdin is a pipe
	Stdout, Stderr  io.Writer
	Files           []output.Files // of each rank, instead of Stdout and Stderr; nil: none
	Style           output.Style
	Notices         <-chan string       // lines of others, for Stderr; nil: none
	SetSilenceLimit func(time.Duration) // from now on a host is lost that says nothing for so long; nil: none is another machine
	Flush           func()              // waits a moment until what the hosts were told is on its way; nil: nothing is to be waited for
}

// run is the state of Run. Only Run's goroutine touches it, save for what is
// said to be for others.
type run struct {
	cfg    Config
	server *wireup.Server // for all
	ranks  []*rank        // those that were started
	alive  int            // of them, not known to have ended

	starting  int           // hosts on which more ranks are to be started
	stopStart chan struct{} // for all: closed when none is to be started any more
	postponed []os.Signal   // for the ranks, when all are started

	calls chan func()   // for all, by post
	done  chan struct{} // for all: closed when no call will be made any more

	stdout, stderr sink           // for all
	sinks          []sink         // these two and those of files
	outputs        sync.WaitGroup // streams being copied
	outputDone     chan struct{}  // closed when none is

	failure    *failure   // nil: so far, so good
	pending    []*failure // one of them will be the verdict; nothing is being ended yet
	exiting    []*rank    // ranks that have to be heard before one is chosen
	killed     bool
	gaveUp     bool // some ranks do not end
	impatient  bool // the user wants the end: a slow reader of our output is not waited for
	lastSignal signalFilter
}

// rank is one rank as Run sees it.
type rank struct {
	*procs.Proc
	host         int           // its host's number
	served       chan struct{} // closed when its connection is over
	serveErr     error         // what Serve returned; written before served is closed
	exited       bool
	exitOrder    int        // if it has ended: among the ranks of its host that have, from 1
	arrival      int        // the same among all ranks, as it was heard of here
	lost         bool       // it counts as ended, because its host was lost
	unresponsive bool       // in the way that leaves it open whether it still runs
	exit         procs.Exit // if it has ended: how
	aborted      bool
	signalled    bool // was well when the job's end began, and was told to end
}

// Run starts the ranks and returns the job's exit status when nothing of it is
// left. A failure is reported in one line on cfg.Stderr.
func Run(cfg Config) int {
	r := &run{
		cfg:        cfg,
		calls:      make(chan func(), 64),
		done:       make(chan struct{}),
		stopStart:  make(chan struct{}),
		outputDone: make(chan struct{}),
	}
	defer close(r.done)
	r.stdout = r.newSink("standard output", cfg.Stdout)
	r.stderr = r.newSink("standard error", cfg.Stderr)
	server, err := wireup.NewServer(wireup.ServerConfig{
		Size:         len(cfg.Specs),
		JobID:        cfg.JobID,
		NodeOf:       nodes(cfg.Specs),
		AppNum:       cfg.AppNum,
		UniverseSize: cfg.Universe,
		OnAbort: func(rank, code int, message string) {
			r.post(func() { r.onAbort(rank, code, message) })
		},
	})
	if err != nil {
		r.stderr.Line("mpirun-go: " + err.Error())
		return 1
	}
	r.server = server

	if cfg.Timeout > 0 {
		r.after(cfg.Timeout, r.onTimeout)
	}
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

// post hands f to Run's goroutine.
func (r *run) post(f func()) {
	select {
	case r.calls <- f:
	case <-r.done:
	}
}

// after calls f on Run's goroutine when d has passed.
func (r *run) after(d time.Duration, f func()) {
	time.AfterFunc(d, func() { r.post(f) })
}

// turn waits for the next thing to happen and deals with it.
func (r *run) handleNext() {
	select {
	case f := <-r.calls:
		f()
	case sig := <-r.cfg.Signals:
		r.onSignal(sig)
	}
}

// nodes is the host of each rank.
func nodes(specs []procs.Spec) []int {
	nodeOf := make([]int, len(specs))
	for i, spec := range specs {
		nodeOf[i] = spec.Host
	}
	return nodeOf
}

// start starts the ranks.
func (r *run) startRanks() {
	if r.cfg.Remote {
		r.startAll()
		return
	}
	r.startLocal()
	r.allStarted()
}

// startHere starts rank after rank, until all run or something has gone wrong.
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

// startAll starts the ranks of all hosts at once, until all run or something has gone wrong.
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

// enough is whether no more ranks are to be started. It is for all.
func (r *run) startStopped() bool {
	select {
	case <-r.stopStart:
		return true
	default:
		return false
	}
}

// late deals with a rank that was being started when the job's end began.
func (r *run) onLateStart(k *rank) {
	if r.failure == nil {
		return
	}
	k.signalled = true
	if r.killed && k.Remote == nil { // another machine has heard of the end in its turn, after this start
		r.hostOf(k).Kill()
	}
}

// allStarted begins what takes all ranks that there will be.
func (r *run) allStarted() {
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

// host is where a rank runs.
func (r *run) hostOf(k *rank) Host { return r.cfg.Hosts[k.host] }

// watch begins to serve a rank that has just been started.
func (r *run) serveRank(proc *procs.Proc) *rank {
	k := &rank{Proc: proc, host: r.cfg.Specs[proc.Rank].Host, served: make(chan struct{})}
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
		exit, place, err := k.Wait()
		// The connection normally ends before the process does. Something that
		// the rank started may hold it open.
		select {
		case <-k.served:
		case <-time.After(connectionGrace):
		}
		r.post(func() { r.onExit(k, exit, place, err) })
	}()

	stdout, stderr, alone := r.stdout, r.stderr, len(r.cfg.Specs) == 1
	if r.cfg.Files != nil {
		files := r.cfg.Files[k.Rank]
		stdout = r.newSink(files.Stdout.Name(), files.Stdout)
		stderr = r.newSink(files.Stderr.Name(), files.Stderr)
		alone = true
	}
	r.copyOutput(k.Stdout, output.NewStream(stdout.Sink, k.Rank, r.cfg.Style, alone))
	r.copyOutput(k.Stderr, output.NewStream(stderr.Sink, k.Rank, r.cfg.Style, alone))
	return k
}
