package procs

import (
	"bufio"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guardFD is where the guard finds the pipe from its launcher.
const watchdogFD = 3

// A guard is a process in a session of its own that reads what the launcher
// tells it, a line each ("job ID", "group PID", "remove PATH"), and does nothing
// until the pipe ends. That happens when the launcher has died without dismissing
// it; then it ends the groups, whatever else is of that job, and removes the paths.
type watchdog struct {
	pid  int
	pipe *os.File
}

func startWatchdog(argv []string, jobID string) (*watchdog, error) {
	readEnd, writeEnd, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer readEnd.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		_ = writeEnd.Close()
		return nil, err
	}
	defer null.Close()
	// It has no environment: a sweep must not take it for a part of the job, or
	// of a job that this launcher runs in.
	pid, err := syscall.ForkExec("/proc/self/exe", argv, &syscall.ProcAttr{
		Dir:   "/",
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), readEnd.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		_ = writeEnd.Close()
		return nil, os.NewSyscallError("fork/exec", err)
	}
	g := &watchdog{pid: pid, pipe: writeEnd}
	g.send("job", jobID)
	return g, nil
}

// tell cannot block for long: the guard reads all the time. If it is gone, the
// job goes on without.
func (g *watchdog) send(verb, argument string) {
	_, _ = g.pipe.WriteString(verb + " " + argument + "\n")
}

// dismiss ends the guard, which must find nothing to do.
func (g *watchdog) stop() {
	_ = unix.Kill(g.pid, unix.SIGKILL)
	_ = g.pipe.Close()
	reap(g.pid, 0)
}

// Guard is the body of the guard process. It returns when all is done.
func RunWatchdog() {
	// What is meant for the launcher is not meant for the guard.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	watchLauncher(os.NewFile(watchdogFD, "launcher"))
}

func watchLauncher(launcher io.Reader) {
	var jobID string
	var groups []int
	var paths []string
	for lines := bufio.NewScanner(launcher); lines.Scan(); {
		verb, argument, _ := strings.Cut(lines.Text(), " ")
		switch verb {
		case "job":
			jobID = argument
		case "group":
			if pid, err := strconv.Atoi(argument); err == nil && pid > 1 {
				groups = append(groups, pid)
			}
		case "remove":
			paths = append(paths, argument)
		}
	}
	for _, pid := range groups {
		_ = unix.Kill(-pid, unix.SIGKILL)
	}
	sweep(jobID)
	for _, path := range paths {
		_ = os.RemoveAll(path)
	}
}

// sweepRounds bounds the sweep against what starts processes faster than they
// can be found.
const sweepRounds = 20

// sweep ends every process of the job: each whose environment was made with its
// PMI_JOBID, which no other job has. It repeats until a look finds nothing new,
// since a process may have started another in between.
func sweep(jobID string) {
	if jobID == "" {
		return
	}
	killed, lastExecing := map[int]bool{}, 0
	for range sweepRounds {
		found := false
		pids, execing := processesOfJob("/proc", jobID)
		for _, pid := range pids {
			if pid == os.Getpid() {
				continue
			}
			_ = unix.Kill(pid, unix.SIGKILL)
			found = found || !killed[pid]
			killed[pid] = true
		}
		if !found {
			if execing == 0 || execing == lastExecing {
				return
			}
			time.Sleep(execWindow)
		}
		lastExecing = execing
	}
}

// execMoment is more than a process is without an environment while it executes a program.
const execWindow = time.Millisecond

// processesOf looks through proc for living processes of the job. Those of
// other users cannot be read, and are not the job's. unclear counts those that run a
// program, not this one, and have no environment: one may be about to get the job's.
func processesOfJob(proc, jobID string) (pids []int, execing int) {
	dir, err := os.Open(proc)
	if err != nil {
		return nil, 0
	}
	self, _ := os.Readlink(filepath.Join(proc, "self", "exe"))
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		environ, err := os.ReadFile(filepath.Join(proc, name, "environ"))
		if err == nil && hasVariable(string(environ), "PMI_JOBID="+jobID) {
			pids = append(pids, pid)
		}
		if err == nil && len(environ) == 0 {
			if exe, err := os.Readlink(filepath.Join(proc, name, "exe")); err == nil && exe != self {
				execing++
			}
		}
	}
	return pids, execing
}

// hasVariable looks for NAME=VALUE among the words that each end in a zero byte.
func hasVariable(environ, variable string) bool {
	return strings.HasPrefix(environ, variable+"\x00") || strings.Contains(environ, "\x00"+variable+"\x00")
}
