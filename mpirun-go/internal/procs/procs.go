// Package procs starts the processes of a job on this machine, learns of their
// end, and sees to it that nothing of them stays behind.
//
// Each rank leads a process group of its own. Three things end what a rank has
// started:
//
//   - the kernel ends a rank when the launcher dies (PR_SET_PDEATHSIG). By the time that
//     the launcher can be waited for, its ranks have SIGKILL and run no further, even
//     those that are stopped, and whatever has become of the guard;
//   - a guard process, which outlives a launcher that was killed, ends the groups
//     and whatever left them (guard.go);
//   - the launcher itself does the same at the end of a job (Kill).
//
// A rank's exit is observed without reaping it. The zombie keeps its number, so
// that a group can be signalled safely until Close.
package procs

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Stdin says what a rank's standard input is.
type Stdin uint8

const (
	StdinNull    Stdin = iota // /dev/null
	StdinInherit              // the launcher's own
	StdinPipe                 // a pipe, Proc.Stdin
)

// PMIFD is the descriptor that a rank finds its connection to the launcher at.
const PMIFD = 3

// Spec describes one rank's process.
type Spec struct {
	Rank  int
	Host  int      // which of the job's hosts it runs on
	Path  string   // what to execute
	Args  []string // argv, with the name at its head
	Env   []string
	Dir   string // "": the launcher's
	Stdin Stdin
	CPUs  []int // the processors it is bound to; nil: not bound
}

// Proc is one rank's process. Its streams belong to whoever asked for the start,
// who closes them. Goroutines may share it.
type Proc struct {
	Rank   int
	PID    int // on its host
	PMI    net.Conn
	Stdin  io.WriteCloser // nil unless it is a pipe
	Stdout Output
	Stderr Output

	// Elsewhere answers for a process of another machine; nil: it is one of this.
	Remote Control

	exited    chan struct{} // closed when the process has ended
	exitOrder int           // written before
}

// Output is the reading end of one of a process's outputs. A deadline that has passed ends it,
// with what it holds by then (Tail).
type Output interface {
	io.ReadCloser
	SetReadDeadline(time.Time) error
}

// Control is what a Proc can be asked, other than for its streams.
type Control interface {
	Wait() (exit Exit, place int, err error)
	Exiting() bool
	Signal(syscall.Signal)
}

// ErrLost is in the error about a rank whose host cannot be reached any more: what became of it is not known.
var ErrLost = errors.New("its host was lost")

// ErrSilent is beside ErrLost if nothing is heard of the host: what runs there may go on until its daemon misses the launcher.
var ErrUnresponsive = errors.New("it does not answer")

// Exit is how a process ended: a status, or a signal if that is not 0.
type Exit struct {
	Code   int
	Signal syscall.Signal
}

// OK is whether the process ended with status 0.
func (e Exit) OK() bool { return e == Exit{} }

// Status is the exit status that a shell would give.
func (e Exit) Status() int {
	if e.Signal != 0 {
		return 128 + int(e.Signal)
	}
	return e.Code
}

// Local is this machine as a place where ranks run. Goroutines may share it.
type Local struct {
	name     string
	jobID    string
	starts   chan startRequest // to the thread that forks
	exits    *exitWatcher
	watchdog *watchdog // nil without one

	mu    sync.Mutex
	procs []*Proc
}

// A start is one request to the thread that forks.
type startRequest struct {
	spec  Spec
	files childFDs
	done  chan<- startResult
}

// descriptors are what a process will have as 0, 1, 2 and PMIFD.
type childFDs [PMIFD + 1]int

type startResult struct {
	pid, pidfd int // pidfd: -1 if the system has none
	err        error
}

// NewLocal makes ready to start ranks. jobID is what the ranks will have as
// PMI_JOBID in their environment: what has it when the job is over is part of it.
// guardArgv, if not empty, is how to start this very program so that it calls
// Guard; without it nothing watches over the launcher's own death.
func NewLocal(name, jobID string, watchdogArgv []string) (*Local, error) {
	e, err := newExitWatcher()
	if err != nil {
		return nil, err
	}
	l := &Local{name: name, jobID: jobID, starts: make(chan startRequest), exits: e}
	if len(watchdogArgv) > 0 {
		g, err := startWatchdog(watchdogArgv, jobID)
		if err != nil {
			e.close()
			return nil, fmt.Errorf("guard process: %w", err)
		}
		l.watchdog = g
	}
	go l.forkLoop()
	return l, nil
}

// Name is the machine's name.
func (l *Local) Name() string { return l.name }

// Watch would call lost if this machine were lost.
func (l *Local) Watch(lost func(error)) {}

