// Package procs starts the processes of a job on this machine, observes their exits, and ensures
// that no process of the job is left behind.
//
// Each rank leads a process group of its own. Three mechanisms end a rank and the processes that it
// has started:
//
//   - The kernel kills a rank when the launcher dies (PR_SET_PDEATHSIG). Before the launcher can be
//     waited for, its ranks have SIGKILL pending and execute no more instructions. This holds for
//     stopped ranks too, and does not depend on the watchdog.
//   - A watchdog process outlives a killed launcher. It kills the ranks' process groups and the
//     processes that have left them (watchdog.go).
//   - The launcher does the same at the end of a job (Kill).
//
// Package procs observes the exit of a rank without reaping it. The zombie keeps its process ID, so
// signals to its process group are safe until Close.
package procs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/internal/procstate"
	"github.com/mpigo/mpigo/mpirun-go/internal/binding"
)

// Stdin selects a rank's standard input.
type Stdin uint8

const (
	StdinNull    Stdin = iota // /dev/null
	StdinInherit              // the launcher's own
	StdinPipe                 // a pipe, Proc.Stdin
)

// Descriptors of a rank's connections to the launcher.
const (
	PMIFD        = 3
	IntrospectFD = 4 // questions about what the rank does: package introspect
)

// Spec describes the process of one rank.
type Spec struct {
	Rank  int
	Host  int      // index of its host among the job's hosts
	Path  string   // the file to execute
	Args  []string // argv, beginning with the program's name
	Env   []string
	Dir   string // working directory; "": the launcher's
	Stdin Stdin
	CPUs  []int // the processors that it is bound to; nil: see Shares
	// Shares is the number of ranks among which the host's free cores are divided, if the rank is
	// bound to a share of them, and Share is the number of that share. If Shares is 0, the rank is
	// bound to CPUs, or not at all.
	Share, Shares int
	// TimerSlack is the time by which the kernel may delay the end of a thread's sleep. If it is 0
	// or cannot be set, the launcher's timer slack applies.
	TimerSlack time.Duration
}

// Proc is the process of one rank. Its streams belong to the caller of Start, who closes them. Proc
// is safe for concurrent use.
type Proc struct {
	Rank int
	PID  int // process ID on its host
	PMI  net.Conn
	// Introspect is the launcher's end of the connection at IntrospectFD. A program that does not
	// use the library never reads the other end.
	Introspect net.Conn
	Stdin      io.WriteCloser // nil unless the rank's standard input is a pipe
	Stdout     Output
	Stderr     Output

	CPUs    []int  // the processors that the process is bound to; nil: not bound
	Unbound string // why it is not bound, if Spec.Shares is above 0

	// Remote controls a process on another host; nil means a process of this machine.
	Remote Control

	exited chan struct{} // closed when the process has exited
	// Position in the order of exits, from 1; written before exited is closed.
	exitOrder int
}

// Output is the reading end of one of a process's outputs. A read deadline in the past ends it,
// after the data that it holds by then (Drain).
type Output interface {
	io.ReadCloser
	SetReadDeadline(time.Time) error
}

// Control has the methods of Proc that do not concern streams.
type Control interface {
	Wait() (exit Exit, order int, err error)
	Exiting() bool
	State(ctx context.Context) procstate.State
	Signal(syscall.Signal)
}

// ErrLost means that a rank's host is unreachable, so the rank's state is unknown.
var ErrLost = errors.New("its host was lost")

// ErrUnresponsive means that a host is lost because it does not answer. Its ranks may run on until
// their daemon detects that the launcher is gone.
var ErrUnresponsive = errors.New("it does not answer")

// Exit is a process's exit status, or the signal that killed it if Signal is not 0.
type Exit struct {
	Code   int
	Signal syscall.Signal
}

// OK reports whether the process exited with status 0.
func (e Exit) OK() bool { return e == Exit{} }

// Status returns the exit status that a shell would report.
func (e Exit) Status() int {
	if e.Signal != 0 {
		return 128 + int(e.Signal)
	}
	return e.Code
}

// Local starts ranks on this machine. It is safe for concurrent use.
type Local struct {
	name     string
	jobID    string
	starts   chan startRequest // to forkLoop
	exits    *exitWatcher
	watchdog *watchdog // nil: none
	binder   *binding.Binder

	mu    sync.Mutex
	procs []*Proc
}

// A startRequest asks forkLoop to start one process.
type startRequest struct {
	spec  Spec
	files childFDs
	done  chan<- startResult
}

