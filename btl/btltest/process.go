package btltest

import (
	"encoding/gob"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

// roleVariable is the environment variable with the role of a child process.
const roleVariable = "MPIGO_BTL_TEST_ROLE"

// Role is what a child process runs in place of the tests. A failed assertion ends the child. A
// role may call only these methods of t, which package require uses: Errorf, FailNow, Helper and
// Cleanup.
type Role func(t testing.TB, parent *Process)

// Main is the TestMain of a package whose tests start child processes: it runs the role that the
// environment names, or else the tests.
func Main(m *testing.M, roles map[string]Role) {
	name := os.Getenv(roleVariable)
	if name == "" {
		os.Exit(m.Run())
	}
	t := &roleTB{name: name}
	roles[name](t, newProcess(t, 3))
	for i := range t.cleanups {
		t.cleanups[len(t.cleanups)-1-i]()
	}
	os.Exit(0)
}

// roleTB is the testing.TB of a child process.
type roleTB struct {
	testing.TB // nil
	name       string
	cleanups   []func()
}

func (t *roleTB) Errorf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s: %s\n", t.name, fmt.Sprintf(format, args...))
}
func (t *roleTB) FailNow()         { os.Exit(1) }
func (t *roleTB) Helper()          {}
func (t *roleTB) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

// Process is the child process of a test, or the parent of a child. They communicate over a socket.
type Process struct {
	*net.UnixConn
	t   testing.TB
	cmd *exec.Cmd // nil: the parent
	enc *gob.Encoder
	dec *gob.Decoder
}

// newProcess takes the file descriptor of a socket.
func newProcess(t testing.TB, fd int) *Process {
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	conn, err := net.FileConn(f)
	require.NoError(t, err)
	return &Process{UnixConn: conn.(*net.UnixConn), t: t, enc: gob.NewEncoder(conn), dec: gob.NewDecoder(conn)}
}

// Start runs this test program again, in a role. The child ends at the latest with the test. Its
// descriptors from 4 on are the extra files.
func Start(t testing.TB, role string, extra ...*os.File) *Process {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	theirs := os.NewFile(uintptr(fds[1]), "socket")
	defer theirs.Close()
	p := newProcess(t, fds[0])
	exe, err := os.Executable()
	require.NoError(t, err)
	p.cmd = exec.Command(exe)
	p.cmd.Env = append(os.Environ(), roleVariable+"="+role)
	p.cmd.ExtraFiles = append([]*os.File{theirs}, extra...)
	p.cmd.Stderr = os.Stderr
	require.NoError(t, p.cmd.Start())
	t.Cleanup(p.Kill)
	return p
}

// Kill kills the child if it still runs.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // before Close, at which a role may end by itself
	_ = p.Close()
	_ = p.cmd.Wait()
}

// Wait waits until the child has ended successfully.
func (p *Process) Wait() { require.NoError(p.t, p.cmd.Wait()) }

// Tell sends a value to the other process.
func (p *Process) Tell(v any) { require.NoError(p.t, p.enc.Encode(v)) }

// Ask receives a value that the other process sends with Tell.
func Ask[T any](p *Process) (v T) {
	require.NoError(p.t, p.dec.Decode(&v))
	return v
}

// AwaitEnd waits until the other process sends another value, or closes the connection.
func (p *Process) AwaitEnd() { _ = p.dec.Decode(new(bool)) }

// AsError returns the btl.Error that err is or wraps.
func AsError(t testing.TB, err error) *btl.Error {
	t.Helper()
	var be *btl.Error
	require.ErrorAs(t, err, &be)
	return be
}

// NewPipeWakeup makes a wakeup that is closed at the end of the test.
func NewPipeWakeup(t testing.TB) *progress.PipeWakeup {
	w, err := progress.NewPipeWakeup()
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// Opener makes the module of a rank.
type Opener func(rank int, ev btl.Events, wakeup *progress.PipeWakeup) (btl.Module, error)

// Pairs makes pairs of modules of this process.
func Pairs(rankA, rankB int, open Opener) Maker {
	return func(t testing.TB, evA, evB btl.Events) *Pair {
		wakeupA, wakeupB := NewPipeWakeup(t), NewPipeWakeup(t)
		a, err := open(rankA, evA, wakeupA)
		require.NoError(t, err)
		b, err := open(rankB, evB, wakeupB)
		require.NoError(t, err)
		return &Pair{A: a, B: b, RankA: rankA, RankB: rankB, WakeupA: wakeupA, WakeupB: wakeupB}
	}
}

// RemotePairs makes pairs of modules of rank 0, in this process, and rank 1, in a child whose role
// ServeRole made.
func RemotePairs(role string, open Opener) Maker {
	return func(t testing.TB, evA, evB btl.Events) *Pair {
		w := NewPipeWakeup(t)
		a, err := open(0, evA, w)
		require.NoError(t, err)
		p := Start(t, role)
		b, err := Dial(p, evB)
		require.NoError(t, err)
		return &Pair{A: a, B: b, RankA: 0, RankB: 1, WakeupA: w, Remote: true, Close: func() { _ = p.Close() }}
	}
}

// ServeRole returns the role of a child that serves the module of rank 1.
func ServeRole(open Opener) Role {
	return func(t testing.TB, parent *Process) {
		w := NewPipeWakeup(t)
		require.NoError(t, Serve(parent, func(ev btl.Events) (btl.Module, error) { return open(1, ev, w) }))
	}
}
