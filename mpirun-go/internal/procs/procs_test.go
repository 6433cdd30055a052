package procs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/internal/leaks"
	"github.com/mpigo/mpigo/internal/procstate"
)

const watchdogName = "procs-test-watchdog"

func TestMain(m *testing.M) {
	if os.Args[0] == watchdogName {
		RunWatchdog()
		return
	}
	leaks.Main(m)
}

// newLocal returns a Local with a job ID that no other test has.
func newLocal(t *testing.T) *Local {
	t.Helper()
	jobID := fmt.Sprintf("test-%d-%s", os.Getpid(), t.Name())
	l, err := NewLocal("here", jobID, []string{watchdogName})
	require.NoError(t, err)
	t.Cleanup(func() {
		l.Kill()
		for _, p := range l.processes() {
			_, _, err := p.Wait()
			assert.NoError(t, err)
			p.Close()
		}
		l.Close()
	})
	return l
}

func shell(l *Local, script string) Spec {
	return Spec{Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: append(os.Environ(), "PMI_JOBID="+l.jobID)}
}

func startShell(t *testing.T, l *Local, script string) *Proc {
	t.Helper()
	p, err := l.Start(shell(l, script))
	require.NoError(t, err)
	return p
}

func wait(t *testing.T, p *Proc) Exit {
	t.Helper()
	exit, _, err := p.Wait()
	require.NoError(t, err)
	return exit
}

// eventually waits until another process has made condition true.
func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, time.Millisecond)
}

func isGone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// firstNumber reads a process ID that a rank prints on its first line.
func firstNumber(t *testing.T, r io.Reader) (pid int) {
	t.Helper()
	_, err := fmt.Fscanln(r, &pid)
	require.NoError(t, err)
	return pid
}

func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(text)
}

func TestWaitReturnsExitTwice(t *testing.T) {
	l := newLocal(t)
	for script, want := range map[string]Exit{
		"exit 0":        {},
		"exit 7":        {Code: 7},
		"exit 255":      {Code: 255},
		"kill -KILL $$": {Signal: syscall.SIGKILL},
		"kill -TERM $$": {Signal: syscall.SIGTERM},
	} {
		p := startShell(t, l, script)
		assert.Equal(t, want, wait(t, p), script)
		assert.Equal(t, want, wait(t, p), "%s, second Wait", script)
		assert.Equal(t, want == Exit{}, want.OK())
	}
	assert.Equal(t, 7, Exit{Code: 7}.Status())
	assert.Equal(t, 137, Exit{Signal: syscall.SIGKILL}.Status())
}

func TestStartConnectsStreams(t *testing.T) {
	l := newLocal(t)
	spec := shell(l, "read line; echo out $line; echo err >&2; echo hello >&3; read answer <&3; test $answer = yes; cat <&4 >&4")
	spec.Stdin = StdinPipe
	p, err := l.Start(spec)
	require.NoError(t, err)
	_, err = io.WriteString(p.Stdin, "in\n")
	require.NoError(t, err)
	assert.Equal(t, "hello\n", readAll(t, io.LimitReader(p.PMI, 6)))
	_, err = p.PMI.Write([]byte("yes\n"))
	require.NoError(t, err)
	assert.Equal(t, "question\n", echoed(t, p.Introspect, "question\n"))
	require.NoError(t, p.Introspect.Close())
	assert.Equal(t, "out in\n", readAll(t, p.Stdout))
	assert.Equal(t, "err\n", readAll(t, p.Stderr))
	assert.True(t, wait(t, p).OK())
}

func TestStartErrorStatus(t *testing.T) {
	l := newLocal(t)
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	for path, want := range map[string]int{
		filepath.Join(dir, "missing"):               127,
		write("interpreter", "#!/nowhere\n", 0o755): 127,
		write("file", "text", 0o644):                126,
		write("format", "text", 0o755):              126,
		dir:                                         126,
	} {
		before := countFDs(t)
		_, err := l.Start(Spec{Path: path, Args: []string{path}})
		var failed *StartError
		require.ErrorAs(t, err, &failed, path)
		assert.Equal(t, want, failed.Status(), "%s: %v", path, err)
		assert.Equal(t, before, countFDs(t), "open descriptors after a failed start")
	}
	_, err := l.Start(Spec{Path: "/bin/sh", Args: []string{"sh"}, CPUs: []int{1000}})
	assert.ErrorContains(t, err, "bind to processors [1000]")
	assert.Equal(t, 1, (&StartError{Err: errors.New("other")}).Status())
}

