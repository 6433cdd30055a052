package job

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
)

// recorder is a host that notes what it is told.
type recordingHost struct {
	Host    // nil: starts nothing
	signals []syscall.Signal
	kills   int
	name    string
}

func (h *recordingHost) SignalGroups(s syscall.Signal) { h.signals = append(h.signals, s) }
func (h *recordingHost) Kill()                         { h.kills++ }
func (h *recordingHost) Name() string                  { return h.name }

// still is a run without processes, for which nothing happens later.
func newIdleRun(ranks ...*rank) (*run, *recordingHost) {
	host, done := &recordingHost{}, make(chan struct{})
	close(done)
	return &run{cfg: Config{Hosts: []Host{host}}, done: done, stopStart: make(chan struct{}), ranks: ranks}, host
}

// gone is a process that is there no longer.
func goneProcess() *procs.Proc { return &procs.Proc{PID: 1 << 30} }

// The first signal gives the ranks their time to end, and the blame to a rank that has failed
// before, although that verdict was held.
func TestSignalKeepsPendingFailure(t *testing.T) {
	failed := &rank{Proc: goneProcess(), exited: true, exitOrder: 1, exit: procs.Exit{Code: 7}}
	r, host := newIdleRun(failed, &rank{Proc: goneProcess()})
	pending := &failure{status: 7, rank: failed, priority: barrierFailed}
	r.addFailure(pending)
	assert.Nil(t, r.failure)

	r.onSignal(syscall.SIGINT)
	assert.Same(t, pending, r.failure)
	assert.Equal(t, []syscall.Signal{syscall.SIGINT, syscall.SIGCONT}, host.signals)
	assert.Zero(t, host.kills)
	r.addFailure(&failure{status: 130, rank: r.ranks[1], priority: exited})
	r.chooseFailure()
	assert.Same(t, pending, r.failure)

	r.onSignal(syscall.SIGTERM)
	assert.Equal(t, 1, host.kills)
	assert.Same(t, pending, r.failure)
}

func TestSignalFailsJob(t *testing.T) {
	r, host := newIdleRun(&rank{Proc: goneProcess()})
	r.onSignal(syscall.SIGQUIT)
	assert.Equal(t, &failure{status: 131, line: "got signal 3 (quit)"}, r.failure)
	assert.Equal(t, []syscall.Signal{syscall.SIGQUIT, syscall.SIGCONT}, host.signals)
	assert.Zero(t, host.kills)
}

func TestSignalFilterWindow(t *testing.T) {
	var p signalFilter
	t0 := time.Now()
	assert.False(t, p.isRepeat(syscall.SIGINT, t0))
	assert.True(t, p.isRepeat(syscall.SIGINT, t0.Add(repeatGrace-1)))
	assert.False(t, p.isRepeat(syscall.SIGINT, t0.Add(repeatGrace)), "a user who insists")
	assert.False(t, p.isRepeat(syscall.SIGTERM, t0.Add(repeatGrace)), "another signal")
}

// A rank that was being started when all was killed is killed too, unless it is of another machine: that has started it before
// it heard of the end, and to kill all again for each of many takes long.
func TestLateLocalRankIsKilled(t *testing.T) {
	r, host := newIdleRun()
	r.failure, r.killed = &failure{}, true
	r.onLateStart(&rank{Proc: &procs.Proc{Remote: struct{ procs.Control }{}}})
	assert.Zero(t, host.kills)
	r.onLateStart(&rank{Proc: goneProcess()})
	assert.Equal(t, 1, host.kills)
}

// A host that is silent at the end is told of, and a user who insists waits less for it.
func TestUnresponsiveHostIsReported(t *testing.T) {
	unresponsive := errors.Join(procs.ErrLost, procs.ErrUnresponsive)
	r, host := newIdleRun(&rank{Proc: &procs.Proc{Rank: 0, PID: 1 << 30}}, &rank{Proc: &procs.Proc{Rank: 1, PID: 1 << 30}}, &rank{Proc: &procs.Proc{Rank: 4, PID: 44}, host: 1})
	host.name = "n1"
	r.cfg.Hosts = append(r.cfg.Hosts, &recordingHost{name: "n2"})
	stderr := &lockedBuffer{}
	r.stderr = r.newSink("standard error", stderr)
	var limits []time.Duration
	r.cfg.SetSilenceLimit = func(d time.Duration) { limits = append(limits, d) }
	r.onSignal(syscall.SIGINT)
	r.onSignal(syscall.SIGTERM)
	assert.Equal(t, []time.Duration{responseGrace, repeatedSignalGrace}, limits)

	r.onExit(r.ranks[0], procs.Exit{}, 0, unresponsive)
	r.onExit(r.ranks[1], procs.Exit{}, 0, unresponsive)
	r.onExit(r.ranks[2], procs.Exit{}, 0, unresponsive)
	assert.Equal(t, 130, r.report())
	assert.Equal(t, "mpirun-go: host n1 does not answer: its 2 ranks may still run there, for at most five minutes\n"+
		"mpirun-go: host n2 does not answer: its rank 4 (pid 44) may still run there, for at most five minutes\n"+
		"mpirun-go: got signal 2 (interrupt)\n", stderr.String())
}
