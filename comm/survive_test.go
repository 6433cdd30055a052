package comm_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/internal/wireup"
)

// unmanaged runs a program, with more variables of the environment, as a job that its launcher does
// not end when a rank dies.
func unmanaged(t *testing.T, ranks int, program string, env ...string) []outcome {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	server, err := wireup.NewServer(wireup.ServerConfig{Size: ranks, JobID: fmt.Sprintf("survive-%d-%p", os.Getpid(), t)})
	require.NoError(t, err)
	var running sync.WaitGroup
	got := make([]outcome, ranks)
	for rank := range ranks {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
		conn, err := net.FileConn(ours)
		require.NoError(t, err)
		require.NoError(t, ours.Close())
		cmd := exec.Command(self)
		cmd.ExtraFiles = []*os.File{theirs}
		cmd.Env = append(os.Environ(), programVariable+"="+program, wireup.EnvFD+"=3",
			fmt.Sprintf("%s=%d", wireup.EnvRank, rank), fmt.Sprintf("%s=%d", wireup.EnvSize, ranks))
		cmd.Env = append(cmd.Env, env...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		require.NoError(t, cmd.Start())
		require.NoError(t, theirs.Close())
		running.Go(func() { _ = server.Serve(rank, conn) }) // it fails for a dead rank
		running.Go(func() {
			_ = cmd.Wait() // its status is checked
			got[rank] = outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
		})
	}
	running.Wait()
	return got
}

// TestSurvivorsOfDeadRankGoOn: the other ranks get errors from every call that needs the dead rank,
// and continue with each other.
func TestSurvivorsOfDeadRankGoOn(t *testing.T) {
	got := unmanaged(t, 3, "survivor")
	assert.Equal(t, outcome{5, "", ""}, got[1])
	for _, rank := range []int{0, 2} {
		stderr := fmt.Sprintf("mpigo: rank %d: rank 1 has died\n", rank)
		assert.Equal(t, outcome{1, "survived\n", stderr}, got[rank])
	}
}

// survivorProgram kills rank 1 after a barrier. The others print a line if all calls end as they
// should, and exit with status 1 because Finalize cannot succeed.
func survivorProgram(w *comm.Comm) error {
	const dead = 1
	check(w.Barrier())
	if w.Rank() == dead {
		os.Exit(5)
	}
	for _, c := range append(comm.WaitingCalls(),
		comm.WaitingCall{Name: "recv any", Call: func(w *comm.Comm, _ int) error {
			_, err := comm.Recv(w, []int{0}, comm.AnySource, 0)
			return err
		}},
		comm.WaitingCall{Name: "short send", Call: func(w *comm.Comm, _ int) error {
			return comm.Send(w, []int{0}, dead, 0)
		}},
		comm.WaitingCall{Name: "barrier", Call: func(w *comm.Comm, _ int) error { return w.Barrier() }},
	) {
		if err := c.Call(w, dead); !errors.Is(err, comm.ErrProcFailed) {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	other := 2 - w.Rank()
	in := []int{0}
	must(comm.Sendrecv(w, []int{w.Rank()}, other, 1, in, other, 1))
	expect(other, in[0])
	fmt.Println("survived")
	err := w.Finalize()
	if !errors.Is(err, comm.ErrProcFailed) || comm.WithoutLines(err.Error()) != "world: finalize: peer process failed: rank 1 is gone" {
		return fmt.Errorf("finalize: %w", err)
	}
	return fmt.Errorf("rank %d has died", dead)
}
