package comm_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/comm"
)

// killVariable is the environment variable that tells killedProgram which collectives are under way
// when rank 2 kills itself, and at which moment it does.
const killVariable = "COMM_TEST_KILL"

// killed is the rank that kills itself, of four.
const killed = 2

// killedScene is a collective through shared memory, on one host or on two, in its own
// communicator.
type killedScene struct {
	comm.SharedCall
	d      *comm.Comm
	local  int // ranks of a host
	root   int
	counts bool // the ranks that arrive are counted
}

// killedScenes prepares the collectives that killVariable names. Those on two hosts come last.
func killedScenes(w *comm.Comm, way, when, names string) (scenes []killedScene) {
	for name := range strings.SplitSeq(names, ",") {
		name, onTwo := strings.CutSuffix(name, "+")
		calls := comm.SharedCalls()
		i := slices.IndexFunc(calls, func(c comm.SharedCall) bool { return c.Name == name })
		s := killedScene{SharedCall: calls[i], local: 4, root: calls[i].Root(killed), counts: name != "bcast"}
		if onTwo {
			s.local = 2
			comm.PlaceOnHosts(w, "by twos")
		}
		if when == "combining" { // only the root of a short Reduce combines
			s.root = killed
		}
		s.d = comm.SharingMemory(w, way)
		for range 3 {
			check(s.Call(s.d, s.root, comm.Sum))
		}
		scenes = append(scenes, s)
	}
	return scenes
}

// die kills rank 2 before the collectives, while it combines, or while it waits.
func die(scenes []killedScene, when string) {
	kill := func() {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	}
	arrived := func(ranks func(s killedScene) int) {
		for _, s := range scenes {
			if s.counts {
				comm.AwaitArrivals(s.d, ranks(s))
			}
		}
	}
	others := func(s killedScene) int { return s.local - 1 }
	switch when {
	case "late":
		arrived(others)
		kill()
	case "combining":
		arrived(others)
		check(scenes[0].Call(scenes[0].d, killed, func(_, _ []int) { kill() }))
	case "waiting": // rank 0 has not come yet
		for _, s := range scenes {
			go func() { _ = s.Call(s.d, s.root, comm.Sum) }()
		}
		arrived(func(s killedScene) int { return min(s.local, 3) })
		kill()
	}
}

// survive makes a collective without rank 2, and later ones. It checks each error.
func (s *killedScene) survive(rank int, when string) error {
	err := s.Call(s.d, s.root, comm.Sum)
	isDue := s.Awaits(rank) && when != "waiting" // when all have arrived, it may succeed
	if s.root == killed && s.Name == "reduce" {
		isDue = false
	}
	if err == nil && isDue || err != nil && !errors.Is(err, comm.ErrProcFailed) {
		return fmt.Errorf("%s, %d ranks on each host: %w", s.Name, s.local, err)
	}
	for range 3 {
		err = s.d.Barrier()
		if !errors.Is(err, comm.ErrProcFailed) && !errors.Is(err, comm.ErrComm) {
			return fmt.Errorf("barrier after %s, %d ranks on each host: %w", s.Name, s.local, err)
		}
	}
	return nil
}

// killedProgram kills rank 2 in or before collectives through shared memory, all of which are under
// way at once. The other ranks must get errors.
func killedProgram(w *comm.Comm) error {
	var way, when, names string
	if _, err := fmt.Sscan(os.Getenv(killVariable), &way, &when, &names); err != nil {
		return err
	}
	scenes := killedScenes(w, way, when, names)
	if w.Rank() == killed {
		die(scenes, when)
	}
	if w.Rank() == 0 && when == "waiting" {
		if _, err := comm.Recv(w, []int{0}, killed, 0); !errors.Is(err, comm.ErrProcFailed) {
			return err
		}
	}
	if len(scenes) == 1 {
		check(scenes[0].survive(w.Rank(), when))
	} else {
		var running sync.WaitGroup
		for _, s := range scenes {
			running.Go(func() { check(s.survive(w.Rank(), when)) })
		}
		running.Wait()
	}
	fmt.Println("ended")
	return nil
}

// TestRankKilledInSharedMemoryFailsTheOthers: a process is killed while the others are in the same
// collective through shared memory. A + stands for two hosts.
func TestRankKilledInSharedMemoryFailsTheOthers(t *testing.T) {
	const all = "barrier,allreduce,reduce,bcast,allgather,alltoall,barrier+,allreduce+,reduce+,bcast+"
	for i, what := range []string{
		"short late allreduce", "long late allreduce+", "short late " + all, "long late " + all,
		"short combining allreduce", "long combining allreduce", "short combining reduce", "long combining reduce",
		"long combining allreduce+", "short combining reduce+",
		"short waiting allreduce", "long waiting barrier,allreduce,allgather,alltoall,barrier+,allreduce+",
	} {
		sleep := fmt.Sprint(i%2 == 0)
		t.Run(what+", sleep "+sleep, func(t *testing.T) {
			t.Parallel()
			for rank, got := range unmanaged(t, 4, "killed", killVariable+"="+what, "MPIGO_PROGRESS_SLEEP="+sleep) {
				if rank == killed {
					assert.Equal(t, -1, got.status, "killed")
					continue
				}
				assert.Equal(t, "ended\n", got.stdout, got.stderr)
				assert.Equal(t, 1, got.status, "Finalize cannot succeed")
			}
		})
	}
}

// killedStartsProgram kills rank 2 while the others wait in starts of persistent collectives.
func killedStartsProgram(w *comm.Comm) error {
	comm.CheckStartsOfKilledRank(w, killed, func() {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	})
	fmt.Println("ended")
	return nil
}

func TestRankKilledBeforeStartsFailsTheOthers(t *testing.T) {
	for _, sleep := range []string{"true", "false"} {
		for rank, got := range unmanaged(t, 4, "killed starts", "MPIGO_PROGRESS_SLEEP="+sleep) {
			if rank == killed {
				assert.Equal(t, -1, got.status, "killed")
				continue
			}
			assert.Equal(t, "ended\n", got.stdout, got.stderr)
			assert.Equal(t, 1, got.status, "Finalize cannot succeed")
		}
	}
}

// finalizedMemoryProgram checks that Finalize leaves no shared memory mapped.
func finalizedMemoryProgram(w *comm.Comm) error {
	comm.CheckMemoryOfStarts(w)
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
