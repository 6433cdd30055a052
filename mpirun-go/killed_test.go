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

// When the launcher or a host's daemon is killed, the kernel sends SIGKILL to its ranks before the
// exit of the launcher or daemon is visible. In this test the watchdog is stopped or killed, all
// processors are busy, and one rank is stopped.
func TestKilledParentRanksGetSIGKILL(t *testing.T) {
	for name, flags := range map[string][]string{"launcher": nil, "daemon": {"--launcher", "local", "-H", "n1"}} {
		for _, guardGets := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
			t.Run(fmt.Sprintf("%s, watchdog gets %v", name, guardGets), func(t *testing.T) { killParent(t, flags, guardGets) })
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
		for _, pid := range pids { // has an effect only if the test has failed
			if pid > 0 && !isKilled(pid) {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	var parent int
	for rank := range pids {
		eventually(t, "the rank starts", func() bool {
			return readNumber(dir, "parent", rank, &parent) && readNumber(dir, "pid", rank, &pids[rank])
		})
	}
	var watchdog int
	eventually(t, "the watchdog runs", func() bool { return findWatchdog(parent, &watchdog) })
	require.NoError(t, unix.Kill(watchdog, watchdogSignal))
	eventually(t, "the watchdog is inactive", func() bool { return strings.Contains("TZ", state(watchdog)) })
	require.NoError(t, unix.Kill(pids[0], unix.SIGSTOP))
	eventually(t, "rank 0 is stopped", func() bool { return state(pids[0]) == "T" })

	require.NoError(t, unix.Kill(parent, unix.SIGKILL))
	eventually(t, "the parent exits", func() bool { return hasExited(parent) })
	for rank, pid := range pids {
		assert.True(t, isKilled(pid), "rank %d still runs", rank)
	}
	for rank, pid := range pids {
		eventually(t, fmt.Sprintf("rank %d exits", rank), func() bool { return state(pid) == "Z" })
	}
	if watchdogSignal == syscall.SIGSTOP {
		assert.Equal(t, "T", state(watchdog))
		require.NoError(t, unix.Kill(watchdog, unix.SIGCONT))
		eventually(t, "the watchdog exits", func() bool { return state(watchdog) == "Z" })
	}
	require.Error(t, cmd.Wait(), "%s", &stderr)
}

func eventually(t *testing.T, event string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, time.Millisecond, event)
}

// readNumber reads the number that a rank has written to its own file.
func readNumber(dir, name string, rank int, to *int) bool {
	text, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("%s.%d", name, rank)))
	if err != nil || !strings.HasSuffix(string(text), "\n") {
		return false
	}
	*to, err = strconv.Atoi(strings.TrimSpace(string(text)))
	return err == nil
}

// findWatchdog finds the watchdog of a launcher or daemon. The watchdog has its name only from the
// end of its start on.
func findWatchdog(parent int, pid *int) bool {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		line, err := os.ReadFile(path)
		if err != nil || string(line) != watchdogName+"\x00" {
			continue
		}
		status, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "status"))
		if strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", parent)) {
			*pid, err = strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return err == nil
		}
	}
	return false
}

// hasExited reports whether a process has no threads except a zombie.
func hasExited(pid int) bool {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return err != nil || len(threads) == 0 || len(threads) == 1 && state(pid) == "Z"
}

// isKilled reports whether a process has exited or has SIGKILL pending. In either case it executes
// no more instructions of its program.
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
