package job

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/wireup"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
)

func TestCompareFailuresPutsCauseFirst(t *testing.T) {
	at := func(place int) *rank { return &rank{exited: place > 0, exitOrder: place} }
	inOrder := []*failure{ // the cause first
		{line: "first death", priority: exited, rank: at(2)},
		{line: "second death", priority: exited, rank: at(3)},
		{line: "abort and end", priority: aborted, rank: at(1)},
		{line: "abort and later end", priority: aborted, rank: at(4)},
		{line: "abort", priority: aborted, rank: at(0)},
		{line: "abort while another ended", priority: aborted, rank: at(0), othersExiting: true},
		{line: "left waiting", priority: barrierFailed, rank: at(5)},
	}
	for i, v := range inOrder {
		for j, w := range inOrder {
			assert.Equal(t, i < j, compareFailures(v, w) < 0, "%s, %s", v.line, w.line)
		}
	}
	equal := &failure{priority: aborted, rank: at(0)}
	assert.Same(t, equal, slices.MinFunc([]*failure{equal, {priority: aborted, rank: at(0)}}, compareFailures), "of equals the first")
}

// Ranks that fail together are many, so a failure is no reason to look at all the others while
// it is known that one is ending. Here that would panic: most have no process to look at.
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
	assert.Equal(t, 9, Run(cfg))
	assert.Regexp(t, `^mpirun-go: rank 0 \(pid \d+\) on here aborted the job with code 9; the job's other rank was ended\n$`, stderr.String())
}

// While a rank is ending that nobody knows the fate of, an abort waits for it.
func TestAbortAfterDeathBlamesDeadRank(t *testing.T) {
	const repeats = 20
	for range repeats {
		cfg, _, stderr := shellJob(t,
			"while ! test -s pid; do :; done; read dead <pid; "+
				"while ! grep -q zombie /proc/$dead/status; do :; done; echo cmd=abort exitcode=9 >&3; exit 9",
			"echo $$ >pid; kill -KILL $$")
		assert.Equal(t, 137, Run(cfg), stderr)
		assert.Regexp(t, `^mpirun-go: rank 1 .* was killed by signal 9 `, stderr.String())
	}
}

// Who waits in a barrier for a rank that ended without Init is not blamed for it, whether it
// ends by itself or stays.
func TestExitWithoutInitIsBlamed(t *testing.T) {
	const join = "echo cmd=init pmi_version=1 pmi_subversion=1 >&3; read x <&3; echo cmd=barrier_in >&3; read x <&3; echo $x; "
	for end, others := range map[string]string{"exit 7": "", "exec sleep 1000": "; the job's other rank was ended"} {
		cfg, stdout, stderr := shellJob(t, join+end, "exit 0")
		assert.Equal(t, 1, Run(cfg))
		assert.Equal(t, "cmd=barrier_failed rank=1 state=0\n", stdout.String())
		assert.Regexp(t, `^mpirun-go: rank 1 \(pid \d+\) on here exited with status 0, but without Init, which other ranks have called`+others+`\n$`, stderr.String())
	}
}

// One that has failed is blamed for that, and nobody's if nobody waits.
func TestRankThatNeverJoined(t *testing.T) {
	const join = "echo cmd=init pmi_version=1 pmi_subversion=1 >&3; read x <&3; echo cmd=barrier_in >&3; read x <&3; exit 7"
	cfg, _, stderr := shellJob(t, join, "exit 5")
	assert.Equal(t, 5, Run(cfg), stderr)
	assert.Regexp(t, `^mpirun-go: rank 1 .* exited with status 5`, stderr.String())
	cfg, _, stderr = shellJob(t, "exit 0", "exit 0")
	assert.Equal(t, 0, Run(cfg), stderr)
}

// farHost is another machine that is lost when a test says so.
type fakeRemoteHost struct {
	recordingHost
	name string
}

func (h *fakeRemoteHost) Name() string { return h.name }

// The loss of a host is the verdict, although its ranks, and those that talked to them, were heard of before.
func TestHostLossIsBlamedOverItsRanks(t *testing.T) {
	stderr := &lockedBuffer{}
	near, far := &fakeRemoteHost{name: "n1"}, &fakeRemoteHost{name: "n2"}
	r := &run{
		cfg:       Config{Hosts: []Host{near, far, &fakeRemoteHost{name: "n3"}}, Remote: true, Specs: []procs.Spec{{Rank: 0}, {Rank: 1, Host: 1}, {Rank: 2, Host: 1}}},
		stopStart: make(chan struct{}), done: make(chan struct{}),
	}
	close(r.done)
	r.stderr = r.newSink("standard error", stderr)
	for i, spec := range r.cfg.Specs {
		served := make(chan struct{})
		close(served)
		r.ranks = append(r.ranks, &rank{Proc: &procs.Proc{Rank: i, PID: 1 << 30}, host: spec.Host, served: served})
	}
	r.alive = len(r.ranks)
	server, err := wireup.NewServer(wireup.ServerConfig{Size: 3, JobID: "j"})
	require.NoError(t, err)
	r.server = server

	r.onLost(2, errors.New("it has no ranks, so it does not matter"))
	assert.False(t, r.failed())
	r.onExit(r.ranks[1], procs.Exit{}, 0, procs.ErrLost)
	assert.False(t, r.failed())
	r.onExit(r.ranks[0], procs.Exit{Code: 1}, 1, nil)
	assert.Nil(t, r.failure, "held")
	r.onLost(1, errors.New("its plug was pulled"))
	r.onExit(r.ranks[2], procs.Exit{}, 0, procs.ErrLost)
	assert.Equal(t, 1, r.report())
	assert.Equal(t, "mpirun-go: host n2 was lost with 2 ranks: its plug was pulled\n", stderr.String())
	assert.Equal(t, []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT}, near.signals)
	assert.Equal(t, near.signals, far.signals)
}

// Of ranks of different hosts the one that was heard of first is to blame, of one host the one that ended first.
func TestCompareExitsOnSeveralHosts(t *testing.T) {
	end := func(node, place, seen int) *rank {
		return &rank{exited: true, host: node, exitOrder: place, arrival: seen}
	}
	assert.Negative(t, compareExits(end(0, 5, 1), end(1, 1, 2)))
	assert.Negative(t, compareExits(end(0, 1, 2), end(0, 2, 1)))
	assert.Negative(t, compareExits(end(0, 9, 2), &rank{host: 1}))
	assert.Zero(t, compareExits(nil, nil))
}
