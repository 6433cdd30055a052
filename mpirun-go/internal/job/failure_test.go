package job

import (
	"errors"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/wireup"
	"github.com/mpigo/mpigo/mpirun-go/internal/output"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
)

func TestCompareFailuresPutsCauseFirst(t *testing.T) {
	at := func(order int) *rank { return &rank{exited: order > 0, exitOrder: order} }
	inOrder := []*failure{ // nearest to the cause first
		{line: "first exit", priority: exited, rank: at(2)},
		{line: "second exit", priority: exited, rank: at(3)},
		{line: "abort and exit", priority: aborted, rank: at(1)},
		{line: "abort and later exit", priority: aborted, rank: at(4)},
		{line: "abort", priority: aborted, rank: at(0)},
		{line: "abort while another rank exits", priority: aborted, rank: at(0), othersExiting: true},
		{line: "failed barrier", priority: barrierFailed, rank: at(5)},
	}
	for i, v := range inOrder {
		for j, w := range inOrder {
			assert.Equal(t, i < j, compareFailures(v, w) < 0, "%s, %s", v.line, w.line)
		}
	}
	equal := &failure{priority: aborted, rank: at(0)}
	assert.Same(t, equal, slices.MinFunc([]*failure{equal, {priority: aborted, rank: at(0)}}, compareFailures), "the first of equal failures")
}

// Many ranks may fail together. So while a rank is known to be exiting, a failure does not look at
// all other ranks. In this test that would panic, because most ranks have no process.
func TestAddFailureDoesNotProbeAllRanks(t *testing.T) {
	failed, suspect, aborter := &rank{exited: true, exitOrder: 1}, &rank{}, &rank{Proc: goneProcess()}
	r, _ := newIdleRun(failed, suspect, aborter, &rank{}, &rank{})
	r.exiting = []*rank{suspect}
	r.pending = []*failure{{rank: suspect, priority: aborted}}
	died, followed := &failure{rank: failed, priority: exited}, &failure{rank: aborter, priority: aborted}
	assert.NotPanics(t, func() { r.addFailure(died); r.addFailure(followed) })
	assert.False(t, died.othersExiting)
	assert.True(t, followed.othersExiting)
	assert.Len(t, r.pending, 3)
	assert.Nil(t, r.failure)
}

func TestAbortWithHealthyRanksEndsJobAtOnce(t *testing.T) {
	cfg, _, stderr := shellJob(t, waitForOther+"echo cmd=abort exitcode=9 >&3; exec sleep 1000", markStarted+"exec sleep 1000")
	assert.Equal(t, 9, runAndFlush(cfg))
	assert.Regexp(t, `^mpirun-go: rank 0 \(pid \d+\) on here aborted the job with code 9; the job's other rank was ended\n$`, stderr.String())
}

// A rank's error may say that another rank has failed before. It is the job's failure only if that
// one does not end the job too.
func TestRankThatFailedFirstIsBlamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := func() *run {
			r, _ := newTimedRun(t, &rank{Proc: goneProcess()}, &rank{Proc: goneProcess()})
			r.ranks[1].Rank = 1
			r.onAbort(wireup.Abort{Rank: 1, Code: 1, Message: "rank 0 gave up", Why: wireup.Follows})
			assert.Nil(t, r.failure)
			assert.True(t, r.failed())
			return r
		}
		r := start()
		r.onAbort(wireup.Abort{Code: 1, Message: "bad value", Why: wireup.Panicked})
		assert.Regexp(t, `^rank 0 .* panicked: bad value$`, r.failure.line)
		r = start()
		r.pass(2 * followedGrace)
		assert.Regexp(t, `^rank 1 .* returned an error: rank 0 gave up$`, r.failure.line)
	})
}

// exiting is a rank whose exit has begun.
type exiting struct{ procs.Control }

func (exiting) Exiting() bool { return true }

// A rank that gets no processor exits late, and is still found as the cause.
func TestAbortWaitsForRankThatExitsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dying := &rank{Proc: &procs.Proc{Rank: 1, PID: 1 << 30, Remote: exiting{}}}
		r, _ := newTimedRun(t, &rank{Proc: goneProcess()}, dying)
		abort := &failure{status: 1, rank: r.ranks[0], priority: aborted}
		r.addFailure(abort)
		r.pass(time.Second)
		assert.Nil(t, r.failure)
		r.onExit(dying, procs.Exit{Signal: syscall.SIGKILL}, 1, nil)
		assert.Equal(t, 137, r.failure.status)

		r, _ = newTimedRun(t, &rank{Proc: goneProcess()}, dying)
		dying.exited = false
		r.addFailure(abort)
		r.pass(rootCauseGrace)
		assert.Same(t, abort, r.failure, "it is not awaited for longer")
	})
}

