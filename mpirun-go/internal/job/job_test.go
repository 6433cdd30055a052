package job

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/hangreport"
	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/jobsocket"
	"github.com/mpigo/mpigo/internal/leaks"
	"github.com/mpigo/mpigo/internal/observe"
	"github.com/mpigo/mpigo/internal/wireup"
	"github.com/mpigo/mpigo/mpirun-go/internal/diagnose"
	"github.com/mpigo/mpigo/mpirun-go/internal/output"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// lockedBuffer is a buffer that may be read while a job writes to it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Parts of scripts: waitForOther waits until another rank has run markStarted.
const (
	markStarted  = "echo >started; "
	waitForOther = "while ! test -e started; do :; done; "
)

// shellJob returns a job whose ranks run these scripts, in a new directory.
func shellJob(t *testing.T, scripts ...string) (cfg Config, stdout, stderr *lockedBuffer) {
	t.Helper()
	jobID := fmt.Sprintf("job-test-%d-%s", os.Getpid(), t.Name())
	local, err := procs.NewLocal("here", jobID, nil)
	require.NoError(t, err)
	t.Cleanup(local.Close)
	stdout, stderr = &lockedBuffer{}, &lockedBuffer{}
	cfg = Config{Hosts: []Host{local}, JobID: jobID, Stdout: stdout, Stderr: output.NewSink(stderr), Signals: make(chan os.Signal)}
	id := Identity{JobID: jobID, Size: len(scripts)}
	dir := t.TempDir()
	for rank, script := range scripts {
		cfg.Specs = append(cfg.Specs, procs.Spec{
			Rank: rank, Path: "/bin/sh", Args: []string{"sh", "-c", script}, Dir: dir,
			Env: RankEnv(id, rank, rank, len(scripts), os.Environ(), nil),
		})
	}
	return cfg, stdout, stderr
}

// runAndFlush runs a job, and waits until the launcher's lines are written.
func runAndFlush(cfg Config) int {
	status := Run(cfg)
	<-cfg.Stderr.Written()
	return status
}

// runOf makes Run send its run to the channel before it starts the ranks.
func runOf(cfg *Config) <-chan *run {
	runs := make(chan *run, 1)
	cfg.OnStart = func(j jobsocket.Job) func() {
		runs <- j.(*run)
		return func() {}
	}
	return runs
}

// waitFor waits until Run's goroutine finds that condition holds, or until Run returns.
func (r *run) waitFor(condition func() bool) {
	for holds := make(chan bool, 1); ; time.Sleep(time.Millisecond) {
		r.post(func() { holds <- condition() })
		select {
		case is := <-holds:
			if is {
				return
			}
		case <-r.done:
			return
		}
	}
}

func TestRunOfSuccessfulJobReturnsZero(t *testing.T) {
	cfg, stdout, stderr := shellJob(t, "echo a", "echo b; echo c >&2")
	assert.Equal(t, 0, runAndFlush(cfg))
	assert.ElementsMatch(t, []string{"a", "b", ""}, strings.Split(stdout.String(), "\n"))
	assert.Equal(t, "c\n", stderr.String())
}

func TestRunReturnsFirstFailure(t *testing.T) {
	cfg, _, stderr := shellJob(t, "exec 2>/dev/null; trap 'exit 9' TERM; while :; do sleep 0.01; done", waitForOther+"exit 5", markStarted+"exec sleep 1000")
	assert.Equal(t, 5, runAndFlush(cfg))
	assert.Regexp(t, `^mpirun-go: rank 1 \(pid \d+\) on here exited with status 5; the job's other 2 ranks were ended\n$`, stderr.String())
}

func TestStartErrorTerminatesStartedRanks(t *testing.T) {
	cfg, _, stderr := shellJob(t, "exec sleep 1000", "")
	cfg.Specs[1].Path = "/no/such/program"
	assert.Equal(t, 127, runAndFlush(cfg))
	assert.Equal(t, "mpirun-go: rank 1 on here: start /no/such/program: no such file or directory; 1 of the job's 2 ranks was ended, 1 had not started\n", stderr.String())
}

func TestTimeoutKillsRankThatIgnoresTERM(t *testing.T) {
	cfg, _, stderr := shellJob(t, "trap '' TERM; while :; do sleep 0.01; done")
	cfg.Timeout = 10 * time.Millisecond
	assert.Equal(t, 124, runAndFlush(cfg))
	assert.Equal(t, "mpirun-go: the job exceeded --timeout 10ms; its rank was ended\n", stderr.String())
}