// childFDs are the descriptors that become 0, 1, 2, PMIFD and IntrospectFD in a process.
type childFDs [IntrospectFD + 1]int

type startResult struct {
	pid, pidfd int // pidfd is -1 if the system has no pidfds
	err        error
}

// NewLocal returns a Local that is ready to start ranks. The ranks have PMI_JOBID=jobID in their
// environment; at the end of the job, Kill finds its processes by this variable. watchdogArgv,
// unless it is empty, are arguments that make this program call RunWatchdog. Without them, nothing
// cleans up after a killed launcher, except that the kernel kills the ranks.
func NewLocal(name, jobID string, watchdogArgv []string) (*Local, error) {
	e, err := newExitWatcher()
	if err != nil {
		return nil, err
	}
	l := &Local{name: name, jobID: jobID, starts: make(chan startRequest), exits: e, binder: binding.New()}
	if len(watchdogArgv) > 0 {
		w, err := startWatchdog(watchdogArgv, jobID)
		if err != nil {
			e.close()
			return nil, fmt.Errorf("start the watchdog: %w", err)
		}
		l.watchdog = w
	}
	go l.forkLoop()
	return l, nil
}

// Name returns the machine's name.
func (l *Local) Name() string { return l.name }

// Watch does nothing, since this machine cannot be lost.
func (l *Local) Watch(lost func(error)) {}

// forkLoop starts all processes from one thread, which lives as long as l: the kernel sends
// PR_SET_PDEATHSIG's signal when the thread that forked dies. Package syscall sets the signal in
// the child and then checks the child's parent, so a child whose parent died in between exits too.
// The goroutine never unlocks the thread, so no other goroutine runs on a thread with changed
// affinity.
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
	if spec.TimerSlack > 0 {
		// If the kernel or a sandbox refuses it, the rank runs with the launcher's timer slack.
		_ = setTimerSlack(spec.TimerSlack)
		defer func() { _ = setTimerSlack(0) }()
	}
	fds := make([]uintptr, len(files))
	for i, fd := range files {
		fds[i] = uintptr(fd)
	}
	return syscall.ForkExec(spec.Path, spec.Args, &syscall.ProcAttr{
		Dir: spec.Dir, Env: spec.Env, Files: fds,
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, PidFD: pidfd},
	})
}

// setTimerSlack sets the timer slack of the calling thread, which its child processes inherit; 0
// means the thread's original value. See prctl(2).
func setTimerSlack(slack time.Duration) error {
	return unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0)
}

// StartAll starts ranks one after another, and calls report for each. It stops when a rank cannot
// be started or report returns false. Errors are of type *StartError.
func (l *Local) StartAll(specs []Spec, report func(Spec, *Proc, error) (goOn bool)) {
	for _, spec := range specs {
		proc, err := l.Start(spec)
		if !report(spec, proc, err) || err != nil {
			return
		}
	}
}

// Start starts one rank. The error is of type *StartError.
func (l *Local) Start(spec Spec) (*Proc, error) {
	p := &Proc{Rank: spec.Rank, exited: make(chan struct{})}
	if spec.Shares > 0 {
		spec.CPUs, p.Unbound = l.binder.Share(spec.Share, spec.Shares)
	}
	p.CPUs = spec.CPUs
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
		return nil, &StartError{Path: spec.Path, Err: ExplainDescriptors(explainStart(spec.Path, err), ranksOfHost(spec.Env))}
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

// StartError means that a program cannot be executed.
type StartError struct {
	Path string
	Err  error
}

// Error returns one line.
func (e *StartError) Error() string { return fmt.Sprintf("start %s: %v", e.Path, e.Err) }

// Unwrap returns the system's error.
func (e *StartError) Unwrap() error { return e.Err }

// Status returns the exit status that a shell would report: 127 if the program or its interpreter
// does not exist, 126 if it is not executable.
func (e *StartError) Status() int {
	switch {
	case errors.Is(e.Err, syscall.ENOENT), errors.Is(e.Err, syscall.ENOTDIR):
		return 127
	case errors.Is(e.Err, syscall.EACCES), errors.Is(e.Err, syscall.ENOEXEC), errors.Is(e.Err, syscall.EISDIR):
		return 126
	}
	return 1
}

// open creates the descriptors of a process: the launcher's ends in p, and the process's ends in
// child. On error the caller closes both.
func (p *Proc) open(stdin Stdin) (child childFDs, err error) {
	child = childFDs{-1, -1, -1, -1, -1}
	switch stdin {
	case StdinNull:
		child[0], err = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		err = os.NewSyscallError("open "+os.DevNull, err)
	case StdinInherit:
		child[0] = 0
	case StdinPipe:
		var parentEnd *os.File
		if child[0], parentEnd, err = pipe(childReads); err == nil {
			p.Stdin = parentEnd
		}
	}
	for i, output := range []*Output{&p.Stdout, &p.Stderr} {
		if err == nil {
			var parentEnd *os.File
			if child[1+i], parentEnd, err = pipe(childWrites); err == nil {
				*output = parentEnd
			}
		}
	}
	if err == nil {
		child[PMIFD], p.PMI, err = socketpair("pmi")
	}
	if err == nil {
		child[IntrospectFD], p.Introspect, err = socketpair("introspection")
	}
	return child, err
}

// close closes the process's ends, except the launcher's own standard input.
func (d childFDs) close() {
	for _, fd := range d {
		if fd > 0 {
			_ = unix.Close(fd)
		}
	}
}

const (
	childReads  = 0 // the process has the reading end
	childWrites = 1 // the process has the writing end
)

// pipe returns the process's end, which is blocking, as programs expect, and the launcher's end,
// which is non-blocking, so that it supports deadlines.
func pipe(childEnd int) (int, *os.File, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return -1, nil, os.NewSyscallError("pipe2", err)
	}
	parentEnd := fds[1-childEnd]
	if err := unix.SetNonblock(parentEnd, true); err != nil {
		_, _ = unix.Close(fds[0]), unix.Close(fds[1])
		return -1, nil, os.NewSyscallError("fcntl", err)
	}
	return fds[childEnd], os.NewFile(uintptr(parentEnd), "pipe"), nil
}

