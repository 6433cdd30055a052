package comm_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/internal/race"
)

// launcherFile is the path of mpirun-go, which the first test that needs it builds.
var launcherFile = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "comm-test-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "mpirun-go")
	if out, err := exec.Command("go", "build", "-o", path, "../mpirun-go").CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("%w: %s", err, out), os.RemoveAll(dir))
	}
	launcherDir.Store(&dir)
	return path, nil
})

// launcherDir is the directory of launcherFile once that is built. TestMain removes it.
var launcherDir atomic.Pointer[string]

// launcher returns a function that launches a program of program_test.go by mpirun-go. The program
// is this test binary.
func launcher(t *testing.T) func(ranks int, program string, flags ...string) outcome {
	t.Helper()
	mpirun, err := launcherFile()
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	return func(ranks int, program string, flags ...string) outcome {
		args := append([]string{"-n", strconv.Itoa(ranks), "--oversubscribe", "--timeout", "3m"}, flags...)
		return execute(t, program, mpirun, append(args, self)...)
	}
}

// verbose launches callsProgram with -v, and returns the lines on stderr.
func verbose(t *testing.T, launch func(int, string, ...string) outcome, ranks int, flags ...string) []string {
	t.Helper()
	got := launch(ranks, "calls", append(flags, "-v")...)
	assert.Equal(t, outcome{0, "calls done\n", got.stderr}, got)
	return slices.DeleteFunc(strings.Split(strings.TrimSpace(got.stderr), "\n"), func(line string) bool {
		return strings.HasPrefix(line, "mpirun-go: ") // how the launcher binds ranks
	})
}

// outcome is the result of a job.
type outcome struct {
	status         int
	stdout, stderr string
}

// withoutLines is an outcome without the lines of the program in errors.
func withoutLines(o outcome) outcome {
	return outcome{o.status, comm.WithoutLines(o.stdout), comm.WithoutLines(o.stderr)}
}