// answering is a rank that says it uses the library and answers questions without a report, until
// started exists. The number of a question follows its version.
const answering = `echo '{"v":2,"id":0}' >&4
while read q && ! test -e started; do
	id=${q#*id\":}
	echo "{\"v\":2,\"id\":${id%%,*},\"progress\":7}" >&4
done <&4
`

// silent is a rank that says it uses the library, but does not answer.
const silent = `echo '{"v":2,"id":0}' >&4; `

func TestTimeoutReportsWhatRanksDo(t *testing.T) {
	cfg, _, stderr := shellJob(t, answering, silent+"kill -STOP $$", "exec sleep 1000", "exit 0")
	cfg.Timeout = time.Hour
	cfg.ReportDir = t.TempDir()
	runs := runOf(&cfg)
	go func() { // the hour is over as soon as each rank is in its state
		r := <-runs
		r.waitFor(func() bool {
			return len(r.ranks) == 4 && r.ranks[0].isAskable() && r.ranks[1].isAskable() && r.ranks[3].exited &&
				r.ranks[1].State(context.Background()).IsStopped()
		})
		r.post(r.onTimeout)
	}()
	assert.Equal(t, 124, runAndFlush(cfg))
	lines := strings.Split(stderr.String(), "\n")
	assert.Equal(t, "mpirun-go: the job exceeded --timeout 1h0m0s. What the ranks were doing:", lines[0])
	assert.Contains(t, lines[1], "rank 1: its process is stopped by a signal")
	assert.Contains(t, stderr.String(), "rank 2: it has not called Init")
	assert.Equal(t, "mpirun-go: the job exceeded --timeout 1h0m0s; 3 of its 4 ranks were ended", lines[len(lines)-2])
	for _, name := range []string{"report.txt", "report.json", "rank.0.txt", "rank.3.txt"} {
		assert.FileExists(t, cfg.ReportDir+"/"+name)
	}
}

// The first SIGQUIT asks the ranks. The second one does not wait for their answers, and goes to the
// ranks, which print their stacks if they are Go programs.
func TestSecondQuitIsPassedOn(t *testing.T) {
	const trap = "trap 'echo got quit; exit 9' QUIT; echo ready >&2; while :; do sleep 0.01; done"
	cfg, stdout, stderr := shellJob(t, silent+trap)
	signals := make(chan os.Signal)
	cfg.Signals = signals
	runs := runOf(&cfg)
	go func() {
		r := <-runs
		r.waitFor(func() bool { return strings.Contains(stderr.String(), "ready") && r.canAsk() })
		signals <- syscall.SIGQUIT
		r.waitFor(func() bool { return r.quitting })
		time.Sleep(repeatWindow)
		signals <- syscall.SIGQUIT // long before introspect.AnswerTimeout
	}()
	assert.Equal(t, 131, runAndFlush(cfg))
	assert.Equal(t, "got quit\n", stdout.String())
	assert.NotContains(t, stderr.String(), "what the ranks do")
}

// The first SIGINT waits for the ranks' answers, but the second one ends the job at once.
func TestSecondInterruptKillsRanksThatDoNotAnswer(t *testing.T) {
	cfg, _, stderr := shellJob(t, silent+"trap '' INT; echo ready >&2; while :; do sleep 0.01; done")
	cfg.KillAfter = time.Hour
	signals := make(chan os.Signal)
	cfg.Signals = signals
	runs := runOf(&cfg)
	go func() {
		r := <-runs
		r.waitFor(func() bool { return strings.Contains(stderr.String(), "ready") && r.canAsk() })
		signals <- syscall.SIGINT
		r.waitFor(func() bool { return r.interrupted })
		time.Sleep(repeatWindow)
		signals <- syscall.SIGINT
	}()
	assert.Equal(t, 130, runAndFlush(cfg))
	assert.Contains(t, stderr.String(), "got signal 2 (interrupt); its rank was ended")
}

func TestHangIsReportedOnceAndHarmsNobody(t *testing.T) {
	cfg, _, stderr := shellJob(t, answering, "until test -e started; do sleep 0.01; done")
	cfg.HangAfter = time.Second
	reports := func() int { return strings.Count(stderr.String(), "no rank has made progress for 1s; the job goes on") }
	go func() {
		for reports() == 0 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2500 * time.Millisecond) // two more looks
		_ = os.WriteFile(cfg.Specs[0].Dir+"/started", nil, 0o666)
	}()
	assert.Equal(t, 0, runAndFlush(cfg))
	assert.Equal(t, 1, reports())
}

