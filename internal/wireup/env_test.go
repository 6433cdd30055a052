package wireup

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func environment(pairs ...string) func(string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return m[name] }
}

func TestFromEnvWithoutLauncherFails(t *testing.T) {
	_, err := FromEnv(environment(EnvRank, "0", EnvSize, "1", EnvSecret, "zz"))
	assert.ErrorIs(t, err, ErrNoLauncher)
	for _, name := range []string{EnvFD, EnvPort} { // of this process
		t.Setenv(name, "")
	}
	_, err = FromEnv(nil)
	assert.ErrorIs(t, err, ErrNoLauncher)
}

// The environments are those of Open MPI 4.1 and Slurm 22.05.
func TestFromEnvUnderLaunchersWithoutPMI1(t *testing.T) {
	const instead = "; start the program by mpirun-go, mpiexec.hydra (MPICH) or srun --mpi=pmi2"
	for _, c := range []struct {
		name string
		env  []string
		want string // "": ErrNoLauncher
	}{
		{"mpirun -n 2", []string{"OMPI_COMM_WORLD_SIZE", "2", "OMPI_COMM_WORLD_RANK", "1", "PMIX_RANK", "1"},
			"rank 1 of 2 of Open MPI's mpirun, which speaks PMIx only"},
		{"mpirun -n 1", []string{"OMPI_COMM_WORLD_SIZE", "1", "OMPI_COMM_WORLD_RANK", "0", "PMIX_RANK", "0"}, ""},
		{"prterun", []string{"PMIX_RANK", "0", "PMIX_NAMESPACE", "prterun-x@1"}, "rank 0 of a launcher that speaks PMIx only"},
		{"srun -n 2", []string{"SLURM_NTASKS", "2", "SLURM_STEP_NUM_TASKS", "2", "SLURM_PROCID", "0", "SLURM_STEP_ID", "0"},
			"task 0 of 2 of Slurm's srun, which ran without --mpi=pmi2"},
		{"srun --mpi=pmix -n 2", []string{"SLURM_NTASKS", "2", "SLURM_STEP_NUM_TASKS", "2", "SLURM_PROCID", "1", "PMIX_RANK", "1"},
			"task 1 of 2 of Slurm's srun, which ran without --mpi=pmi2"},
		{"srun -n 1", []string{"SLURM_NTASKS", "1", "SLURM_STEP_NUM_TASKS", "1", "SLURM_PROCID", "0", "SLURM_STEP_ID", "0"}, ""},
		{"srun --mpi=pmix -n 1", []string{"SLURM_STEP_NUM_TASKS", "1", "SLURM_PROCID", "0", "PMIX_RANK", "0"}, ""},
		{"salloc -n 2", []string{"SLURM_NTASKS", "2", "SLURM_JOB_ID", "4"}, ""},
		{"salloc -n 2, interactive step", []string{"SLURM_NTASKS", "2", "SLURM_STEP_NUM_TASKS", "1", "SLURM_PROCID", "0", "SLURM_STEP_ID", "4294967290"}, ""},
		{"sbatch -n 2, its script", []string{"SLURM_NTASKS", "2", "SLURM_PROCID", "0", "SLURM_TASK_PID", "1775"}, ""},
	} {
		_, err := FromEnv(environment(c.env...))
		if c.want == "" {
			assert.ErrorIs(t, err, ErrNoLauncher, c.name)
			continue
		}
		assert.ErrorIs(t, err, ErrLauncher, c.name)
		assert.NotErrorIs(t, err, ErrNoLauncher, c.name)
		assert.EqualError(t, err, "wireup: launched without PMI-1: "+c.want+instead, c.name)
	}
	// With PMI_FD, such variables do not matter: a launcher with PMI-1 runs inside such a job.
	_, err := FromEnv(environment("OMPI_COMM_WORLD_SIZE", "2", EnvFD, "x", EnvRank, "0", EnvSize, "2"))
	assert.ErrorIs(t, err, ErrEnv)
}

func TestFromEnvWithFDJoins(t *testing.T) {
	s, err := NewServer(ServerConfig{Size: 2, JobID: "j"})
	require.NoError(t, err)
	secret := strings.Repeat("a5", SecretBytes)
	var wg sync.WaitGroup
	for rank := range 2 {
		ours, fd := socketFDs(t)
		conn := connOf(t, ours)
		wg.Go(func() { assert.NoError(t, s.Serve(rank, conn)) })
		c, err := FromEnv(environment(EnvFD, fmt.Sprint(fd), EnvRank, fmt.Sprint(rank), EnvSize, "2", EnvSecret, secret))
		require.NoError(t, err)
		assert.Equal(t, rank, c.Rank())
		assert.Equal(t, 2, c.Size())
		got, err := c.Secret() // from the environment, so without a barrier
		require.NoError(t, err)
		assert.Equal(t, secret, hex.EncodeToString(got))
		// FromEnv has taken over the descriptor: its number is free again.
		_, err = unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		assert.ErrorIs(t, err, unix.EBADF)
		require.NoError(t, c.Finalize())
	}
	wg.Wait()
}

