package procs

import (
	"bufio"
	"fmt"
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

// watchdogFD is the descriptor of the watchdog's pipe from the launcher.
const watchdogFD = 3

// A watchdog is a process that cleans up if the launcher is killed. It runs in a session of its own
// and reads commands from a pipe: "job ID", "group PID" and "remove FILE PATH", where FILE is the
// identity of the file or directory that the launcher created at PATH (identify). A zero byte,
// which no path has, ends each command. The watchdog does nothing until the pipe ends. Then the
// launcher has died without stopping the watchdog, and the watchdog kills the process groups and
// all other processes of the job, and removes the files.
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
	// The environment is empty, so that sweep does not mistake the watchdog for a process of this
	// job, or of a job in which this launcher is a rank.
	pid, err := syscall.ForkExec("/proc/self/exe", argv, &syscall.ProcAttr{
		Dir:   "/",
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), readEnd.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		_ = writeEnd.Close()
		return nil, os.NewSyscallError("fork/exec", err)
	}
	w := &watchdog{pid: pid, pipe: writeEnd}
	w.send("job", jobID)
	return w, nil
}

// send sends a command. It cannot block for long, because the watchdog reads all the time. Without
// a watchdog the job goes on.
func (w *watchdog) send(verb, argument string) {
	_, _ = w.pipe.WriteString(verb + " " + argument + "\x00")
}

// removeIfKilled has the watchdog remove path if the launcher is killed, but only if the same file
// is still there.
func (w *watchdog) removeIfKilled(path string) {
	path, err := filepath.Abs(path) // the watchdog runs in another directory
	if err != nil {
		return
	}
	if info, err := os.Lstat(path); err == nil {
		w.send("remove", identify(info)+" "+path)
	}
}

// identify returns a word that identifies the file as long as it exists.
func identify(info os.FileInfo) string {
	st := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// stop ends the watchdog before it can act.
func (w *watchdog) stop() {
	_ = unix.Kill(w.pid, unix.SIGKILL)
	_ = w.pipe.Close()
	reap(w.pid, 0)
}

// RunWatchdog is the main function of the watchdog process. It returns after the cleanup.
func RunWatchdog() {
	// Signals to the launcher's process group must not end the watchdog.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	watchLauncher(os.NewFile(watchdogFD, "launcher"))
}

func watchLauncher(launcher io.Reader) {
	var jobID string
	var groups []int
	var files []string
	for in := bufio.NewReader(launcher); ; {
		command, err := in.ReadString(0)
		if err != nil {
			break // an incomplete command may name another process or file
		}
		verb, argument, _ := strings.Cut(strings.TrimSuffix(command, "\x00"), " ")
		switch verb {
		case "job":
			jobID = argument
		case "group":
			if pid, err := strconv.Atoi(argument); err == nil && pid > 1 {
				groups = append(groups, pid)
			}
		case "remove":
			files = append(files, argument)
		}
	}
	for _, pid := range groups {
		_ = unix.Kill(-pid, unix.SIGKILL)
	}
	sweep(jobID)
	for _, file := range files {
		id, path, _ := strings.Cut(file, " ")
		removeSame(id, path)
	}
}

// removeSame removes the file or directory at path if it has the given identity. Another user may
// replace it by a file or a symbolic link at any time, even during this call. So the function
// removes only entries of the directory that it has opened and identified.
func removeSame(id, path string) {
	parent, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return
	}
	defer parent.Close()
	name := filepath.Base(path)
	info, err := parent.Lstat(name)
	if err != nil || identify(info) != id {
		return
	}
	if info.IsDir() {
		empty(parent, name, id)
	}
	_ = parent.Remove(name) // does not remove a directory that has entries
}

// empty removes all entries of the directory with a name, if the directory has the given identity.
func empty(parent *os.Root, name, id string) {
	dir, err := parent.OpenRoot(name)
	if err != nil {
		return
	}
	defer dir.Close()
	list, err := dir.Open(".")
	if err != nil {
		return
	}
	defer list.Close()
	if info, err := list.Stat(); err != nil || identify(info) != id {
		return
	}
	names, _ := list.Readdirnames(-1)
	for _, name := range names {
		_ = dir.RemoveAll(name)
	}
}

// sweepRounds bounds sweep, in case a program starts processes faster than sweep finds them.
const sweepRounds = 20

// sweep kills every process whose environment has the job's PMI_JOBID, which is unique to the job.
// A process may start another one during a pass over /proc, so sweep repeats until a pass finds no
// new process.
func sweep(jobID string) {
	if jobID == "" {
		return
	}
	killed := map[int]bool{}
	for round := range sweepRounds {
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
			if execing == 0 {
				return
			}
			time.Sleep(execWindow << min(round, 6))
		}
	}
}

// execWindow is usually longer than the time during which a process that executes a program has no
// environment. All rounds together wait for a second, for a process that does not get a processor.
const execWindow = time.Millisecond

// processesOfJob lists the living processes of the job in the proc file system. Processes of other
// users are unreadable, and are not the job's. execing counts the processes without environment and
// arguments that run another program than this one. Such a process may be executing a program of
// the job: the kernel shows neither until it has loaded the program. Kernel threads and zombies
// have no program.
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
			arguments, _ := os.ReadFile(filepath.Join(proc, name, "cmdline"))
			exe, err := os.Readlink(filepath.Join(proc, name, "exe"))
			if err == nil && exe != self && len(arguments) == 0 {
				execing++
			}
		}
	}
	return pids, execing
}

// hasVariable reports whether environ, whose words each end in a zero byte, contains variable as
// NAME=VALUE.
func hasVariable(environ, variable string) bool {
	return strings.HasPrefix(environ, variable+"\x00") || strings.Contains(environ, "\x00"+variable+"\x00")
}