// An abort is pending while another rank is exiting whose exit is not reported.
func TestAbortAfterDeathBlamesDeadRank(t *testing.T) {
	const repeats = 20
	for range repeats {
		cfg, _, stderr := shellJob(t,
			"while ! test -s pid; do :; done; read dead <pid; "+
				"while ! grep -q zombie /proc/$dead/status; do :; done; echo cmd=abort exitcode=9 >&3; exit 9",
			"echo $$ >pid; kill -KILL $$")
		assert.Equal(t, 137, runAndFlush(cfg), stderr)
		assert.Regexp(t, `^mpirun-go: rank 1 .* was killed by signal 9 `, stderr.String())
	}
}

// A rank that waits in a barrier for a rank that exited without Init is not blamed, whether it
// exits by itself or stays.
func TestExitWithoutInitIsBlamed(t *testing.T) {
	const join = "echo cmd=init pmi_version=1 pmi_subversion=1 >&3; read x <&3; echo cmd=barrier_in >&3; read x <&3; echo $x; "
	for end, others := range map[string]string{"exit 7": "", "exec sleep 1000": "; the job's other rank was ended"} {
		cfg, stdout, stderr := shellJob(t, join+end, "exit 0")
		assert.Equal(t, 1, runAndFlush(cfg))
		assert.Equal(t, "cmd=barrier_failed rank=1 state=0\n", stdout.String())
		assert.Regexp(t, `^mpirun-go: rank 1 \(pid \d+\) on here exited with status 0, but without Init, which other ranks have called`+others+`\n$`, stderr.String())
	}
}

func TestBarrierFailureOfFailedRankBlamesThatRank(t *testing.T) {
	const join = "echo cmd=init pmi_version=1 pmi_subversion=1 >&3; read x <&3; echo cmd=barrier_in >&3; read x <&3; exit 7"
	cfg, _, stderr := shellJob(t, join, "exit 5")
	assert.Equal(t, 5, runAndFlush(cfg), stderr)
	assert.Regexp(t, `^mpirun-go: rank 1 .* exited with status 5`, stderr.String())
	cfg, _, stderr = shellJob(t, "exit 0", "exit 0")
	assert.Equal(t, 0, runAndFlush(cfg), stderr)
}

// The loss of a host is the job's failure, although the failures of its ranks and of their peers
// were reported before.
func TestHostLossIsBlamedOverItsRanks(t *testing.T) {
	stderr := &lockedBuffer{}
	local, remote := &recordingHost{name: "n1"}, &recordingHost{name: "n2"}
	r := &run{
		cfg:       Config{Hosts: []Host{local, remote, &recordingHost{name: "n3"}}, Remote: true, Specs: []procs.Spec{{Rank: 0}, {Rank: 1, Host: 1}, {Rank: 2, Host: 1}, {Rank: 3, Host: 1}, {Rank: 4, Host: 1}}},
		stopStart: make(chan struct{}), done: make(chan struct{}),
	}
	close(r.done)
	r.stderr = r.addSink("standard error", output.NewSink(stderr))
	for i, spec := range r.cfg.Specs[:4] { // the start of rank 4 has not been reported
		served := make(chan struct{})
		close(served)
		r.ranks = append(r.ranks, &rank{Proc: &procs.Proc{Rank: i, PID: 1 << 30}, host: spec.Host, served: served})
	}
	r.alive = len(r.ranks)
	server, err := wireup.NewServer(wireup.ServerConfig{Size: 5, JobID: "j"})
	require.NoError(t, err)
	r.server = server

	r.onLost(2, errors.New("a host without ranks"))
	assert.False(t, r.failed())
	r.onExit(r.ranks[3], procs.Exit{}, 0, nil) // before the loss, so it was not lost
	r.onExit(r.ranks[1], procs.Exit{}, 0, procs.ErrLost)
	assert.False(t, r.failed())
	r.onExit(r.ranks[0], procs.Exit{Code: 1}, 1, nil)
	assert.Nil(t, r.failure, "the failure must be pending")
	r.onLost(1, errors.New("power failure"))
	r.onExit(r.ranks[2], procs.Exit{}, 0, procs.ErrLost)
	assert.Equal(t, 1, r.report())
	<-r.stderr.Written()
	assert.Equal(t, "mpirun-go: host n2 was lost with 3 ranks: power failure\n", stderr.String())
	assert.Equal(t, []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT}, local.signals)
	assert.Equal(t, local.signals, remote.signals)
}

// Of ranks of different hosts, the one whose exit was reported first comes first; of ranks of one
// host, the one that exited first.
func TestCompareExitsOnSeveralHosts(t *testing.T) {
	end := func(host, order, arrival int) *rank {
		return &rank{exited: true, host: host, exitOrder: order, arrival: arrival}
	}
	assert.Negative(t, compareExits(end(0, 5, 1), end(1, 1, 2)))
	assert.Negative(t, compareExits(end(0, 1, 2), end(0, 2, 1)))
	assert.Negative(t, compareExits(end(0, 9, 2), &rank{host: 1}))
	assert.Zero(t, compareExits(nil, nil))
}