// forkLoop starts every process from one thread that lives as long as l: the kernel
// sends a process its PR_SET_PDEATHSIG when the thread that forked it dies. Package
// syscall sets the signal in the child and then looks at the child's parent, so a child
// whose parent died in between ends too. The thread is never unlocked, so that one
// whose affinity was changed serves nobody else.
func (l *Local) forkLoop() {
	runtime.LockOSThread()
	var all unix.CPUSet
	allErr := unix.SchedGetaffinity(0, &all)
	for s := range l.starts {
		pidfd := -1
		pid, err := fork(s.spec, s.files, &pidfd, &all, allErr)
		s.done <- startResult{pid, pidfd, err}
	}
}

func fork(spec Spec, files childFDs, pidfd *int, all *unix.CPUSet, allErr error) (int, error) {
	if spec.CPUs != nil {
		if allErr != nil {
			return 0, fmt.Errorf("get affinity: %w", allErr)
		}
		var bound unix.CPUSet
		for _, cpu := range spec.CPUs {
			bound.Set(cpu)
		}
		if err := unix.SchedSetaffinity(0, &bound); err != nil {
			return 0, fmt.Errorf("bind to processors %v: %w", spec.CPUs, err)
		}
		defer func() { _ = unix.SchedSetaffinity(0, all) }()
	}
	fds := make([]uintptr, len(files))
	for i, fd := range files {
		fds[i] = uintptr(fd)
	}
	return syscall.ForkExec(spec.Path, spec.Args, &syscall.ProcAttr{
		Dir:   spec.Dir,
		Env:   spec.Env,
		Files: fds,
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, PidFD: pidfd},
	})
}

// StartAll starts ranks one after another, and calls started for each, until one cannot be started or started says no. An error is a *StartError.
func (l *Local) StartAll(specs []Spec, report func(Spec, *Proc, error) (goOn bool)) {
	for _, spec := range specs {
		proc, err := l.Start(spec)
		if !report(spec, proc, err) || err != nil {
			return
		}
	}
}

// Start starts one rank. The error is a *StartError.
func (l *Local) Start(spec Spec) (*Proc, error) {
	p := &Proc{Rank: spec.Rank, exited: make(chan struct{})}
	pidfd := -1
	child, err := p.open(spec.Stdin)
	if err == nil {
		done := make(chan startResult, 1)
		l.starts <- startRequest{spec, child, done}
		s := <-done
		p.PID, pidfd, err = s.pid, s.pidfd, s.err
	}
	child.close()
	if err != nil {
		p.Close()
		return nil, &StartError{Path: spec.Path, Err: explainStart(spec.Path, err)}
	}
	l.exits.watch(p, pidfd)
	l.mu.Lock()
	l.procs = append(l.procs, p)
	l.mu.Unlock()
	if l.watchdog != nil {
		l.watchdog.send("group", fmt.Sprint(p.PID))
	}
	return p, nil
}

// StartError says that a program could not be executed.
type StartError struct {
	Path string
	Err  error
}

// Error is one line.
func (e *StartError) Error() string { return fmt.Sprintf("start %s: %v", e.Path, e.Err) }

// Unwrap gives the system's error.
func (e *StartError) Unwrap() error { return e.Err }

// Status is the exit status that a shell would give: 127 if the program (or its
// interpreter) is not there, 126 if it cannot be executed.
func (e *StartError) Status() int {
	switch {
	case errors.Is(e.Err, syscall.ENOENT), errors.Is(e.Err, syscall.ENOTDIR):
		return 127
	case errors.Is(e.Err, syscall.EACCES), errors.Is(e.Err, syscall.ENOEXEC), errors.Is(e.Err, syscall.EISDIR):
		return 126
	}
	return 1
}

// open makes the launcher's ends of a process's descriptors, in p, and the
// process's own. On error what was opened is in both, for the caller to close.
func (p *Proc) open(stdin Stdin) (child childFDs, err error) {
	child = childFDs{-1, -1, -1, -1}
	switch stdin {
	case StdinNull:
		child[0], err = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		err = os.NewSyscallError("open "+os.DevNull, err)
	case StdinInherit:
		child[0] = 0
	case StdinPipe:
		var ours *os.File
		if child[0], ours, err = pipe(childReads); err == nil {
			p.Stdin = ours
		}
	}
	for i, output := range []*Output{&p.Stdout, &p.Stderr} {
		if err == nil {
			var ours *os.File
			if child[1+i], ours, err = pipe(childWrites); err == nil {
				*output = ours
			}
		}
	}
	if err == nil {
		child[PMIFD], p.PMI, err = socketpair()
	}
	return child, err
}

// close closes what belongs to the process once it has it, save the launcher's
// own standard input.
func (d childFDs) close() {
	for _, fd := range d {
		if fd > 0 {
			_ = unix.Close(fd)
		}
	}
}

const (
	childReads  = 0 // the process reads
	childWrites = 1 // the process writes
)

