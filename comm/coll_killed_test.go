package comm_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/comm"
)

// killVariable is the environment variable that tells killedProgram when rank 2 kills itself.
const killVariable = "COMM_TEST_KILL"

// killedProgram has rank 2 kill itself in or before an Allreduce through shared memory. The others
// must get an error from it or from the next one, and from all after that.
func killedProgram(w *comm.Comm) error {
	const dead = 2
	way, when, _ := strings.Cut(os.Getenv(killVariable), " ")
	d := comm.SharingMemory(w, way)
	kill := func() {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	}
	isDead, others := w.Rank() == dead, w.Size()-1
	allreduce := func(op comm.Op[int]) error {
		v := make([]int, 5000)
		for i := range v {
			v[i] = i
		}
		err := comm.Allreduce(d, nil, v, op)
		for i := range v {
			if err == nil {
				expect(w.Size()*i, v[i])
			}
		}
		return err
	}
	for range 5 {
		check(allreduce(comm.Sum[int]))
	}
	switch {
	case isDead && when == "late":
		comm.AwaitArrivals(d, others)
		kill()
	case isDead && when == "combining":
		comm.AwaitArrivals(d, others)
		check(allreduce(func(_, _ []int) { kill() }))
	case isDead && when == "waiting":
		go func() {
			comm.AwaitArrivals(d, others)
			kill()
		}()
		check(allreduce(comm.Sum[int]))
	case w.Rank() == 0 && when == "waiting":
		if _, err := comm.Recv(w, []int{0}, dead, 0); !errors.Is(err, comm.ErrProcFailed) {
			return err
		}
	}
	err := allreduce(comm.Sum[int])
	if when == "waiting" { // all had arrived, so it may have succeeded
		err = allreduce(comm.Sum[int])
	} else if !errors.Is(err, comm.ErrProcFailed) {
		return fmt.Errorf("allreduce: %w", err)
	}
	for range 3 {
		if !errors.Is(err, comm.ErrProcFailed) && !errors.Is(err, comm.ErrComm) {
			return fmt.Errorf("next collective: %w", err)
		}
		err = d.Barrier()
	}
	fmt.Println("ended")
	return nil
}

// TestRankKilledInSharedMemoryFailsTheOthers: a process is killed while the others are in the same
// collective through shared memory.
func TestRankKilledInSharedMemoryFailsTheOthers(t *testing.T) {
	for _, way := range []string{"short", "long"} {
		for _, when := range []string{"late", "combining", "waiting"} {
			for _, sleep := range []string{"true", "false"} {
				t.Run(way+" "+when+", sleep "+sleep, func(t *testing.T) {
					t.Setenv(killVariable, way+" "+when)
					t.Setenv("MPIGO_PROGRESS_SLEEP", sleep)
					for rank, got := range unmanaged(t, 4, "killed") {
						if rank == 2 {
							assert.Equal(t, -1, got.status, "killed")
							continue
						}
						assert.Equal(t, "ended\n", got.stdout, got.stderr)
						assert.Equal(t, 1, got.status, "Finalize cannot succeed")
					}
				})
			}
		}
	}
}

// finalizedMemoryProgram checks that Finalize leaves no shared memory mapped.
func finalizedMemoryProgram(w *comm.Comm) error {
	comm.SharingMemory(w, "short")
	check(comm.SharingMemory(w, "long").Free())
	check(w.Barrier())
	check(w.Finalize())
	maps, err := os.ReadFile("/proc/self/maps")
	if n := strings.Count(string(maps), "mpigo-sm-shared"); err != nil || n > 0 {
		return fmt.Errorf("%d mappings are left (%w)", n, err)
	}
	return nil
}

func TestFinalizeUnmapsSharedMemory(t *testing.T) {
	assert.Equal(t, outcome{}, launcher(t)(3, "finalized memory"))
}
