package remote

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestScriptIsQuotableAndRecognized(t *testing.T) {
	script := (Program{hash: strings.Repeat("a0", 32), size: 12345}).script()
	assert.NotContains(t, script, "'", "the script is quoted with single quotes")
	assert.NotContains(t, script, "\n")
	for _, placeholder := range []string{"HASH", "SIZE", "WANT", "DAEMON", "INSTALL", "PART", "NO_"} {
		assert.NotContains(t, script, placeholder)
	}
	for i := range script {
		piece := script[i:min(i+maxLineBytes, len(script))]
		assert.True(t, isScriptText(piece) || len(piece) < maxLineBytes, "isScriptText does not recognize %s", piece)
	}
}

// scriptRun is a run of the script, which starts this binary.
type scriptRun struct {
	self Program
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
}

func runScript(t *testing.T, home string) *scriptRun {
	t.Helper()
	return runScriptIn(t, home, "/bin/sh")
}

func runScriptIn(t *testing.T, home string, shell ...string) *scriptRun {
	t.Helper()
	self, err := thisProgram()
	require.NoError(t, err)
	s := &scriptRun{self: self, cmd: exec.Command(shell[0], append(shell[1:], "-c", self.script())...)}
	s.cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+home)
	s.cmd.Stderr = os.Stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.in, err = s.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	s.out = bufio.NewReader(out)
	require.NoError(t, s.cmd.Start())
	return s
}

func (s *scriptRun) expectLine(t *testing.T, want string) {
	t.Helper()
	line, err := s.out.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, want+"\n", line)
}

func (s *scriptRun) expectRequest(t *testing.T) {
	t.Helper()
	s.expectLine(t, "")
	s.expectLine(t, wantLine+s.self.hash)
}

func (s *scriptRun) expectRun(t *testing.T) {
	t.Helper()
	s.expectLine(t, "runs "+DaemonArg)
	require.NoError(t, s.cmd.Wait())
}

// expectCopy sends the program, which the script must request and then run.
func (s *scriptRun) expectCopy(t *testing.T) {
	t.Helper()
	s.expectRequest(t)
	require.NoError(t, s.self.send(s.in))
	s.expectRun(t)
}

func (s *scriptRun) copyPath(home string) string {
	return filepath.Join(home, "mpigo", s.self.hash, "mpirun-go")
}

// Two starts put the program into the cache at the same time. The second one keeps the copy of the
// first one, which may be running.
func TestConcurrentScriptsKeepFirstCopy(t *testing.T) {
	home := privateDir(t)
	starts := []*scriptRun{runScript(t, home), runScript(t, home)}
	for _, s := range starts {
		s.expectRequest(t)
	}
	var first os.FileInfo
	for _, s := range starts {
		require.NoError(t, s.self.send(s.in))
		s.expectRun(t)
		info, err := os.Stat(s.copyPath(home))
		require.NoError(t, err)
		if first == nil {
			first = info
		}
		assert.True(t, os.SameFile(first, info), "the first copy must stay")
	}
	for _, dir := range []string{filepath.Join(home, "mpigo"), filepath.Dir(starts[0].copyPath(home))} {
		assert.Equal(t, 1, countEntries(t, dir))
		info, err := os.Stat(dir)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	}
	runScript(t, home).expectRun(t)
}

// The script runs in all installed POSIX shells, with a path that needs quotes.
func TestScriptRunsInEveryShell(t *testing.T) {
	for _, shell := range [][]string{
		{"/bin/sh"}, {"/bin/sh", "-u"}, {"dash"}, {"bash", "--posix"}, {"busybox", "sh"}, {"ksh"}, {"ksh93"}, {"mksh"}, {"yash"},
	} {
		if _, err := exec.LookPath(shell[0]); err != nil {
			continue
		}
		home := privateDir(t) + "/a b\n* $(c)"
		runScriptIn(t, home, shell...).expectCopy(t)
		runScriptIn(t, home, shell...).expectRun(t)
	}
}

// The script does not execute a copy that another user could change, even if its content is right.
func TestScriptReplacesCopyThatOthersControl(t *testing.T) {
	home := privateDir(t)
	s := runScript(t, home)
	s.expectCopy(t)
	file := s.copyPath(home)
	exposures := map[string]func() error{
		"writable by others": func() error { return os.Chmod(file, 0o702) },
		"a symbolic link": func() error {
			other := filepath.Join(home, "other")
			return errors.Join(os.Rename(file, other), os.Symlink(other, file))
		},
	}
	if os.Geteuid() == 0 {
		exposures["another user's"] = func() error { return os.Chown(file, 65534, 65534) }
		exposures["writable by its group"] = func() error { _, err := shareWithGroup(file, 0o720); return err }
	}
	for name, expose := range exposures {
		require.NoError(t, expose(), name)
		runScript(t, home).expectCopy(t)
		info, err := os.Lstat(file)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o700), info.Mode(), name)
	}
}

// A start that ends while it receives the program leaves no file, whatever ends it.
func TestInterruptedScriptLeavesNothing(t *testing.T) {
	for name, interrupt := range map[string]func(s *scriptRun) error{
		"killed":         func(s *scriptRun) error { return unix.Kill(-s.cmd.Process.Pid, unix.SIGKILL) },
		"terminated":     func(s *scriptRun) error { return unix.Kill(-s.cmd.Process.Pid, unix.SIGTERM) },
		"connection cut": func(s *scriptRun) error { return s.in.Close() },
	} {
		home := privateDir(t)
		s := runScript(t, home)
		s.expectRequest(t)
		sendMebibyte(t, s.in)
		require.NoError(t, interrupt(s), name)
		require.Error(t, s.cmd.Wait(), name)
		// Children of the shell may exit after it.
		require.Eventually(t, func() bool { return unix.Kill(-s.cmd.Process.Pid, 0) == unix.ESRCH }, time.Minute, time.Millisecond)
		assert.Zero(t, countEntries(t, filepath.Join(home, "mpigo")), name)
	}
}

func TestInstallWithWrongHashFails(t *testing.T) {
	dir := privateDir(t)
	assert.ErrorContains(t, install("x", dir), "is not a hash")
	assert.ErrorContains(t, install(strings.Repeat("a0", 32), dir), "the received file differs from the sent one")
	assert.Zero(t, countEntries(t, dir))
}
