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
const guardFD = 3

// A guard is a process in a session of its own that reads what the launcher
// tells it, a line each ("job ID", "group PID", "remove PATH"), and does nothing
// until the pipe ends. That happens when the launcher has died without dismissing
// it; then it ends the groups, whatever else is of that job, and removes the paths.
type guard struct {
	pid  int
	pipe *os.File
}

func startGuard(argv []string, jobID string) (*guard, error) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		_ = ours.Close()
		return nil, err
	}
	defer null.Close()
	// It has no environment: a sweep must not take it for a part of the job, or
	// of a job that this launcher runs in.
	pid, err := syscall.ForkExec("/proc/self/exe", argv, &syscall.ProcAttr{
		Dir:   "/",
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), theirs.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		_ = ours.Close()
		return nil, os.NewSyscallError("fork/exec", err)
	}
	g := &guard{pid: pid, pipe: ours}
	g.tell("job", jobID)
	return g, nil
}

// tell cannot block for long: the guard reads all the time. If it is gone, the
// job goes on without.
func (g *guard) tell(verb, what string) {
	_, _ = g.pipe.WriteString(verb + " " + what + "\n")
}

// dismiss ends the guard, which must find nothing to do.
func (g *guard) dismiss() {
	_ = unix.Kill(g.pid, unix.SIGKILL)
	_ = g.pipe.Close()
	reap(g.pid, 0)
}

// Guard is the body of the guard process. It returns when all is done.
func Guard() {
	// What is meant for the launcher is not meant for the guard.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	guardJob(os.NewFile(guardFD, "launcher"))
}

func guardJob(launcher io.Reader) {
	var jobID string
	var groups []int
	var paths []string
	for lines := bufio.NewScanner(launcher); lines.Scan(); {
		verb, what, _ := strings.Cut(lines.Text(), " ")
		switch verb {
		case "job":
			jobID = what
		case "group":
			if pid, err := strconv.Atoi(what); err == nil && pid > 1 {
				groups = append(groups, pid)
			}
		case "remove":
			paths = append(paths, what)
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
	killed, unclear := map[int]bool{}, 0
	for range sweepRounds {
		found := false
		pids, again := processesOf("/proc", jobID)
		for _, pid := range pids {
			if pid == os.Getpid() {
				continue
			}
			_ = unix.Kill(pid, unix.SIGKILL)
			found = found || !killed[pid]
			killed[pid] = true
		}
		if !found {
			if again == 0 || again == unclear {
				return
			}
			time.Sleep(execMoment)
		}
		unclear = again
	}
}

// execMoment is more than a process is without an environment while it executes a program.
const execMoment = time.Millisecond

// processesOf looks through proc for living processes of the job. Those of
// other users cannot be read, and are not the job's. unclear counts those that run a
// program, not this one, and have no environment: one may be about to get the job's.
func processesOf(proc, jobID string) (pids []int, unclear int) {
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
				unclear++
			}
		}
	}
	return pids, unclear
}

// hasVariable looks for NAME=VALUE among the words that each end in a zero byte.
func hasVariable(environ, variable string) bool {
	return strings.HasPrefix(environ, variable+"\x00") || strings.Contains(environ, "\x00"+variable+"\x00")
}