func TestNewHangWatchLooksAtMostTenTimesASecond(t *testing.T) {
	for after, want := range map[time.Duration]hangWatch{
		time.Millisecond: {every: 100 * time.Millisecond, limit: 1, early: 1},
		2 * time.Second:  {every: 100 * time.Millisecond, limit: 20, early: 20},
		20 * time.Second: {every: time.Second, limit: 20, early: 10},
		5 * time.Minute:  {every: 2 * time.Second, limit: 150, early: 5},
		time.Hour:        {every: 2 * time.Second, limit: 1800, early: 5},
	} {
		w := newHangWatch(after)
		assert.Equal(t, []any{want.every, want.limit, want.early}, []any{w.every, w.limit, w.early}, after)
	}
}

// TestHangWatchLooksForCertainDeadlocksEverMoreRarely: each look asks all ranks for their stacks.
func TestHangWatchLooksForCertainDeadlocksEverMoreRarely(t *testing.T) {
	w := newHangWatch(5 * time.Minute)
	looks := func() (early []int, late int) {
		for !w.reported {
			w.quiet++
			now, certain := w.isTime()
			switch {
			case now && certain:
				early = append(early, w.quiet)
			case now:
				late, w.reported = w.quiet, true
			}
		}
		return early, late
	}
	for range 2 {
		early, late := looks()
		assert.Equal(t, []int{5, 10, 20, 40, 80}, early) // 10 s, 20 s and so on
		assert.Equal(t, 150, late)
		w.restart()
	}
}

// TestHangTitleOfCertainDeadlock: before the long time is over, only a certain deadlock is
// reported, and only once.
func TestHangTitleOfCertainDeadlock(t *testing.T) {
	cycle := hangreport.Cause{Kind: hangreport.KindDeadlock, Ranks: []int{0, 1}, Cycle: []int{0, 1}}
	for name, c := range map[string]struct {
		causes []hangreport.Cause
		want   string
	}{
		"cycle":          {[]hangreport.Cause{{Kind: hangreport.KindNearMiss}, cycle}, "no rank has made progress for 10s; the job goes on"},
		"no cycle":       {[]hangreport.Cause{{Kind: hangreport.KindDeadlock}}, ""},
		"not certain":    {[]hangreport.Cause{{Kind: hangreport.KindMayDeadlock, Cycle: cycle.Cycle}}, ""},
		"will get error": {[]hangreport.Cause{{Kind: hangreport.KindMismatch}, cycle}, ""},
		"late":           {[]hangreport.Cause{{Kind: hangreport.KindLate}}, ""},
	} {
		w := newHangWatch(5 * time.Minute)
		w.quiet = w.early
		got := (&run{hang: w}).hangTitle(&diagnose.Report{Finding: hangreport.Finding{Causes: c.causes}}, true)
		assert.Equal(t, c.want, got, name)
		assert.Equal(t, c.want != "", w.reported, name)
		assert.Equal(t, w.early, w.quiet, "%s: the count goes on", name)
	}
}

// TestHangTitleOfRankThatGoesOn: a job does not hang if a rank makes progress before its report, or
// while the ranks are watched after that.
func TestHangTitleOfRankThatGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		reported, after uint64
		isLocked        bool
		hangs           bool
	}{
		"no progress":                              {reported: 7, after: 7, hangs: true},
		"before its report":                        {reported: 8, after: 8},
		"after its report":                         {reported: 7, after: 8},
		"could not take its lock":                  {isLocked: true, hangs: true},
		"could not take its lock, and went on":     {isLocked: true, after: 8},
		"could not take its lock after its report": {reported: 7, after: 0, hangs: true},
	} {
		w := newHangWatch(2 * time.Second)
		w.last, w.quiet, w.reported = map[int]rankProgress{0: {number: 7}}, w.limit, true
		r := &introspect.Report{Locked: c.isLocked, Snapshot: observe.Snapshot{Progress: c.reported, Waits: []observe.Wait{{}}}}
		members := []introspect.Member{{State: introspect.StateAnswered, Report: r, After: &c.after}}
		title := (&run{hang: w}).hangTitle(&diagnose.Report{Members: members}, false)
		assert.Equal(t, c.hangs, title == "no rank has made progress for 2s; the job goes on", "%s: %q", name, title)
		assert.Equal(t, c.hangs, w.reported, name)
	}
}