func TestStartAllStopsAtErrorOrRequest(t *testing.T) {
	l := newLocal(t)
	start := func(enough int, scripts ...string) (ranks []int, last error) {
		var specs []Spec
		for rank, script := range scripts {
			spec := shell(l, script)
			spec.Rank = rank
			if script == "" {
				spec.Path = filepath.Join(t.TempDir(), "missing")
			}
			specs = append(specs, spec)
		}
		l.StartAll(specs, func(spec Spec, p *Proc, err error) bool {
			ranks, last = append(ranks, spec.Rank), err
			if err == nil {
				assert.Equal(t, spec.Rank, p.Rank)
				assert.True(t, wait(t, p).OK())
			}
			return len(ranks) < enough
		})
		return ranks, last
	}
	ranks, err := start(9, "exit 0", "exit 0", "exit 0")
	require.NoError(t, err)
	assert.Equal(t, []int{0, 1, 2}, ranks)
	ranks, err = start(2, "exit 0", "exit 0", "exit 0")
	require.NoError(t, err)
	assert.Equal(t, []int{0, 1}, ranks)
	ranks, err = start(9, "exit 0", "", "exit 0")
	var failed *StartError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, []int{0, 1}, ranks)
}

func countFDs(t *testing.T) int {
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(fds)
}

func TestBoundRankLeavesLauncherUnbound(t *testing.T) {
	l := newLocal(t)
	var set unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &set))
	first := 0
	for !set.IsSet(first) {
		first++
	}
	spec := shell(l, "grep Cpus_allowed_list: /proc/self/status")
	spec.CPUs = []int{first}
	p, err := l.Start(spec)
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintf("Cpus_allowed_list:\t%d\n", first), readAll(t, p.Stdout))
	assert.Equal(t, fmt.Sprintln(set.Count()), readAll(t, startShell(t, l, "nproc").Stdout), "the next rank is not bound")
	assert.Equal(t, set.Count(), runtime.NumCPU())
}

func TestTimerSlackIsOneRanks(t *testing.T) {
	l := newLocal(t)
	const show = "cat /proc/self/timerslack_ns"
	usual := readAll(t, startShell(t, l, show).Stdout)
	spec := shell(l, show)
	spec.TimerSlack = 123 * time.Microsecond
	p, err := l.Start(spec)
	require.NoError(t, err)
	assert.Equal(t, "123000\n", readAll(t, p.Stdout))
	assert.Equal(t, usual, readAll(t, startShell(t, l, show).Stdout), "the next rank has the launcher's")
}

// A sandbox may refuse prctl's PR_SET_TIMERSLACK, as this filter of system calls does. The filter
// is one thread's, which runs nothing else afterwards.
func TestRefusedTimerSlackDoesNotStopRank(t *testing.T) {
	const nr, firstArg = 0, 16 // offsets in struct seccomp_data, of 32 bits each
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: nr},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_PRCTL, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: firstArg},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.PR_SET_TIMERSLACK, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	type result struct {
		filtered, refused, started error
		status                     syscall.WaitStatus
	}
	got := make(chan result)
	go func() {
		runtime.LockOSThread() // and no other goroutine ever gets the thread
		var r result
		defer func() { got <- r }()
		r.filtered = errors.Join(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
			unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0))
		r.refused = setTimerSlack(time.Millisecond)
		spec := Spec{Path: "/bin/sh", Args: []string{"sh", "-c", "exit 3"}, TimerSlack: time.Millisecond}
		pidfd, pid := -1, 0
		if pid, r.started = fork(spec, childFDs{}, &pidfd, nil, nil); r.started == nil {
			_, r.started = syscall.Wait4(pid, &r.status, 0, nil)
			_ = unix.Close(pidfd)
		}
	}()
	r := <-got
	runtime.KeepAlive(&prog)
	require.NoError(t, r.filtered)
	require.ErrorIs(t, r.refused, unix.EPERM)
	require.NoError(t, r.started)
	assert.Equal(t, 3, r.status.ExitStatus())
}

// echoed returns what comes back on conn after text was written.
func echoed(t *testing.T, conn io.ReadWriter, text string) string {
	t.Helper()
	_, err := io.WriteString(conn, text)
	require.NoError(t, err)
	return readAll(t, io.LimitReader(conn, int64(len(text))))
}