func TestFromEnvWithBadVariablesFails(t *testing.T) {
	ours, fd := socketFDs(t)
	defer unix.Close(ours)
	defer unix.Close(fd)
	good := fmt.Sprint(fd)
	file, err := os.Open("/dev/null")
	require.NoError(t, err)
	defer file.Close()
	datagram, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	require.NoError(t, err)
	defer unix.Close(datagram[0])
	defer unix.Close(datagram[1])
	listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	require.NoError(t, err)
	defer unix.Close(listener)

	for _, tc := range []struct {
		name string
		env  []string
		want error
	}{
		{"no rank", []string{EnvFD, good, EnvSize, "2"}, ErrEnv},
		{"no size", []string{EnvFD, good, EnvRank, "0"}, ErrEnv},
		{"rank not a number", []string{EnvFD, good, EnvRank, "x", EnvSize, "2"}, ErrEnv},
		{"negative rank", []string{EnvFD, good, EnvRank, "-1", EnvSize, "2"}, ErrEnv},
		{"descriptor not a number", []string{EnvFD, "x", EnvRank, "0", EnvSize, "2"}, ErrEnv},
		{"standard error", []string{EnvFD, "2", EnvRank, "0", EnvSize, "2"}, ErrEnv},
		{"closed descriptor", []string{EnvFD, "1000000", EnvRank, "0", EnvSize, "2"}, ErrEnv},
		{"a file", []string{EnvFD, fmt.Sprint(file.Fd()), EnvRank, "0", EnvSize, "2"}, ErrEnv},
		{"datagram socket", []string{EnvFD, fmt.Sprint(datagram[0]), EnvRank, "0", EnvSize, "2"}, ErrEnv},
		{"unconnected socket", []string{EnvFD, fmt.Sprint(listener), EnvRank, "0", EnvSize, "2"}, ErrEnv},
		{"secret not hex", []string{EnvFD, good, EnvRank, "0", EnvSize, "2", EnvSecret, "zz"}, ErrSecret},
		{"short secret", []string{EnvFD, good, EnvRank, "0", EnvSize, "2", EnvSecret, "a5"}, ErrSecret},
		{"port without host", []string{EnvPort, "4711", EnvID, "0"}, ErrEnv},
		{"bad ID", []string{EnvPort, "localhost:1", EnvID, "x"}, ErrEnv},
		{"port without ID or rank", []string{EnvPort, "localhost:1"}, ErrEnv},
	} {
		_, err := FromEnv(environment(tc.env...))
		assert.ErrorIs(t, err, tc.want, tc.name)
		assert.NotContains(t, fmt.Sprint(err), "zz", "an error must not quote a secret")
	}
	// No call closed a descriptor.
	_, err = unix.FcntlInt(file.Fd(), unix.F_GETFD, 0)
	assert.NoError(t, err)
	_, err = unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	assert.NoError(t, err)
}

// With PMI_ID, the process sends that number in initack, and the manager answers with its rank.
func TestFromEnvWithPortJoins(t *testing.T) {
	s, err := NewServer(ServerConfig{Size: 3, JobID: "j"})
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	var serving sync.WaitGroup
	for _, tc := range []struct {
		env     []string
		initack bool
		rank    int
	}{
		{[]string{EnvID, "5", EnvRank, "0", EnvSize, "9"}, true, 2}, // PMI_ID takes precedence
		{[]string{EnvRank, "1", EnvSize, "3"}, false, 1},
	} {
		serving.Go(func() {
			conn, err := l.Accept()
			if !assert.NoError(t, err) {
				return
			}
			if tc.initack {
				line, err := newLineReader(conn).readLine()
				assert.NoError(t, err)
				assert.Equal(t, "cmd=initack pmiid=5", line)
				_, err = conn.Write([]byte("cmd=initack\ncmd=set size=3\ncmd=set rank=2\ncmd=set debug=0\n"))
				assert.NoError(t, err)
			}
			assert.NoError(t, s.Serve(tc.rank, conn))
		})
		c, err := FromEnv(environment(append(tc.env, EnvPort, l.Addr().String())...))
		require.NoError(t, err)
		assert.Equal(t, tc.rank, c.Rank())
		assert.Equal(t, 3, c.Size())
		require.NoError(t, c.Finalize())
	}
	serving.Wait()
}

func TestFromEnvWithoutListenerFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	l.Close()
	_, err = FromEnv(environment(EnvPort, address, EnvID, "0"))
	assert.ErrorIs(t, err, ErrLost)
}

func TestFromEnvWithBadInitackAnswerFails(t *testing.T) {
	for _, answer := range []string{
		"cmd=finalize_ack\n",
		"cmd=initack\ncmd=set rank=0\n",
		"cmd=initack\ncmd=put size=1\n",
		"cmd=initack\ncmd=set size=99999999999\n",
		"cmd=initack\ncmd=set size=2\ncmd=set rank=-1\n",
		"cmd=initack\ncmd=set size=2\ncmd=set rank=2\ncmd=set debug=0\n",
		"cmd=initack\ncmd=set size=0\ncmd=set rank=0\ncmd=set debug=0\n",
		"cmd=initack\ncmd=set si",
		"cmd=initack rc=0\n\n",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		var wg sync.WaitGroup
		wg.Go(func() {
			conn, err := l.Accept()
			if assert.NoError(t, err) {
				_, _ = bufio.NewReader(conn).ReadString('\n')
				_, _ = conn.Write([]byte(answer))
				conn.Close()
			}
		})
		_, err = FromEnv(environment(EnvPort, l.Addr().String(), EnvID, "0"))
		assert.Error(t, err, "%q", answer)
		wg.Wait()
		l.Close()
	}
}