// closedPipe returns the writing end of a pipe that has no reader.
func closedPipe(t *testing.T) *os.File {
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	t.Cleanup(func() { _ = writer.Close() })
	return writer
}

// The job ends even if no rank writes.
func TestClosedStdoutEndsJob(t *testing.T) {
	cfg, _, stderr := shellJob(t, "exec sleep 1000", "exec sleep 1000")
	cfg.Stdout = closedPipe(t)
	assert.Equal(t, 141, runAndFlush(cfg))
	assert.Empty(t, stderr.String())
}

// A closed standard output does not matter if the ranks write to files.
func TestClosedStdoutOfJobWithFilesIsIgnored(t *testing.T) {
	cfg, _, stderr := shellJob(t, fmt.Sprintf("sleep %v", 2*readerGrace.Seconds()))
	cfg.Stdout = closedPipe(t)
	var err error
	cfg.Files, err = output.OpenFiles(t.TempDir(), 1)
	require.NoError(t, err)
	assert.Equal(t, 0, runAndFlush(cfg), stderr)
}

// Nor does it matter if the job ends by itself within readerGrace.
func TestClosedStdoutOfJobThatEndsSoonIsIgnored(t *testing.T) {
	for ends, want := range map[bool]*failure{true: nil, false: readerGone()} {
		synctest.Test(t, func(t *testing.T) {
			r, _ := newTimedRun(t, &rank{Proc: goneProcess()})
			r.onStdoutClosed()
			time.Sleep(readerGrace - 1)
			if ends {
				r.alive = 0
			}
			r.pass(1)
			assert.Equal(t, want, r.failure)
		})
	}
}

// Output that a rank's child process writes soon after the end of the ranks is still printed.
func TestOutputAfterExitIsAwaited(t *testing.T) {
	for late, killed := range map[time.Duration]bool{-1: false, 1: true} {
		synctest.Test(t, func(t *testing.T) {
			r, host := newTimedRun(t)
			r.outputDone = make(chan struct{})
			time.AfterFunc(outputGrace+late, func() { close(r.outputDone) })
			r.finishOutput()
			assert.Equal(t, killed, host.kills == 1)
			assert.Equal(t, !killed, host.groupKills == 1)
		})
	}
}

// gatedWriter is a writer whose writes block until open is closed.
type gatedWriter struct {
	open chan struct{}
	w    io.Writer
}

func (w gatedWriter) Write(p []byte) (int, error) {
	<-w.open
	return w.w.Write(p)
}

func TestSlowReaderLosesNothing(t *testing.T) {
	const lines = 60000 // more than the pipe and the buffers hold
	cfg, stdout, _ := shellJob(t, fmt.Sprintf("seq 1 %d; : >&2; kill -KILL $$", lines))
	gate := gatedWriter{make(chan struct{}), stdout}
	cfg.Stdout = gate
	status := make(chan int)
	go func() { status <- runAndFlush(cfg) }()
	select {
	case <-status:
		t.Fatal("the job ended before its output was read")
	case <-time.After(10 * time.Millisecond):
	}
	close(gate.open)
	assert.Equal(t, 137, <-status)
	assert.Equal(t, lines, strings.Count(stdout.String(), "\n"))
	assert.True(t, strings.HasSuffix(stdout.String(), fmt.Sprintf("\n%d\n", lines)))
}

func TestInterruptDoesNotWaitForStuckReader(t *testing.T) {
	cfg, stdout, stderr := shellJob(t, "echo ready >&2; exec yes")
	gate := gatedWriter{make(chan struct{}), stdout}
	cfg.Stdout = gate
	signals := make(chan os.Signal)
	cfg.Signals = signals
	status := make(chan int)
	go func() { status <- runAndFlush(cfg) }()
	require.Eventually(t, func() bool { return stderr.String() == "ready\n" }, time.Minute, time.Millisecond)
	signals <- syscall.SIGINT
	assert.Equal(t, 130, <-status)
	assert.Equal(t, "ready\nmpirun-go: got signal 2 (interrupt); its rank was ended\n", stderr.String())
	close(gate.open) // lets the blocked write return
}