func TestRankLeadsGroupAndInheritsOnlyConnections(t *testing.T) {
	l := newLocal(t)
	const count = "ls /proc/self/fd | wc -l"
	// The tests may have inherited descriptors with these numbers.
	usual, err := exec.Command("/bin/sh", "-c", fmt.Sprintf("exec %d>&- %d>&-; %s", PMIFD, IntrospectFD, count)).Output()
	require.NoError(t, err)
	p := startShell(t, l, count+"; read x")
	group, err := unix.Getpgid(p.PID)
	require.NoError(t, err)
	assert.Equal(t, p.PID, group)
	assert.Equal(t, firstNumber(t, bytes.NewReader(usual))+2, firstNumber(t, p.Stdout), "the rank inherits only its two connections")
}

func TestSignalReachesRankAndKillGroupsItsChildren(t *testing.T) {
	l := newLocal(t)
	script := "trap 'echo got' USR1; sleep 1000 & echo $!; while :; do wait; done"
	p := startShell(t, l, script)
	child := firstNumber(t, p.Stdout)
	p.Signal(syscall.SIGUSR1)
	var word string
	_, err := fmt.Fscanln(p.Stdout, &word)
	require.NoError(t, err)
	assert.Equal(t, "got", word)
	assert.False(t, isGone(child), "Signal must not reach the rank's children")

	l.KillGroups()
	assert.Equal(t, Exit{Signal: syscall.SIGKILL}, wait(t, p))
	eventually(t, func() bool { return isGone(child) })
}

func TestKillEndsProcessOutsideGroup(t *testing.T) {
	l := newLocal(t)
	p := startShell(t, l, "setsid sh -c 'echo $$; exec sleep 1000'; read x")
	child := firstNumber(t, p.Stdout)
	l.KillGroups()
	wait(t, p)
	require.False(t, isGone(child))
	l.Kill()
	eventually(t, func() bool { return isGone(child) })
}

func TestExitedRankKeepsPIDUntilClose(t *testing.T) {
	l, err := NewLocal("here", "zombie", nil)
	require.NoError(t, err)
	p, err := l.Start(shell(l, "exit 3"))
	require.NoError(t, err)
	wait(t, p)
	p.Close()
	assert.NoError(t, unix.Kill(p.PID, 0), "the process must still be a zombie")
	l.Close()
	assert.ErrorIs(t, unix.Kill(p.PID, 0), unix.ESRCH)
}

func TestDrainOfOpenPipeEnds(t *testing.T) {
	fd, readEnd, err := pipe(childWrites)
	require.NoError(t, err)
	writeEnd := os.NewFile(uintptr(fd), "write end")
	defer writeEnd.Close() // open until the test ends, so the pipe has no end of file
	_, err = writeEnd.WriteString("left over")
	require.NoError(t, err)
	require.NoError(t, readEnd.SetReadDeadline(time.Unix(1, 0)))
	_, err = readEnd.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	assert.Equal(t, "left over", readAll(t, Drain(readEnd)))
	require.NoError(t, readEnd.Close())
	assert.Empty(t, readAll(t, Drain(readEnd)))
}

func TestWaitReturnsOrderOfExits(t *testing.T) {
	l := newLocal(t)
	const n = 20
	var all [n]*Proc
	for i := range all {
		all[i] = startShell(t, l, "exec sleep 1000")
	}
	for i := range all { // each process exits before the next one is killed, and before any Wait
		p := all[n-1-i]
		p.Signal(syscall.SIGKILL)
		eventually(t, func() bool { return isGone(p.PID) })
	}
	for i, p := range all {
		exit, order, err := p.Wait()
		require.NoError(t, err)
		assert.Equal(t, Exit{Signal: syscall.SIGKILL}, exit)
		assert.Equal(t, n-i, order)
	}
}

func TestWatchWithoutPidfdReportsExit(t *testing.T) {
	l := newLocal(t)
	p := startShell(t, l, "exit 3")
	again := &Proc{PID: p.PID, exited: make(chan struct{})}
	l.exits.watch(again, -1)
	exit, order, err := again.Wait()
	require.NoError(t, err)
	assert.Equal(t, Exit{Code: 3}, exit)
	assert.Contains(t, []int{1, 2}, order)
}

