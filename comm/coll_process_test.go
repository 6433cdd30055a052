package comm_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/comm"
)

// collectivesProgram checks the results of all collectives, in the world and in a part of it.
func collectivesProgram(w *comm.Comm) error {
	if err := comm.CheckCollectives(w); err != nil {
		return err
	}
	half, err := w.Split(w.Rank()%2, -w.Rank())
	if err != nil {
		return err
	}
	if err := comm.CheckCollectives(half); err != nil {
		return err
	}
	if w.Rank() == 0 {
		fmt.Println("collectives of", w.Size(), "and", half.Size(), "done")
	}
	return nil
}

func TestCollectivesOfProcesses(t *testing.T) {
	launch := launcher(t)
	assert.Equal(t, outcome{0, "collectives of 2 and 1 done\n", ""}, launch(2, "collectives"))
	assert.Equal(t, outcome{0, "collectives of 4 and 2 done\n", ""}, launch(4, "collectives"))
	// More ranks than cores, as a rule.
	assert.Equal(t, outcome{0, "collectives of 16 and 8 done\n", ""}, launch(16, "collectives"))
}

// spoiledProgram: one rank after the other does not play along in a collective.
func spoiledProgram(w *comm.Comm) error {
	if err := comm.CheckSpoiled(w); err != nil {
		return err
	}
	if w.Rank() == 0 {
		fmt.Println("nobody hangs")
	}
	return nil
}

func TestSpoiledCollectivesOfProcesses(t *testing.T) {
	launch := launcher(t)
	for _, n := range []int{2, 5} {
		assert.Equal(t, outcome{0, "nobody hangs\n", ""}, launch(n, "spoiled"), "%d ranks", n)
	}
	assert.Equal(t, outcome{0, "nobody hangs\n", ""}, launch(3, "spoiled", "--set", "pml.eager.bytes=1"))
}

// desertedProgram: rank 2 dies once all have met; the others make every collective call, in vain.
func desertedProgram(w *comm.Comm) error {
	err := comm.CallAll(w, func() {
		if w.Rank() == 2 {
			os.Exit(5)
		}
	})
	if err == nil {
		fmt.Println("deserted")
	}
	return err
}

// Nobody is left waiting when a rank dies, also those that do not wait for that one, in a job whose launcher does not end it.
func TestDesertedCollectives(t *testing.T) {
	for rank, got := range unmanaged(t, 5, "deserted") {
		if rank == 2 {
			assert.Equal(t, outcome{5, "", ""}, got)
			continue
		}
		assert.Equal(t, "deserted\n", got.stdout, got.stderr)
		assert.Equal(t, 1, got.status, "Finalize cannot succeed")
	}
}