// Run does not wait for the reader of its line about the failure.
func TestStuckReaderDoesNotHoldUpFailure(t *testing.T) {
	cfg, _, stderr := shellJob(t, "exit 3")
	gate := gatedWriter{make(chan struct{}), stderr}
	cfg.Stderr = output.NewSink(gate)
	cfg.Stderr.Line("a warning")
	assert.Equal(t, 3, Run(cfg))
	assert.Empty(t, stderr.String())
	close(gate.open)
	<-cfg.Stderr.Written()
	assert.Regexp(t, `^a warning\nmpirun-go: rank 0 \(pid \d+\) on here exited with status 3\n$`, stderr.String())
}

// A signal ends the job although lines of the launcher and of a rank are stuck.
func TestSignalEndsJobWithStuckStandardError(t *testing.T) {
	cfg, stdout, _ := shellJob(t, "echo ready; exec yes >&2")
	gate := gatedWriter{make(chan struct{}), io.Discard}
	cfg.Stderr = output.NewSink(gate)
	cfg.Stderr.Line("a warning")
	signals := make(chan os.Signal)
	cfg.Signals = signals
	status := make(chan int)
	go func() { status <- Run(cfg) }()
	require.Eventually(t, func() bool { return stdout.String() == "ready\n" }, time.Minute, time.Millisecond)
	signals <- syscall.SIGTERM
	assert.Equal(t, 143, <-status)
	close(gate.open)
	<-cfg.Stderr.Written()
}