func execute(t *testing.T, program, name string, args ...string) outcome {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), programVariable+"="+program)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		require.NoError(t, err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// TestMessagesBetweenProcesses: bytes that one process sends arrive equal at another one, for
// sizes from 0 to exchangeBytes.
func TestMessagesBetweenProcesses(t *testing.T) {
	launch := launcher(t)

	exchanged := outcome{0, fmt.Sprintf("exchanged up to %d\n", exchangeBytes()), ""}
	t.Run("exchange", func(t *testing.T) {
		for _, n := range []int{2, 3} {
			if n == 3 && !race.All() {
				continue
			}
			got := launch(n, "exchange")
			assert.Equal(t, exchanged, got)
		}
		// With limits that take every protocol for short messages.
		got := launch(2, "exchange", "--set", "pml.eager.bytes=100", "--set", "sm.ring.slots=2", "--set", "sm.frag.bytes=4K")
		assert.Equal(t, exchanged, got)
	})
	for _, c := range []struct {
		program string
		ranks   []int
		want    string
	}{
		{"calls", []int{1, 2, 4}, "calls done\n"},
		{"groups", []int{1, 2, 4}, "groups done\n"},
		{"background", []int{3}, "arrived\n"},
		{"first", []int{2}, "sent\n"},
		{"finalized", []int{2}, "finalized\nfinalized\n"},
		{"local", []int{2}, "local done\n"},
	} {
		t.Run(c.program, func(t *testing.T) {
			for _, n := range c.ranks {
				assert.Equal(t, outcome{0, c.want, ""}, launch(n, c.program))
			}
		})
	}
	t.Run("without a launcher", func(t *testing.T) {
		self, err := os.Executable()
		require.NoError(t, err)
		assert.Equal(t, outcome{0, "calls done\n", ""}, execute(t, "calls", self))
		assert.Equal(t, exchanged, execute(t, "exchange", self))
		assert.Equal(t, 1, execute(t, "goexit", self).status)
		t.Setenv("MPIGO_BTLS", "sm")
		const warning = "mpigo: warning: \"MPIGO_BTLS\" is ignored: no tunable has this environment variable: did you mean MPIGO_BTL?\n"
		assert.Equal(t, outcome{0, "calls done\n", warning}, execute(t, "calls", self))
	})
	// A job that fails prints one line that names the rank and the error.
	for _, c := range []struct {
		program       string
		ranks, status int
		want          []string
	}{
		{"error", 3, 1, []string{"mpigo: rank 1: the program; failed\n"}},
		{"panic", 2, 1, []string{
			"mpigo: rank 1: panic: runtime error: index out of range [2] with length 1\n",
			"comm_test.panicProgram", // in the stack
		}},
		{"goexit", 2, 1, []string{"runtime.Goexit"}},
		{"abort", 3, 7, []string{"rank 1"}},
		{"unreceived", 2, 1, []string{
			"mpigo: rank 0: world: finalize: still pending: no rank receives isend", "peer 1 tag 77",
		}},
	} {
		t.Run(c.program, func(t *testing.T) {
			if c.program == "unreceived" {
				t.Parallel()
			}
			got := launch(c.ranks, c.program)
			assert.Equal(t, c.status, got.status)
			for _, want := range c.want {
				assert.Contains(t, comm.WithoutLines(got.stderr), want)
			}
		})
	}
	t.Run("unreachable", func(t *testing.T) {
		got := launch(2, "unreachable", "--btl", "self")
		assert.Equal(t, 0, got.status, got.stderr)
		assert.Equal(t, 1, strings.Count(got.stdout, "\n"), "one line")
		host, err := os.Hostname()
		require.NoError(t, err)
		assert.Contains(t, got.stdout, "no rail leads from rank 0 on "+host+" to rank 1 on "+host+" (btl=self)")
	})
	t.Run("verbose", func(t *testing.T) {
		assert.ElementsMatch(t, []string{
			"mpigo: rank 0: sm to 1-2", "mpigo: rank 1: sm to 0,2", "mpigo: rank 2: sm to 0-1",
			"mpigo: rank 0: ibverbs not to 1-2: not needed, because sm leads to all ranks",
			"mpigo: rank 0: tcp not to 1-2: not needed, because sm leads to all ranks",
		}, verbose(t, launch, 3))
		assert.Equal(t, []string{"mpigo: rank 0: there are no other ranks"}, verbose(t, launch, 1))
	})
	t.Run("over TCP", func(t *testing.T) {
		flags := []string{"--btl", "self,tcp", "--set", "tcp.include=127.0.0.1,127.0.0.2"}
		assert.Equal(t, outcome{0, "calls done\n", ""}, launch(3, "calls", flags...))
		assert.Equal(t, outcome{0, "groups done\n", ""}, launch(3, "groups", flags...))
		assert.ElementsMatch(t, []string{
			"mpigo: rank 0: tcp(127.0.0.1,127.0.0.2) to 1", "mpigo: rank 1: tcp(127.0.0.1,127.0.0.2) to 0",
			"mpigo: rank 0: sm not to 1: not in btl=self,tcp", "mpigo: rank 0: ibverbs not to 1: not in btl=self,tcp",
		}, verbose(t, launch, 2, flags...))
		got := launch(2, "exchange", append(flags, "--set", "stats=true")...)
		for _, rail := range []string{"tcp:127.0.0.1", "tcp:127.0.0.2"} {
			assert.Regexp(t, "mpigo: rank 0:   rail "+rail+" +[0-9]{5,} B\n", got.stderr)
		}
		lines := verbose(t, launch, 2, "--btl", "self,tcp", "--set", "tcp.include=127.0.0.1", "--set", "tcp.exclude=etho")
		assert.Len(t, lines, 5)
		host, err := os.Hostname()
		require.NoError(t, err)
		assert.Contains(t, lines, "mpigo: rank 0: tcp.exclude=etho: "+host+" has no interface or address etho")
		assert.Contains(t, lines, "mpigo: rank 0: tcp(lo 127.0.0.1) to 1")
		got = launch(2, "calls", "--btl", "self,tcp", "--set", "tcp.include=192.0.2.1", "--set", "pml.grace=200ms")
		assert.Equal(t, 1, got.status)
		assert.Regexp(t, `mpigo: world: init \(\w+.go:\d+\): rank \d: waited 200ms for a rail \(pml.grace\): tcp.include=192.0.2.1: rail tcp:192.0.2.1: no such interface or address on .*, which has lo `, got.stderr)
	})
	t.Run("mistyped address", func(t *testing.T) {
		got := launch(3, "calls", "--btl", "self,tcp", "--set", "tcp.include=127.0.0.1,192.0.2.1")
		want := "mpigo: rank 0: warning: no machine of the job has an address of tcp.include, so there is no rail by it: 192.0.2.1\n"
		assert.Equal(t, outcome{0, "calls done\n", want}, got)
	})
	t.Run("ports", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		taken := l.Addr().(*net.TCPAddr).Port
		ports := func(last int) string { return fmt.Sprintf("tcp.ports=%d-%d", taken, last) }
		flags := []string{"--btl", "self,tcp", "--set", "tcp.include=127.0.0.1", "--set"}
		got := launch(3, "calls", append(flags, ports(min(taken+200, 65535)))...)
		assert.Equal(t, outcome{0, "calls done\n", ""}, got)
		got = launch(2, "calls", append(flags, ports(taken))...)
		assert.Equal(t, 1, got.status)
		assert.Regexp(t, fmt.Sprintf(`(?m)^mpigo: world: init \(\w+.go:\d+\): rank \d: rail tcp:lo: listen on 127.0.0.1: none of ports %d to %d is free: `+
			`address already in use \(%s: each rank of a machine takes one port: give more ports\)$`, taken, taken, ports(taken)), got.stderr)
	})
	t.Run("without a transport", func(t *testing.T) {
		got := launch(3, "calls", "--btl", "self,ibverbs,sm", "--set", "ibverbs.devices=nowhere")
		assert.Equal(t, 0, got.status, got.stderr)
		assert.Equal(t, "calls done\n", got.stdout)
		assert.Regexp(t, `^mpigo: rank 0: warning: (without ibverbs \(btl=self,ibverbs,sm\)|left out): rail ibverbs.*: .*\n$`, got.stderr, "one line")
		got = launch(3, "calls", "--btl", "self,ibverbs", "--set", "ibverbs.devices=nowhere", "--set", "pml.grace=200ms")
		assert.Equal(t, 1, got.status)
		assert.Regexp(t, `mpigo: world: init \(\w+.go:\d+\): rank \d: (rail ibverbs: |waited 200ms for a rail \(pml.grace\): .*: rail ibverbs:nowhere/1: )`, got.stderr)
		assert.NotContains(t, got.stderr, "warning")
	})
	t.Run("bad settings", func(t *testing.T) {
		self, err := os.Executable()
		require.NoError(t, err)
		t.Setenv("MPIGO_PROGRESS_SPIN", "many")
		got := execute(t, "calls", self)
		assert.Equal(t, 1, got.status)
		assert.Equal(t, 1, strings.Count(got.stderr, "\n"), got.stderr)
		assert.Contains(t, got.stderr, "MPIGO_PROGRESS_SPIN")
		t.Setenv("MPIGO_PROGRESS_SPIN", "")
		t.Setenv("MPIGO_BTL", "self,warp")
		got = execute(t, "calls", self)
		assert.Equal(t, 1, got.status)
		assert.Contains(t, got.stderr, "MPIGO_BTL")
	})
}
