package job

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/mpirun-go/internal/output"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
)

// recordingHost is a Host that records calls.
type recordingHost struct {
	Host       // nil: the test starts no rank
	signals    []syscall.Signal
	kills      int
	groupKills int
	name       string
}

func (h *recordingHost) SignalGroups(s syscall.Signal) { h.signals = append(h.signals, s) }
func (h *recordingHost) Kill()                         { h.kills++ }
func (h *recordingHost) KillGroups()                   { h.groupKills++ }
func (h *recordingHost) Name() string                  { return h.name }

// newIdleRun returns a run without processes, whose timers have no effect.
func newIdleRun(ranks ...*rank) (*run, *recordingHost) {
	host, done := &recordingHost{}, make(chan struct{})
	close(done)
	return &run{cfg: Config{Hosts: []Host{host}}, done: done, stopStart: make(chan struct{}), ranks: ranks}, host
}

// newTimedRun returns a run without processes in a bubble of package synctest. Its timers have an
// effect when the test calls handleNext.
func newTimedRun(t *testing.T, ranks ...*rank) (*run, *recordingHost) {
	r, host := newIdleRun(ranks...)
	r.calls, r.done, r.alive = make(chan func(), 64), make(chan struct{}), len(ranks)
	t.Cleanup(func() { close(r.done) })
	return r, host
}

// pass makes time pass, and handles the events of that time.
func (r *run) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
	for len(r.calls) > 0 {
		r.handleNext()
	}
}

// goneProcess returns a process that does not exist.
func goneProcess() *procs.Proc { return &procs.Proc{PID: 1 << 30} }

// The first signal lets the ranks end by themselves, and makes the failure that was pending the
// job's failure.
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
	launcher, end := net.Pipe()
	defer end.Close()
	questions := introspect.NewConn(launcher) // the rank does not use the library
	defer questions.Close()
	r, host := newIdleRun(&rank{Proc: goneProcess(), questions: questions})
	r.onSignal(syscall.SIGQUIT)
	assert.Equal(t, &failure{status: 131, line: "got signal 3 (quit)"}, r.failure)
	assert.Equal(t, []syscall.Signal{syscall.SIGQUIT, syscall.SIGCONT}, host.signals)
	assert.Zero(t, host.kills)
}

func TestSignalFilterWindow(t *testing.T) {
	var p signalFilter
	t0 := time.Now()
	assert.False(t, p.isRepeat(syscall.SIGINT, t0))
	assert.True(t, p.isRepeat(syscall.SIGINT, t0.Add(repeatWindow-1)))
	assert.False(t, p.isRepeat(syscall.SIGINT, t0.Add(repeatWindow)), "the user repeats the signal")
	assert.False(t, p.isRepeat(syscall.SIGTERM, t0.Add(repeatWindow)), "another signal is not a repeat")
}

// Timeout(1) sends its signal twice. The second one does not shorten the ranks' grace period.
func TestRepeatedSignalKeepsGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, host := newTimedRun(t, &rank{Proc: goneProcess()})
		r.onSignal(syscall.SIGTERM)
		time.Sleep(repeatWindow - 1)
		r.onSignal(syscall.SIGTERM)
		assert.Equal(t, []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT}, host.signals)
		r.pass(signalGrace - repeatWindow)
		assert.Zero(t, host.kills)
		r.pass(1)
		assert.Equal(t, 1, host.kills)
	})
}

// --kill-after holds for a signal to the launcher and for --timeout, not for a failure.
func TestKillAfterIsTheTimeToSIGKILL(t *testing.T) {
	const long = time.Minute
	for name, test := range map[string]struct {
		end   func(r *run)
		grace time.Duration
	}{
		"signal":  {func(r *run) { r.onSignal(syscall.SIGTERM) }, long},
		"timeout": {func(r *run) { r.onTimeout() }, long},
		"failure": {func(r *run) { r.fail(&failure{}) }, failureGrace},
	} {
		synctest.Test(t, func(t *testing.T) {
			endless, end := net.Pipe()
			defer endless.Close()
			defer end.Close()
			questions := introspect.NewConn(endless) // the rank does not use the library
			defer questions.Close()
			r, host := newTimedRun(t, &rank{Proc: goneProcess(), questions: questions})
			r.cfg.KillAfter = long
			test.end(r)
			r.pass(test.grace - 1)
			assert.Zero(t, host.kills, name)
			r.pass(1)
			assert.Equal(t, 1, host.kills, name)
		})
	}
}

// Ranks that record a trace write it at SIGTERM.
func TestFailureLeavesTimeForTraces(t *testing.T) {
	for grace, traces := range map[time.Duration]bool{failureGrace: false, signalGrace: true} {
		synctest.Test(t, func(t *testing.T) {
			r, host := newTimedRun(t, &rank{Proc: goneProcess()})
			if traces {
				r.cfg.DumpTrace = func(context.Context, []introspect.Member) string { return "" }
			}
			r.fail(&failure{})
			r.pass(grace - 1)
			assert.Zero(t, host.kills)
			r.pass(1)
			assert.Equal(t, 1, host.kills)
		})
	}
}

// A local rank whose start is reported after the kill is killed too. A remote rank is not: its
// daemon handles the kill after the start, and to kill again for each of many ranks takes long.
func TestLateLocalRankIsKilled(t *testing.T) {
	r, host := newIdleRun()
	r.failure, r.killed = &failure{}, true
	r.onLateStart(&rank{Proc: &procs.Proc{Remote: struct{ procs.Control }{}}})
	assert.Zero(t, host.kills)
	r.onLateStart(&rank{Proc: goneProcess()})
	assert.Equal(t, 1, host.kills)
}

// An unresponsive host is reported at the end, and a repeated signal shortens the wait for it.
func TestUnresponsiveHostIsReported(t *testing.T) {
	unresponsive := errors.Join(procs.ErrLost, procs.ErrUnresponsive)
	r, host := newIdleRun(&rank{Proc: &procs.Proc{Rank: 0, PID: 1 << 30}}, &rank{Proc: &procs.Proc{Rank: 1, PID: 1 << 30}}, &rank{Proc: &procs.Proc{Rank: 4, PID: 44}, host: 1})
	host.name = "n1"
	r.cfg.Hosts = append(r.cfg.Hosts, &recordingHost{name: "n2"})
	stderr := &lockedBuffer{}
	r.stderr = r.addSink("standard error", output.NewSink(stderr))
	var limits []time.Duration
	r.cfg.SetSilenceLimit = func(d time.Duration) { limits = append(limits, d) }
	r.onSignal(syscall.SIGTERM)
	r.onSignal(syscall.SIGINT)
	assert.Equal(t, []time.Duration{responseGrace, repeatedSignalGrace}, limits)

	r.onExit(r.ranks[0], procs.Exit{}, 0, unresponsive)
	r.onExit(r.ranks[1], procs.Exit{}, 0, unresponsive)
	r.onExit(r.ranks[2], procs.Exit{}, 0, unresponsive)
	assert.Equal(t, 143, r.report())
	<-r.stderr.Written()
	assert.Equal(t, "mpirun-go: host n1 does not answer: its 2 ranks may still run there for at most five minutes\n"+
		"mpirun-go: host n2 does not answer: its rank 4 (pid 44) may still run there for at most five minutes\n"+
		"mpirun-go: got signal 15 (terminated)\n", stderr.String())
}
