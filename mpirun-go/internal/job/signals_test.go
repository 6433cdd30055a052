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
type recorder struct {
	Host    // nil: starts nothing
	signals []syscall.Signal
	kills   int
	name    string
}

func (h *recorder) SignalGroups(s syscall.Signal) { h.signals = append(h.signals, s) }
func (h *recorder) Kill()                         { h.kills++ }
func (h *recorder) Name() string                  { return h.name }

// still is a run without processes, for which nothing happens later.
func still(ranks ...*rank) (*run, *recorder) {
	host, done := &recorder{}, make(chan struct{})
	close(done)
	return &run{cfg: Config{Hosts: []Host{host}}, done: done, noMore: make(chan struct{}), ranks: ranks}, host
}

// gone is a process that is there no longer.
func gone() *procs.Proc { return &procs.Proc{PID: 1 << 30} }

// The first signal gives the ranks their time to end, and the blame to a rank that has failed
// before, although that verdict was held.
func TestSignalWhileAVerdictIsHeld(t *testing.T) {
	failed := &rank{Proc: gone(), ended: true, place: 1, exit: procs.Exit{Code: 7}}
	r, host := still(failed, &rank{Proc: gone()})
	held := &verdict{status: 7, rank: failed, weight: leftWaiting}
	r.blame(held)
	assert.Nil(t, r.verdict)

	r.onSignal(syscall.SIGINT)
	assert.Same(t, held, r.verdict)
	assert.Equal(t, []syscall.Signal{syscall.SIGINT, syscall.SIGCONT}, host.signals)
	assert.Zero(t, host.kills)
	r.blame(&verdict{status: 130, rank: r.ranks[1], weight: death})
	r.choose()
	assert.Same(t, held, r.verdict)

	r.onSignal(syscall.SIGTERM)
	assert.Equal(t, 1, host.kills)
	assert.Same(t, held, r.verdict)
}

func TestSignalAlone(t *testing.T) {
	r, host := still(&rank{Proc: gone()})
	r.onSignal(syscall.SIGQUIT)
	assert.Equal(t, &verdict{status: 131, line: "got signal 3 (quit)"}, r.verdict)
	assert.Equal(t, []syscall.Signal{syscall.SIGQUIT, syscall.SIGCONT}, host.signals)
	assert.Zero(t, host.kills)
}

func TestRepeated(t *testing.T) {
	var p repeated
	t0 := time.Now()
	assert.False(t, p.is(syscall.SIGINT, t0))
	assert.True(t, p.is(syscall.SIGINT, t0.Add(repeatGrace-1)))
	assert.False(t, p.is(syscall.SIGINT, t0.Add(repeatGrace)), "a user who insists")
	assert.False(t, p.is(syscall.SIGTERM, t0.Add(repeatGrace)), "another signal")
}

// A rank that was being started when all was killed is killed too, unless it is of another machine: that has started it before
// it heard of the end, and to kill all again for each of many takes long.
func TestLateRank(t *testing.T) {
	r, host := still()
	r.verdict, r.killed = &verdict{}, true
	r.late(&rank{Proc: &procs.Proc{Elsewhere: struct{ procs.Control }{}}})
	assert.Zero(t, host.kills)
	r.late(&rank{Proc: gone()})
	assert.Equal(t, 1, host.kills)
}

// A host that is silent at the end is told of, and a user who insists waits less for it.
func TestHostThatDoesNotAnswer(t *testing.T) {
	silent := errors.Join(procs.ErrLost, procs.ErrSilent)
	r, host := still(&rank{Proc: &procs.Proc{Rank: 0, PID: 1 << 30}}, &rank{Proc: &procs.Proc{Rank: 1, PID: 1 << 30}}, &rank{Proc: &procs.Proc{Rank: 4, PID: 44}, node: 1})
	host.name = "n1"
	r.cfg.Hosts = append(r.cfg.Hosts, &recorder{name: "n2"})
	said := &lockedBuffer{}
	r.stderr = r.newSink("standard error", said)
	var limits []time.Duration
	r.cfg.Patience = func(d time.Duration) { limits = append(limits, d) }
	r.onSignal(syscall.SIGINT)
	r.onSignal(syscall.SIGTERM)
	assert.Equal(t, []time.Duration{answerGrace, insistGrace}, limits)

	r.onExit(r.ranks[0], procs.Exit{}, 0, silent)
	r.onExit(r.ranks[1], procs.Exit{}, 0, silent)
	r.onExit(r.ranks[2], procs.Exit{}, 0, silent)
	assert.Equal(t, 130, r.report())
	assert.Equal(t, "mpirun-go: host n1 does not answer: its 2 ranks may still run there, for at most five minutes\n"+
		"mpirun-go: host n2 does not answer: its rank 4 (pid 44) may still run there, for at most five minutes\n"+
		"mpirun-go: got signal 2 (interrupt)\n", said.String())
}