func socketpair(name string) (int, net.Conn, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, nil, os.NewSyscallError("socketpair", err)
	}
	parentEnd := os.NewFile(uintptr(pair[0]), name)
	defer parentEnd.Close() // FileConn duplicates the descriptor
	conn, err := net.FileConn(parentEnd)
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
	for _, conn := range []net.Conn{p.PMI, p.Introspect} {
		if conn != nil {
			_ = conn.Close()
		}
	}
}

// childInfo is the part of siginfo_t that waitid(2) fills in. In siginfo_t the union begins at an
// address aligned for a pointer.
type childInfo struct {
	signo, errno, code int32
	child              struct {
		_      [0]uintptr
		pid    int32
		uid    uint32
		status int32
	}
	_ [128]byte // at least as many bytes as the kernel may write
}

// cldExited is the value of childInfo.code for a process that has exited (sigaction(2)).
const cldExited = 1

// Wait blocks until the process has exited. It returns how the process exited, and its position in
// the order of exits among the processes of its Local, from 1. Wait does not reap the process, so
// several goroutines may call it. It must not be called after Close of the Local.
func (p *Proc) Wait() (exit Exit, order int, err error) {
	if p.Remote != nil {
		return p.Remote.Wait()
	}
	<-p.exited
	exit, err = p.status()
	return exit, p.exitOrder, err
}

// status blocks until the process has exited. It does not reap the process.
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

// Exiting reports whether the process has exited or the kernel has begun to end it. The kernel sets
// this state before any other process can notice the exit.
func (p *Proc) Exiting() bool {
	if p.Remote != nil {
		return p.Remote.Exiting()
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
	return err == nil && isExiting(string(stat))
}

// Signal sends sig to the rank's process only.
func (p *Proc) Signal(sig syscall.Signal) {
	if p.Remote != nil {
		p.Remote.Signal(sig)
		return
	}
	_ = unix.Kill(p.PID, sig)
}

// SignalGroups sends sig to the ranks' process groups.
func (l *Local) SignalGroups(sig syscall.Signal) {
	for _, p := range l.processes() {
		_ = unix.Kill(-p.PID, sig)
	}
}

// KillGroups kills the ranks' process groups.
func (l *Local) KillGroups() { l.SignalGroups(unix.SIGKILL) }

// Kill kills all processes of the job, including those that have left the ranks' process groups or
// sessions.
func (l *Local) Kill() {
	l.KillGroups()
	sweep(l.jobID)
}

func (l *Local) processes() []*Proc {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.procs
}

// RemoveIfKilled makes the watchdog remove the file or directory that is at path now, if the
// launcher is killed.
func (l *Local) RemoveIfKilled(path string) {
	if l.watchdog != nil {
		l.watchdog.removeIfKilled(path)
	}
}

// Close reaps the ranks, all of which must have exited, and stops the watchdog. No method may be
// called after Close.
func (l *Local) Close() {
	close(l.starts)
	l.binder.Close()
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