// pipe returns the process's end, which blocks as programs expect, and ours,
// which does not, so that it takes deadlines.
func pipe(theirs int) (int, *os.File, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return -1, nil, os.NewSyscallError("pipe2", err)
	}
	ours := fds[1-theirs]
	if err := unix.SetNonblock(ours, true); err != nil {
		_, _ = unix.Close(fds[0]), unix.Close(fds[1])
		return -1, nil, os.NewSyscallError("fcntl", err)
	}
	return fds[theirs], os.NewFile(uintptr(ours), "pipe"), nil
}

func socketpair() (int, net.Conn, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, nil, os.NewSyscallError("socketpair", err)
	}
	ours := os.NewFile(uintptr(pair[0]), "pmi")
	defer ours.Close() // FileConn makes a descriptor of its own
	conn, err := net.FileConn(ours)
	return pair[1], conn, err
}

// Close closes the streams that are still open.
func (p *Proc) Close() {
	if p.Stdin != nil {
		_ = p.Stdin.Close()
	}
	for _, output := range []Output{p.Stdout, p.Stderr} {
		if output != nil {
			_ = output.Close()
		}
	}
	if p.PMI != nil {
		_ = p.PMI.Close()
	}
}

// childInfo is the part of siginfo_t that waitid(2) fills in. The union of the
// original begins where a pointer may stand.
type childInfo struct {
	signo, errno, code int32
	child              struct {
		_      [0]uintptr
		pid    int32
		uid    uint32
		status int32
	}
	_ [128]byte // at least what the kernel may write
}

// Values of childInfo.code.
const (
	cldExited = 1
)

// Wait blocks until the process has ended, and returns how, and its place among the
// Local's processes that have ended, from 1. It leaves the zombie, so several may wait.
// It is not to be called once the Local is closed.
func (p *Proc) Wait() (exit Exit, place int, err error) {
	if p.Remote != nil {
		return p.Remote.Wait()
	}
	<-p.exited
	exit, err = p.status()
	return exit, p.exitOrder, err
}

// status blocks until the process has ended. It leaves the zombie.
func (p *Proc) status() (Exit, error) {
	var info childInfo
	for {
		_, _, errno := unix.Syscall6(unix.SYS_WAITID, unix.P_PID, uintptr(p.PID),
			uintptr(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOWAIT, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return Exit{}, os.NewSyscallError("waitid", errno)
		}
		if info.code == cldExited {
			return Exit{Code: int(info.child.status)}, nil
		}
		return Exit{Signal: syscall.Signal(info.child.status)}, nil
	}
}

// Ending is whether the process has ended or is about to, whatever it still does: the
// kernel has begun to take it down. It is so before any other process can notice.
func (p *Proc) Exiting() bool {
	if p.Remote != nil {
		return p.Remote.Exiting()
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
	return err == nil && isExiting(string(stat))
}

// Of proc_pid_stat(5), the flags word and the bit of it that include/linux/sched.h
// calls PF_EXITING.
const (
	statFlags   = 6 // field 9, of those that follow the name
	flagExiting = 0x4
)

func isExiting(stat string) bool {
	name := strings.LastIndexByte(stat, ')') // it may hold spaces and parentheses
	fields := strings.Fields(stat[name+1:])
	if len(fields) <= statFlags {
		return false
	}
	flags, err := strconv.ParseUint(fields[statFlags], 10, 64)
	return err == nil && flags&flagExiting != 0
}

// Signal sends sig to the rank's process alone.
func (p *Proc) Signal(sig syscall.Signal) {
	if p.Remote != nil {
		p.Remote.Signal(sig)
		return
	}
	_ = unix.Kill(p.PID, sig)
}

// SignalGroups sends sig to every rank and what it has started, as far as that
// is in its process group.
func (l *Local) SignalGroups(sig syscall.Signal) {
	for _, p := range l.processes() {
		_ = unix.Kill(-p.PID, sig)
	}
}

// KillGroups ends what is left of the ranks' process groups, at once.
func (l *Local) KillGroups() { l.SignalGroups(unix.SIGKILL) }

// Kill ends, at once, everything that belongs to the job, whatever group or
// session it has moved to.
func (l *Local) Kill() {
	l.KillGroups()
	sweep(l.jobID)
}

func (l *Local) processes() []*Proc {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.procs
}

// RemoveAfter has the guard remove path, should the launcher be killed.
func (l *Local) RemoveIfKilled(path string) {
	if l.watchdog != nil {
		l.watchdog.send("remove", path)
	}
}

// Close reaps the ranks, all of which have ended, and dismisses the guard.
// Nothing may be called after it.
func (l *Local) Close() {
	close(l.starts)
	for _, p := range l.processes() {
		reap(p.PID, unix.WNOHANG)
	}
	l.exits.close()
	if l.watchdog != nil {
		l.watchdog.stop()
	}
}

func reap(pid, flags int) {
	for {
		if _, err := unix.Wait4(pid, nil, flags, nil); err != unix.EINTR {
			return
		}
	}
}
