package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/mpirun-go/internal/doctor"
	"github.com/mpigo/mpigo/mpirun-go/internal/remote"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == remote.InstallArg {
		main() // the install script executes a descriptor, so argv[0] has no meaning
	}
	if len(os.Args) > 1 && (os.Args[1] == doctor.RankArg || os.Args[1] == doctor.PeerArg || os.Args[1] == benchArg) {
		main() // doctor and bench execute their own binary, by that name
	}
	testscript.Main(m, map[string]func(){
		"mpirun-go":  main,
		watchdogName: main,     // the launcher's watchdog is this binary under another name
		"rank":       rankMain, // see rank_test.go
	})
}

// TestScripts runs testdata/*.txtar. The scripts have these commands besides those of testscript,
// to wait for other processes:
//
//	waitfor FILE...                    waits until each file exists and ends with a newline
//	waitgone FILE...                   waits until the processes with the IDs in the files exit
//	waitstopped FILE...|launcher       waits until the processes are stopped
//	signal NAME launcher|FILE          signals the background launcher or the process in FILE
func TestScripts(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		// Under nohup SIGHUP is ignored. Children inherit ignored signals, but not caught ones.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	goCache, err := exec.Command("go", "env", "GOCACHE").Output()
	require.NoError(t, err)
	// An agent for which every host is this machine, and a cache for all these hosts.
	agents := t.TempDir()
	// The umask does not matter then. Hosts do not run a file that others may write to.
	require.NoError(t, os.Chmod(agents, 0o755))
	agent := filepath.Join(agents, "agent")
	require.NoError(t, os.WriteFile(agent, []byte("#!/bin/sh\nshift\nexec sh -c \"$*\"\n"), 0o777))
	repo, err := filepath.Abs("..")
	require.NoError(t, err)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"waitfor":     cmdWaitFor,
			"waitgone":    cmdWaitGone,
			"waitstopped": cmdWaitStopped,
			"signal":      cmdSignal,
		},
		Setup: func(env *testscript.Env) error {
			host, err := os.Hostname()
			err = errors.Join(err, os.Chmod(env.WorkDir, 0o755))
			env.Setenv("HOST", host)
			env.Setenv("GOCACHE", strings.TrimSpace(string(goCache)))
			env.Setenv("GOFLAGS", "-mod=mod")
			env.Setenv("GOPROXY", "off")
			env.Setenv("AGENT", agent)
			env.Setenv("REPO", repo)
			env.Setenv("XDG_CACHE_HOME", filepath.Join(agents, "cache"))
			// With -race, each process would take 1 s longer to exit.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			return err
		},
	})
}

// waitUntil polls until another process has made condition true. The time limit is far beyond the
// usual time; it only stops the tests if the launcher is broken.
func waitUntil(ts *testscript.TestScript, event string, condition func() bool) {
	for limit := time.Now().Add(time.Minute); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(limit) {
			ts.Fatalf("timed out waiting for %s", event)
		}
	}
}

func cmdWaitFor(ts *testscript.TestScript, neg bool, files []string) {
	for _, file := range files {
		waitUntil(ts, file, func() bool {
			text, err := os.ReadFile(ts.MkAbs(file))
			return err == nil && strings.HasSuffix(string(text), "\n")
		})
	}
}

// readPID returns the process ID in a file, or the launcher's.
func readPID(ts *testscript.TestScript, file string) int {
	if file == "launcher" {
		return launcher(ts)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(file)))
	ts.Check(err)
	return pid
}

func cmdWaitGone(ts *testscript.TestScript, neg bool, files []string) {
	for _, file := range files {
		pid := readPID(ts, file)
		waitUntil(ts, fmt.Sprintf("the exit of process %d (%s)", pid, file), func() bool {
			return state(pid) == "Z"
		})
	}
}

// state returns a process's state as ps shows it, or Z if the process does not exist.
func state(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "Z"
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest[:1]
}

func cmdWaitStopped(ts *testscript.TestScript, neg bool, args []string) {
	for _, arg := range args {
		pid := readPID(ts, arg)
		waitUntil(ts, arg+" to be stopped", func() bool { return state(pid) == "T" })
	}
}

// launcher returns the ID of the background process that is still running.
func launcher(ts *testscript.TestScript) int {
	for _, cmd := range ts.BackgroundCmds() {
		if state(cmd.Process.Pid) != "Z" {
			return cmd.Process.Pid
		}
	}
	ts.Fatalf("no launcher is running in the background")
	return 0
}

// cmdSignal sends a signal. STOP takes effect before it returns.
func cmdSignal(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: signal NAME launcher|FILE")
	}
	pid := readPID(ts, args[1])
	ts.Check(syscall.Kill(pid, unix.SignalNum("SIG"+args[0])))
	if args[0] == "STOP" {
		waitUntil(ts, args[1]+" to stop", func() bool { return state(pid) == "T" })
	}
}
