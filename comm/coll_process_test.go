package comm_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/internal/race"
)

// collectivesProgram checks the results of all collectives, in the world and in a part of it.
func collectivesProgram(w *comm.Comm) error {
	comm.CheckShared(w)
	comm.CheckResultsOfStarts(w)
	comm.CheckStartsSendNothing(w, 1)
	comm.CheckStartsSendNothing(w, 20_000)
	comm.CheckCollectives(w)
	checkResults(w)
	half := must(w.Split(w.Rank()%2, -w.Rank()))
	comm.CheckCollectives(half)
	checkResults(half)
	if w.Rank() == 0 {
		fmt.Println("collectives of", w.Size(), "and", half.Size(), "done")
	}
	return nil
}

func TestCollectivesOfProcesses(t *testing.T) {
	launch := launcher(t)
	assert.Equal(t, outcome{0, "collectives of 2 and 1 done\n", ""}, launch(2, "collectives", "--set", "check=false"))
	assert.Equal(t, outcome{0, "collectives of 4 and 2 done\n", ""}, launch(4, "collectives", "--set", "check=false"))
	many := 16 // usually more than there are cores
	if !race.All() {
		many = 6
	}
	done := fmt.Sprintf("collectives of %d and %d done\n", many, many/2)
	assert.Equal(t, outcome{0, done, ""}, launch(many, "collectives", "--set", "check=false"))
}

// revokedProgram makes a wrong call in a collective at one rank after the other.
func revokedProgram(w *comm.Comm) error {
	comm.CheckRevokedCollectives(w)
	if w.Rank() == 0 {
		fmt.Println("no rank hangs")
	}
	return nil
}

func TestRevokedCollectivesOfProcesses(t *testing.T) {
	launch := launcher(t)
	for _, n := range []int{2, 5} {
		if n == 5 && !race.All() {
			continue
		}
		assert.Equal(t, outcome{0, "no rank hangs\n", ""}, launch(n, "revoked"), "%d ranks", n)
	}
	assert.Equal(t, outcome{0, "no rank hangs\n", ""}, launch(3, "revoked", "--set", "pml.eager.bytes=1"))
}

// timersProgram makes collectives in several goroutines. Their contexts end at any moment.
func timersProgram(w *comm.Comm) error {
	comm.CheckEndedCreateGroup(w)
	comm.CheckTimers(w, 100)
	if w.Rank() == 0 {
		fmt.Println("no goroutine hangs")
	}
	return nil
}

func TestCollectivesWithTimersOfProcesses(t *testing.T) {
	launch := launcher(t)
	for _, transport := range []string{"self,sm", "self,tcp"} {
		assert.Equal(t, outcome{0, "no goroutine hangs\n", ""}, launch(2, "timers", "--btl", transport), transport)
	}
}

// releaseVariable is an environment variable that names the file by which a rank of refusalsProgram
// releases the other one.
const releaseVariable = "COMM_TEST_RELEASE"

// refusalsProgram refuses collectives at rank 0 while rank 1 makes no library call.
func refusalsProgram(w *comm.Comm) error {
	file := os.Getenv(releaseVariable)
	comm.CheckRefusals(w, 20_000, func() {
		must(0, os.WriteFile(file, nil, 0o600))
	}, func() {
		for {
			if _, err := os.Stat(file); err == nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	if w.Rank() == 0 {
		fmt.Println("all refused")
	}
	return nil
}

func TestRefusalsWhileAnotherProcessDoesNothing(t *testing.T) {
	launch := launcher(t)
	for _, transport := range []string{"self,sm", "self,tcp"} {
		t.Setenv(releaseVariable, filepath.Join(t.TempDir(), "release"))
		assert.Equal(t, outcome{0, "all refused\n", ""}, launch(2, "refusals", "--btl", transport), transport)
	}
}

// freedRequestsProgram frees the requests of persistent collectives at one rank while the others
// start them. It checks that a late rank makes no call fail.
func freedRequestsProgram(w *comm.Comm) error {
	comm.CheckResultsOfStarts(w)
	comm.CheckFreedRequests(w)
	if w.Rank() == 0 {
		fmt.Println("no start hangs")
	}
	return nil
}

func TestStartsWithoutRankThatHasFreedRequestOfProcesses(t *testing.T) {
	launch := launcher(t)
	for transport, eager := range map[string]string{"self,sm": "8K", "self,tcp": "1"} {
		got := launch(3, "freed requests", "--btl", transport, "--set", "pml.eager.bytes="+eager)
		assert.Equal(t, outcome{0, "no start hangs\n", ""}, got, "%s, %s bytes", transport, eager)
	}
}

// splitsGivenUpProgram gives up a Split at one rank after the others have finished it, and then at
// several ranks at random moments.
func splitsGivenUpProgram(w *comm.Comm) error {
	for _, freeParent := range []bool{false, true} {
		for _, deep := range []bool{false, true} {
			comm.CheckRevoked(w, freeParent, deep)
		}
	}
	if unequal := comm.SplitsGivenUp(w, comm.SplitRounds(50), 11); w.Rank() == 0 {
		fmt.Println("all have ended")
		fmt.Fprintln(os.Stderr, unequal, "of them unequally")
	}
	return nil
}

func TestSplitsGivenUpOfProcesses(t *testing.T) {
	launch := launcher(t)
	for _, n := range []int{2, 4} {
		for _, transport := range []string{"self,sm", "self,tcp"} {
			got := launch(n, "splits given up", "--btl", transport)
			assert.Equal(t, outcome{0, "all have ended\n", got.stderr}, got, "%d ranks, %s", n, transport)
			t.Logf("%d ranks, %s: %s", n, transport, got.stderr)
		}
	}
}

// desertedProgram kills rank 2 once all ranks have communicators. The others then make every
// collective call.
func desertedProgram(w *comm.Comm) error {
	comm.CallAll(w, func() bool {
		if w.Rank() == 2 {
			os.Exit(5)
		}
		return false
	})
	fmt.Println("deserted")
	return nil
}

// TestCollectivesWithoutDeadRankFail: no rank waits forever when a rank dies and the launcher does
// not end the job.
func TestCollectivesWithoutDeadRankFail(t *testing.T) {
	for rank, got := range unmanaged(t, 5, "deserted") {
		if rank == 2 {
			assert.Equal(t, outcome{5, "", ""}, got)
			continue
		}
		assert.Equal(t, "deserted\n", got.stdout, got.stderr)
		assert.Equal(t, 1, got.status, "Finalize cannot succeed")
	}
}