func TestOutputWriteErrorFailsJob(t *testing.T) {
	for err, want := range map[error]int{syscall.EPIPE: 141, syscall.ENOSPC: 1} {
		cfg, _, stderr := shellJob(t, waitForOther+"exec yes", markStarted+"exec sleep 1000")
		cfg.Stdout = failingWriter{&os.PathError{Op: "write", Path: "x", Err: err}}
		assert.Equal(t, want, runAndFlush(cfg), err)
		if want == 1 {
			assert.Equal(t, "mpirun-go: cannot write standard output: no space left on device; its 2 ranks were ended\n", stderr.String())
		} else {
			assert.Empty(t, stderr.String())
		}
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestStdinReachesRanksWithPipe(t *testing.T) {
	cfg, stdout, _ := shellJob(t, "cat", "cat", "cat")
	cfg.Specs[0].Stdin, cfg.Specs[2].Stdin = procs.StdinPipe, procs.StdinPipe
	cfg.Input = strings.NewReader("line\n")
	cfg.Style = output.Style{Tag: true}
	assert.Equal(t, 0, runAndFlush(cfg))
	assert.ElementsMatch(t, []string{"[0] line", "[2] line", ""}, strings.Split(stdout.String(), "\n"))
}

func TestOutputFilesReceiveOutput(t *testing.T) {
	cfg, stdout, _ := shellJob(t, "echo a", "echo b")
	dir := t.TempDir()
	files, err := output.OpenFiles(dir, 2)
	require.NoError(t, err)
	cfg.Files = files
	assert.Equal(t, 0, runAndFlush(cfg))
	assert.Empty(t, stdout.String())
	text, err := os.ReadFile(dir + "/rank.1.stdout")
	require.NoError(t, err)
	assert.Equal(t, "b\n", string(text))
	assert.ErrorIs(t, files[0].Stdout.Close(), os.ErrClosed)
}

func TestPMIProtocolErrorEndsJob(t *testing.T) {
	cfg, _, stderr := shellJob(t, waitForOther+"echo garbage >&3; exec sleep 1000", markStarted+"exec sleep 1000")
	assert.Equal(t, 1, runAndFlush(cfg))
	assert.Regexp(t, `^mpirun-go: rank 0 \(pid \d+\) on here lost its PMI connection: .+; the job's other rank was ended\n$`, stderr.String())

	cfg, _, stderr = shellJob(t, "echo garbage >&3; read x <&3")
	assert.Equal(t, 1, runAndFlush(cfg))
	assert.Equal(t, 1, strings.Count(stderr.String(), "\n"))
}

func TestPMIHeldOpenByChildDoesNotDelayJob(t *testing.T) {
	cfg, _, stderr := shellJob(t, "sleep 1000 >/dev/null 2>&1 & exit 0")
	assert.Equal(t, 0, runAndFlush(cfg))
	assert.Empty(t, stderr.String())
}

func TestOthersSummary(t *testing.T) {
	term := procs.Exit{Signal: syscall.SIGTERM}
	killed := rank{exited: true, signalled: true, exit: term}
	exited := func(code int) rank { return rank{exited: true, signalled: true, exit: procs.Exit{Code: code}} }
	earlier := rank{exited: true, exit: procs.Exit{Code: 1}}
	aborted := rank{exited: true, signalled: true, aborted: true, exit: term}
	stuck := rank{signalled: true}
	served := make(chan struct{})
	close(served)
	// It waited in a barrier for the failed rank, so it failed by itself.
	inBarrier := rank{exited: true, signalled: true, exit: procs.Exit{Code: 1}, served: served, serveErr: &wireup.BarrierError{}}
	failed := exited(1)
	for _, c := range []struct {
		ranks     []rank
		ofRank    bool // the job's failure is that of the last rank
		unstarted int
		want      string
	}{
		{[]rank{failed}, true, 0, ""},
		{[]rank{killed, failed}, true, 0, "; the job's other rank was ended"},
		{[]rank{killed, killed, exited(143), failed}, true, 0, "; the job's other 3 ranks were ended"},
		{[]rank{killed, earlier, aborted, failed}, true, 0, "; 1 of the job's other 3 ranks was ended"},
		// One rank failed for the same cause.
		{[]rank{killed, exited(1), killed, failed}, true, 0, "; 2 of the job's other 3 ranks were ended"},
		{[]rank{exited(1), exited(1), failed}, true, 0, ""},
		{[]rank{inBarrier, {exited: true}}, true, 0, ""},
		{[]rank{exited(0), stuck, failed}, true, 0, "; 1 of the job's other 2 ranks was ended"},
		{[]rank{killed}, false, 0, "; its rank was ended"},
		{[]rank{killed, exited(1)}, false, 0, "; its 2 ranks were ended"},
		{[]rank{killed, earlier}, false, 0, "; 1 of its 2 ranks was ended"},
		{[]rank{killed, earlier, failed}, true, 3, "; 1 of the job's other 5 ranks was ended, 3 had not started"},
		{[]rank{killed, killed}, false, 1, "; 2 of the job's 3 ranks were ended, 1 had not started"},
		{[]rank{failed}, true, 3, ""},
	} {
		r := &run{failure: &failure{}, lostHosts: map[int]bool{1: true}}
		r.cfg.Specs = make([]procs.Spec, len(c.ranks)+c.unstarted, len(c.ranks)+c.unstarted+1)
		r.cfg.Specs = append(r.cfg.Specs, procs.Spec{Host: 1}) // not started, on a lost host
		for _, k := range c.ranks {
			r.ranks = append(r.ranks, &k)
		}
		if c.ofRank {
			r.failure.rank = r.ranks[len(r.ranks)-1]
		}
		assert.Equal(t, c.want, r.othersSummary())
	}
}

func TestOneLineRemovesControlCharacters(t *testing.T) {
	assert.Equal(t, "a b c", oneLine("a\nb\x1b\r\x00c\n"))
}

func TestRankEnvOverridesInheritedJob(t *testing.T) {
	id := Identity{JobID: "j", Secret: []byte{0xab, 1}, Size: 8, Oversubscribed: true}
	env := RankEnv(id, 5, 1, 4,
		[]string{"PATH=/bin", "PMI_PORT=x", "PMI_RANK=9", "MPIGO_SECRET=old", "MPIGO_INIT_PID=7", "MPIGO_JOINED_PID=7", "A=1", "MPIGO_STATS=0", "A=2", "LD_X="},
		[]string{"A=3", "MPIGO_STATS=1", "PMI_RANK=77"})
	assert.Equal(t, []string{
		"PATH=/bin", "LD_X=", "A=3", "MPIGO_STATS=1",
		"PMI_FD=3", "MPIGO_INTROSPECT_FD=4", "PMI_RANK=5", "PMI_ID=5", "PMI_SIZE=8", "PMI_JOBID=j", "MPIGO_SECRET=ab01",
		"MPIGO_RANK=5", "MPIGO_SIZE=8", "MPIGO_LOCAL_RANK=1", "MPIGO_LOCAL_SIZE=4",
		"MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=4", "MPIGO_OVERSUBSCRIBED=1",
	}, env)
	for _, pair := range RankEnv(id, 0, 0, 1, nil, nil)[1:] {
		name, _, _ := strings.Cut(pair, "=")
		assert.True(t, isRankVariable(name), name)
	}
}

func TestRunWithInvalidJobIDFails(t *testing.T) {
	cfg, _, stderr := shellJob(t, "echo started")
	cfg.JobID = "not a word"
	assert.Equal(t, 1, runAndFlush(cfg))
	assert.Regexp(t, `^mpirun-go: wireup: .*\n$`, stderr.String())
}
