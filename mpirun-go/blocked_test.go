package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// fullPipe returns the writing end of a pipe that is full and that nobody reads. It is blocking, as
// the standard error of a program is.
func fullPipe(t *testing.T) *os.File {
	var fds [2]int
	require.NoError(t, unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK))
	t.Cleanup(func() { _ = unix.Close(fds[0]) })
	for {
		if _, err := unix.Write(fds[1], make([]byte, 4096)); err != nil {
			require.Equal(t, unix.EAGAIN, err)
			break
		}
	}
	require.NoError(t, unix.SetNonblock(fds[1], false))
	f := os.NewFile(uintptr(fds[1]), "full pipe")
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// isWriting reports whether a thread of a process is in write(2) to a descriptor.
func isWriting(pid, fd int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	for _, name := range threads {
		text, _ := os.ReadFile(name)
		if strings.HasPrefix(string(text), fmt.Sprintf("%d 0x%x ", unix.SYS_WRITE, fd)) {
			return true
		}
	}
	return false
}

// The launcher's output is not read while it prints a line, at the start, in the middle or at the
// end of a job. A signal still ends the launcher and its job.
func TestSignalEndsLauncherThatNobodyReads(t *testing.T) {
	script := func(s string) []string { return []string{"sh", "-c", s} }
	for _, c := range []struct {
		name   string
		args   []string
		fd     int  // that nobody reads
		starts bool // the job's rank makes a file
	}{
		{"warning", append([]string{"--tags", "x"}, script("echo >started; exec sleep 1000")...), 2, true},
		{"line of a rank", script("yes >&2 & echo >started; exec sleep 1000"), 2, true},
		{"failure", script("echo >started; exit 3"), 2, true},
		{"no such program", []string{"./no-such-program"}, 2, false},
		{"profile", []string{"--profile", "profile", "true"}, 2, false},
		{"daemon's rank", append([]string{"--launcher", "local", "-H", "n1", "--tags", "x"}, script("echo >started; exec sleep 1000")...), 2, true},
		{"doctor's report", []string{"doctor", "--json"}, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command("mpirun-go", c.args...)
			cmd.Dir = t.TempDir()
			require.NoError(t, os.Chmod(cmd.Dir, 0o700))
			cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cmd.Dir)
			if c.fd == 1 {
				cmd.Stdout = fullPipe(t)
			} else {
				cmd.Stderr = fullPipe(t)
			}
			require.NoError(t, cmd.Start())
			exited := make(chan error, 1)
			go func() { exited <- cmd.Wait() }()
			defer func() { _ = cmd.Process.Kill() }()
			eventually(t, "the launcher is stuck", func() bool { return isWriting(cmd.Process.Pid, c.fd) })
			if c.starts {
				eventually(t, "the rank starts", func() bool {
					_, err := os.Stat(filepath.Join(cmd.Dir, "started"))
					return err == nil
				})
			}
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			select {
			case err := <-exited:
				exit := (*exec.ExitError)(nil)
				require.ErrorAs(t, err, &exit)
				require.Positive(t, exit.ExitCode(), "the launcher was killed instead of ending its job")
			case <-time.After(time.Minute):
				t.Fatal("SIGTERM does not end the launcher")
			}
		})
	}
}

// On a terminal that takes nothing (Ctrl-S), a key and a signal end mpirun-go top.
func TestTopEndsOnStoppedTerminal(t *testing.T) {
	_, client := jobOfTop(t)
	user, program := openTerminal(t)
	shown := make(chan error, 1)
	go func() { shown <- (&watcher{client: client}).show(program, fullPipe(t)) }()
	_, err := user.WriteString("q")
	require.NoError(t, err)
	require.NoError(t, <-shown)
}