func TestExitingAfterKill(t *testing.T) {
	l := newLocal(t)
	p := startShell(t, l, "exec sleep 1000")
	assert.False(t, p.Exiting())
	p.Signal(syscall.SIGKILL)
	wait(t, p)
	assert.True(t, p.Exiting())
	assert.False(t, (&Proc{PID: 1 << 30}).Exiting(), "no such process")

	assert.True(t, isExiting("7 (a) b) S 1 7 7 0 -1 4228 0"))
	assert.False(t, isExiting("7 (4 4 4 4 4 4 4) S 1 7 7 0 -1 4224 0"))
	for _, stat := range []string{"", "7", "7 (a) S 1 7 7 0 -1", "7 (a) S 1 7 7 0 -1 x"} {
		assert.False(t, isExiting(stat), stat)
	}
}

func TestStateOfProcess(t *testing.T) {
	l := newLocal(t)
	p := startShell(t, l, "exec sleep 1000")
	p.Signal(syscall.SIGSTOP)
	eventually(t, func() bool { return p.State(t.Context()) == procstate.Stopped })
	assert.Equal(t, "stopped by a signal", p.State(t.Context()).String())
	p.Signal(syscall.SIGCONT)
	eventually(t, func() bool { return p.State(t.Context()).String() == "sleeping" })
	p.Signal(syscall.SIGKILL)
	wait(t, p)
	assert.Equal(t, procstate.Zombie, p.State(t.Context()))
	assert.Equal(t, procstate.Unknown, (&Proc{PID: 1 << 30}).State(t.Context()), "no such process")
}

func TestProcessesOfJobMatchesEnvironment(t *testing.T) {
	proc := t.TempDir()
	for name, environ := range map[string]string{
		"10": "PMI_JOBID=j\x00A=1\x00", "11": "A=1\x00PMI_JOBID=j\x00", "12": "A=PMI_JOBID=j\x00", "13": "PMI_JOBID=jj\x00",
		"14": "", "15": "PMI_JOBID=j", "self": "PMI_JOBID=j\x00", "sys": "",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(proc, name), 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(proc, name, "environ"), []byte(environ), 0o666))
	}
	// Process 16 has no readable environ, like a process of another user.
	require.NoError(t, os.MkdirAll(filepath.Join(proc, "16"), 0o777))
	pids, unclear := processesOfJob(proc, "j")
	assert.ElementsMatch(t, []int{10, 11}, pids)
	assert.Zero(t, unclear)
	pids, _ = processesOfJob(filepath.Join(proc, "nowhere"), "j")
	assert.Empty(t, pids)
	// A process that executes a program has neither environment nor arguments for a moment. One
	// that has arguments was started without an environment.
	for name, arguments := range map[string]string{"20": "", "21": "sleep\x009\x00"} {
		require.NoError(t, os.Mkdir(filepath.Join(proc, name), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(proc, name, "environ"), nil, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(proc, name, "cmdline"), []byte(arguments), 0o600))
		require.NoError(t, os.Symlink("/bin/sleep", filepath.Join(proc, name, "exe")))
	}
	_, unclear = processesOfJob(proc, "j")
	assert.Equal(t, 1, unclear)
}

// If the program exists, the error names the missing interpreter.
func TestStartErrorNamesMissingInterpreter(t *testing.T) {
	l := newLocal(t)
	dir := t.TempDir()
	start := func(name, text string) error {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
		_, err := l.Start(Spec{Path: path, Args: []string{path}})
		require.ErrorIs(t, err, syscall.ENOENT)
		return err
	}
	assert.EqualError(t, start("script", "#! /nowhere/sh -e\n"), "start "+dir+`/script: the file exists, but its interpreter "/nowhere/sh" does not`)
	assert.ErrorContains(t, start("dos", "#!/bin/sh\r\necho\r\n"), `its interpreter "/bin/sh\r" does not`)
	sh, err := os.ReadFile("/bin/sh")
	require.NoError(t, err)
	if name := interpreterOf("/bin/sh"); name != "" { // a static sh has no interpreter
		other := strings.Repeat("/", len(name)-1) + "x"
		assert.ErrorContains(t, start("binary", strings.Replace(string(sh), name, other, 1)), `its interpreter "`+other+`" does not`)
	}
	assert.Empty(t, interpreterOf(filepath.Join(dir, "missing")))
	assert.Empty(t, interpreterOf(dir))
}
