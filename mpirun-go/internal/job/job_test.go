package job

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/mpigo/mpigo/internal/wireup"
	"github.com/mpigo/mpigo/mpirun-go/internal/output"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lockedBuffer may be read while a job writes to it.
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

// For scripts of which one waits until the launcher has begun to start another.
const (
	markStarted  = "echo >started; "
	waitForOther = "while ! test -e started; do :; done; "
)

// shells is a job whose ranks run these scripts, in a directory of their own.
func shellJob(t *testing.T, scripts ...string) (cfg Config, stdout, stderr *lockedBuffer) {
	t.Helper()
	jobID := fmt.Sprintf("job-test-%d-%s", os.Getpid(), t.Name())
	local, err := procs.NewLocal("here", jobID, nil)
	require.NoError(t, err)
	t.Cleanup(local.Close)
	stdout, stderr = &lockedBuffer{}, &lockedBuffer{}
	cfg = Config{Hosts: []Host{local}, JobID: jobID, Stdout: stdout, Stderr: stderr, Signals: make(chan os.Signal)}
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

func TestRunOfSuccessfulJobReturnsZero(t *testing.T) {
	cfg, stdout, stderr := shellJob(t, "echo a", "echo b; echo c >&2")
	assert.Equal(t, 0, Run(cfg))
	assert.ElementsMatch(t, []string{"a", "b", ""}, strings.Split(stdout.String(), "\n"))
	assert.Equal(t, "c\n", stderr.String())
}

func TestRunReturnsFirstFailure(t *testing.T) {
	cfg, _, stderr := shellJob(t, "exec 2>/dev/null; trap 'exit 9' TERM; while :; do sleep 0.01; done", "exit 5", "exec sleep 1000")
	assert.Equal(t, 5, Run(cfg))
	assert.Regexp(t, `^mpirun-go: rank 1 \(pid \d+\) on here exited with status 5; the job's other (rank was|2 ranks were) ended\n$`, stderr.String())
}

func TestStartErrorTerminatesStartedRanks(t *testing.T) {
	cfg, _, stderr := shellJob(t, "exec sleep 1000", "")
	cfg.Specs[1].Path = "/no/such/program"
	assert.Equal(t, 127, Run(cfg))
	assert.Equal(t, "mpirun-go: rank 1 on here: start /no/such/program: no such file or directory; its rank was ended\n", stderr.String())
}

func TestTimeoutKillsRankThatIgnoresTERM(t *testing.T) {
	cfg, _, stderr := shellJob(t, "trap '' TERM; while :; do sleep 0.01; done")
	cfg.Timeout = 10 * time.Millisecond
	assert.Equal(t, 124, Run(cfg))
	assert.Equal(t, "mpirun-go: the job has run for --timeout 10ms (Ctrl-\\ before then shows where ranks of Go wait); its rank was ended\n", stderr.String())
}

// The ranks get their time to end although the signal comes twice, as timeout(1) sends it.
func TestRepeatedSignalKeepsGracePeriod(t *testing.T) {
	cfg, stdout, _ := shellJob(t, "trap 'sleep 0.05; echo ended in order; exit 9' TERM; echo ready >&2; while :; do sleep 0.01; done")
	ready, stderr := make(chan struct{}), cfg.Stderr
	cfg.Stderr = writerFunc(func(p []byte) (int, error) {
		if strings.HasPrefix(string(p), "ready") {
			close(ready)
		}
		return stderr.Write(p)
	})
	signals := make(chan os.Signal, 2)
	cfg.Signals = signals
	go func() {
		<-ready
		signals <- syscall.SIGTERM
		signals <- syscall.SIGTERM
	}()
	assert.Equal(t, 143, Run(cfg))
	assert.Equal(t, "ended in order\n", stdout.String())
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }

// Nobody reads, and nobody writes: the job ends all the same.
func TestClosedStdoutEndsJob(t *testing.T) {
	cfg, _, stderr := shellJob(t, "exec sleep 1000", "exec sleep 1000")
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	defer writer.Close()
	cfg.Stdout = writer
	require.NoError(t, reader.Close())
	assert.Equal(t, 141, Run(cfg))
	assert.Empty(t, stderr.String())
}

// Where the ranks write to files of their own, the reader is no part of the job; and a job
// that is just ending ends as it does.
func TestClosedStdoutIsIgnored(t *testing.T) {
	for _, files := range []bool{false, true} {
		script := "exit 0"
		if files {
			script = fmt.Sprintf("sleep %v", 2*readerGrace.Seconds())
		}
		cfg, _, stderr := shellJob(t, script)
		reader, writer, err := os.Pipe()
		require.NoError(t, err)
		cfg.Stdout = writer
		if files {
			cfg.Files, err = output.OpenFiles(t.TempDir(), 1)
			require.NoError(t, err)
		}
		require.NoError(t, reader.Close())
		assert.Equal(t, 0, Run(cfg), stderr)
		require.NoError(t, writer.Close())
	}
}

// gate is a writer that takes nothing until it is opened.
type gatedWriter struct {
	open chan struct{}
	w    io.Writer
}

func (g gatedWriter) Write(p []byte) (int, error) {
	<-g.open
	return g.w.Write(p)
}

func TestSlowReaderLosesNothing(t *testing.T) {
	const lines = 60000 // more than pipe and buffers hold
	cfg, stdout, _ := shellJob(t, fmt.Sprintf("seq 1 %d; : >&2; kill -KILL $$", lines))
	g := gatedWriter{make(chan struct{}), stdout}
	cfg.Stdout = g
	status := make(chan int)
	go func() { status <- Run(cfg) }()
	select {
	case <-status:
		t.Fatal("the job ended though nobody has read its output")
	case <-time.After(10 * time.Millisecond):
	}
	close(g.open)
	assert.Equal(t, 137, <-status)
	assert.Equal(t, lines, strings.Count(stdout.String(), "\n"))
	assert.True(t, strings.HasSuffix(stdout.String(), fmt.Sprintf("\n%d\n", lines)))
}

func TestInterruptDoesNotWaitForStuckReader(t *testing.T) {
	cfg, stdout, stderr := shellJob(t, "echo ready >&2; exec yes")
	g := gatedWriter{make(chan struct{}), stdout}
	cfg.Stdout = g
	signals := make(chan os.Signal)
	cfg.Signals = signals
	status := make(chan int)
	go func() { status <- Run(cfg) }()
	require.Eventually(t, func() bool { return stderr.String() == "ready\n" }, time.Minute, time.Millisecond)
	signals <- syscall.SIGINT
	assert.Equal(t, 130, <-status)
	assert.Equal(t, "ready\nmpirun-go: got signal 2 (interrupt); its rank was ended\n", stderr.String())
	close(g.open) // lets go of what is left of the job
}

func TestOutputWriteErrorFailsJob(t *testing.T) {
	for err, want := range map[error]int{syscall.EPIPE: 141, syscall.ENOSPC: 1} {
		cfg, _, stderr := shellJob(t, waitForOther+"exec yes", markStarted+"exec sleep 1000")
		cfg.Stdout = brokenWriter{&os.PathError{Op: "write", Path: "x", Err: err}}
		assert.Equal(t, want, Run(cfg), err)
		if want == 1 {
			assert.Equal(t, "mpirun-go: cannot write standard output: no space left on device; its 2 ranks were ended\n", stderr.String())
		} else {
			assert.Empty(t, stderr.String())
		}
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

func TestStdinReachesRanksWithPipe(t *testing.T) {
	cfg, stdout, _ := shellJob(t, "cat", "cat", "cat")
	cfg.Specs[0].Stdin, cfg.Specs[2].Stdin = procs.StdinPipe, procs.StdinPipe
	cfg.Input = strings.NewReader("line\n")
	cfg.Style = output.Style{Tag: true}
	assert.Equal(t, 0, Run(cfg))
	assert.ElementsMatch(t, []string{"[0] line", "[2] line", ""}, strings.Split(stdout.String(), "\n"))
}

func TestOutputFilesReceiveOutput(t *testing.T) {
	cfg, stdout, _ := shellJob(t, "echo a", "echo b")
	dir := t.TempDir()
	files, err := output.OpenFiles(dir, 2)
	require.NoError(t, err)
	cfg.Files = files
	assert.Equal(t, 0, Run(cfg))
	assert.Empty(t, stdout.String())
	text, err := os.ReadFile(dir + "/rank.1.stdout")
	require.NoError(t, err)
	assert.Equal(t, "b\n", string(text))
	assert.ErrorIs(t, files[0].Stdout.Close(), os.ErrClosed)
}

func TestPMIProtocolErrorEndsJob(t *testing.T) {
	cfg, _, stderr := shellJob(t, waitForOther+"echo nonsense >&3; exec sleep 1000", markStarted+"exec sleep 1000")
	assert.Equal(t, 1, Run(cfg))
	assert.Regexp(t, `^mpirun-go: rank 0 \(pid \d+\) on here lost its wire-up: .+; the job's other rank was ended\n$`, stderr.String())

	cfg, _, stderr = shellJob(t, "echo nonsense >&3; read x <&3")
	assert.Equal(t, 1, Run(cfg))
	assert.Equal(t, 1, strings.Count(stderr.String(), "\n"))
}

func TestPMIHeldOpenByChildDoesNotDelayJob(t *testing.T) {
	cfg, _, stderr := shellJob(t, "sleep 1000 >/dev/null 2>&1 & exit 0")
	assert.Equal(t, 0, Run(cfg))
	assert.Empty(t, stderr.String())
}

func TestOthersSummary(t *testing.T) {
	term := procs.Exit{Signal: syscall.SIGTERM}
	killed := rank{exited: true, signalled: true, exit: term}
	exited := func(code int) rank { return rank{exited: true, signalled: true, exit: procs.Exit{Code: code}} }
	earlier := rank{exited: true, exit: procs.Exit{Code: 1}}
	aborted := rank{exited: true, signalled: true, aborted: true, exit: term}
	stuck := rank{signalled: true}
	culprit := exited(1)
	for _, c := range []struct {
		ranks []rank
		of    bool // the verdict is of a rank, the last one
		want  string
	}{
		{[]rank{culprit}, true, ""},
		{[]rank{killed, culprit}, true, "; the job's other rank was ended"},
		{[]rank{killed, killed, exited(143), culprit}, true, "; the job's other 3 ranks were ended"},
		{[]rank{killed, earlier, aborted, culprit}, true, "; 1 of the job's other 3 ranks was ended"},
		{[]rank{killed, exited(1), killed, culprit}, true, "; 2 of the job's other 3 ranks were ended"}, // one has failed of the same cause
		{[]rank{exited(1), exited(1), culprit}, true, ""},
		{[]rank{exited(0), stuck, culprit}, true, "; 1 of the job's other 2 ranks was ended"},
		{[]rank{killed}, false, "; its rank was ended"},
		{[]rank{killed, exited(1)}, false, "; its 2 ranks were ended"},
		{[]rank{killed, earlier}, false, "; 1 of its 2 ranks was ended"},
	} {
		r := &run{failure: &failure{}}
		for _, k := range c.ranks {
			r.ranks = append(r.ranks, &k)
		}
		if c.of {
			r.failure.rank = r.ranks[len(r.ranks)-1]
		}
		assert.Equal(t, c.want, r.othersSummary())
	}
}

// A rank that only waits in a barrier for the culprit fails by itself.
func TestOthersSummarySkipsBarrierFailures(t *testing.T) {
	served := make(chan struct{})
	close(served)
	waiting := &rank{exited: true, signalled: true, exit: procs.Exit{Code: 1}, served: served, serveErr: &wireup.BarrierError{}}
	r := &run{ranks: []*rank{waiting, {exited: true}}, failure: &failure{}}
	r.failure.rank = r.ranks[1]
	assert.Empty(t, r.othersSummary())
}

func TestOneLineRemovesControlCharacters(t *testing.T) {
	assert.Equal(t, "a b c", oneLine("a\nb\x1b\r\x00c\n"))
}

func TestRankEnvOverridesInheritedJob(t *testing.T) {
	id := Identity{JobID: "j", Secret: []byte{0xab, 1}, Size: 8, Oversubscribed: true}
	env := RankEnv(id, 5, 1, 4,
		[]string{"PATH=/bin", "PMI_PORT=x", "PMI_RANK=9", "MPIGO_SECRET=old", "A=1", "MPIGO_STATS=0", "A=2", "LD_X="},
		[]string{"A=3", "MPIGO_STATS=1", "PMI_RANK=77"})
	assert.Equal(t, []string{
		"PATH=/bin", "LD_X=", "A=3", "MPIGO_STATS=1",
		"PMI_FD=3", "PMI_RANK=5", "PMI_ID=5", "PMI_SIZE=8", "PMI_JOBID=j", "MPIGO_SECRET=ab01",
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
	assert.Equal(t, 1, Run(cfg))
	assert.Regexp(t, `^mpirun-go: wireup: .*\n$`, stderr.String())
}
