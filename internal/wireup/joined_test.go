package wireup

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// inherited returns an environment for a program that has its own descriptor of a rank's socket.
func inherited(t *testing.T, fd int, name string) func(string) string {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	require.NoError(t, err, name)
	return environment(EnvFD, fmt.Sprint(own), EnvRank, "1", EnvSize, "2")
}

// A shell that is a rank runs a program, and then, or at the same time, another one.
func TestSecondProgramOfRankFails(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"mpirun-go": func(conn net.Conn) {
			s, err := NewServer(ServerConfig{Size: 2, JobID: "j"})
			assert.NoError(t, err)
			_ = s.Serve(1, conn)
		},
		"Slurm": regular().serve,
	} {
		ours, fd := socketFDs(t)
		done := make(chan struct{})
		go func() { defer close(done); serve(connOf(t, ours)) }()
		first, err := FromEnv(inherited(t, fd, name))
		require.NoError(t, err, name)
		want := fmt.Sprintf("wireup: rank 1 has joined the job already, as process %d: ", os.Getpid())
		for _, when := range []string{"at the same time", "afterwards"} {
			second := inherited(t, fd, name)
			_, err = FromEnv(second)
			require.ErrorIs(t, err, ErrJoined, name, when)
			assert.ErrorContains(t, err, want, name, when)
			theirs, err := strconv.Atoi(second(EnvFD))
			require.NoError(t, err)
			require.NoError(t, unix.Close(theirs), "it is left alone")
			if when != "afterwards" {
				require.NoError(t, first.Finalize(), name)
			}
		}
		require.NoError(t, unix.Close(fd))
		<-done
	}
}

// Only the kernel sees that a program before this one was the rank, such as one of MPICH's.
func TestFromEnvAfterOtherLibraryHasLeftFails(t *testing.T) {
	ours, fd := socketFDs(t)
	require.NoError(t, unix.Close(ours))
	_, err := FromEnv(environment(EnvFD, fmt.Sprint(fd), EnvRank, "1", EnvSize, "2"))
	require.ErrorIs(t, err, ErrLost)
	assert.ErrorContains(t, err, "an earlier program has left the job as rank 1")
}

// A process manager may name its sockets.
func TestFromEnvWithNamedSocketJoins(t *testing.T) {
	ours, fd := socketFDs(t)
	require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@mpigo-test-%d", os.Getpid())}))
	conn := connOf(t, ours)
	done := make(chan struct{})
	go func() { defer close(done); regular().serve(conn) }()
	c, err := FromEnv(environment(EnvFD, fmt.Sprint(fd), EnvRank, "1", EnvSize, "2"))
	require.NoError(t, err)
	require.NoError(t, c.Finalize())
	<-done
}

func TestFromEnvHidesJobFromChildren(t *testing.T) {
	for _, c := range []struct {
		env      map[string]string
		want     error
		isJoined bool
	}{
		{map[string]string{EnvFD: "x", EnvRank: "0", EnvSize: "2", EnvSecret: "ab"}, ErrSecret, true},
		{map[string]string{EnvFD: "x", EnvRank: "0", EnvSize: "2"}, ErrEnv, true},
		{map[string]string{EnvPort: "x", EnvRank: "0", EnvSize: "2"}, ErrEnv, true},
		{map[string]string{EnvSecret: "ab"}, ErrNoLauncher, false},
	} {
		for _, name := range []string{EnvFD, EnvPort, EnvRank, EnvSize, EnvSecret, EnvJoined} {
			t.Setenv(name, c.env[name])
		}
		_, err := FromEnv(nil)
		require.ErrorIs(t, err, c.want, c.env)
		for _, name := range []string{EnvFD, EnvPort, EnvSecret} {
			_, isSet := os.LookupEnv(name)
			assert.False(t, isSet, name)
		}
		_, err = FromEnv(nil) // as in a child
		if !c.isJoined {
			assert.ErrorIs(t, err, ErrNoLauncher)
			continue
		}
		require.ErrorIs(t, err, ErrJoined, c.env)
		assert.NotErrorIs(t, err, ErrNoLauncher)
		assert.ErrorContains(t, err, fmt.Sprintf("process %d has joined the job already as this rank", os.Getpid()))
		// A launcher may have started the child.
		t.Setenv(EnvFD, "y")
		_, err = FromEnv(nil)
		assert.ErrorIs(t, err, ErrEnv)
	}
}
