package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// When the launcher or a host's daemon is killed, the kernel has sent SIGKILL to its ranks before
// its end can be seen. In this test, the guard cannot help, all processors are busy, and one rank
// is stopped.
func TestKilledParentRanksGetSIGKILL(t *testing.T) {
	for name, flags := range map[string][]string{"launcher": nil, "daemon": {"--launcher", "local", "-H", "n1"}} {
		for _, guardGets := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
			t.Run(fmt.Sprintf("%s, guard gets %v", name, guardGets), func(t *testing.T) { killParent(t, flags, guardGets) })
		}
	}
}

func killParent(t *testing.T, flags []string, watchdogSignal syscall.Signal) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	ranks := 2 * runtime.NumCPU()
	cmd := exec.Command("mpirun-go", append(flags, "-n", strconv.Itoa(ranks), "--oversubscribe", "rank", "parent", "parent", ",", "ready", "pid", ",", "spin")...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	pids := make([]int, ranks)
	defer func() {
		for _, pid := range pids { // only if the test has failed
			if pid > 0 && !isKilled(pid) {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	var parent int
	for rank := range pids {
		eventually(t, "a rank starts", func() bool {
			return readNumber(dir, "parent", rank, &parent) && readNumber(dir, "pid", rank, &pids[rank])
		})
	}
	watchdog := watchdogOf(t, parent)
	require.NoError(t, unix.Kill(watchdog, watchdogSignal))
	eventually(t, "the guard does nothing", func() bool { return strings.Contains("TZ", state(watchdog)) })
	require.NoError(t, unix.Kill(pids[0], unix.SIGSTOP))
	eventually(t, "rank 0 is stopped", func() bool { return state(pids[0]) == "T" })

	require.NoError(t, unix.Kill(parent, unix.SIGKILL))
	eventually(t, "the parent ends", func() bool { return hasEnded(parent) })
	for rank, pid := range pids {
		assert.True(t, isKilled(pid), "rank %d runs on", rank)
	}
	for rank, pid := range pids {
		eventually(t, fmt.Sprintf("rank %d ends", rank), func() bool { return state(pid) == "Z" })
	}
	if watchdogSignal == syscall.SIGSTOP {
		assert.Equal(t, "T", state(watchdog))
		require.NoError(t, unix.Kill(watchdog, unix.SIGCONT))
		eventually(t, "the guard ends", func() bool { return state(watchdog) == "Z" })
	}
	require.Error(t, cmd.Wait(), "%s", &stderr)
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, time.Millisecond, what)
}

// readNumber reads the number that a rank has written to a file of its own.
func readNumber(dir, name string, rank int, to *int) bool {
	text, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("%s.%d", name, rank)))
	if err != nil || !strings.HasSuffix(string(text), "\n") {
		return false
	}
	*to, err = strconv.Atoi(strings.TrimSpace(string(text)))
	return err == nil
}

// guardOf is the guard that a launcher or daemon has started.
func watchdogOf(t *testing.T, parent int) int {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, path := range lines {
		line, err := os.ReadFile(path)
		if err != nil || string(line) != watchdogName+"\x00" {
			continue
		}
		status, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "status"))
		if strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", parent)) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			require.NoError(t, err)
			return pid
		}
	}
	require.FailNow(t, "there is no guard")
	return 0
}

// hasEnded is whether no thread of a process is left, but for a zombie.
func hasEnded(pid int) bool {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return err != nil || len(threads) == 0 || len(threads) == 1 && state(pid) == "Z"
}

// isKilled is whether a process has ended, or has SIGKILL, after which it executes no more of its
// program.
func isKilled(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil || state(pid) == "Z" {
		return true
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if (name == "SigPnd" || name == "ShdPnd") && err == nil && set&(1<<(unix.SIGKILL-1)) != 0 {
			return true
		}
	}
	return false
}
