package job

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNearestToTheCause(t *testing.T) {
	at := func(place int) *rank { return &rank{ended: place > 0, place: place} }
	inOrder := []*verdict{ // the cause first
		{line: "first death", weight: death, rank: at(2)},
		{line: "second death", weight: death, rank: at(3)},
		{line: "abort and end", weight: abort, rank: at(1)},
		{line: "abort and later end", weight: abort, rank: at(4)},
		{line: "abort", weight: abort, rank: at(0)},
		{line: "abort while another ended", weight: abort, rank: at(0), follows: true},
		{line: "left waiting", weight: leftWaiting, rank: at(5)},
	}
	for i, v := range inOrder {
		for j, w := range inOrder {
			assert.Equal(t, i < j, nearer(v, w) < 0, "%s, %s", v.line, w.line)
		}
	}
	equal := &verdict{weight: abort, rank: at(0)}
	assert.Same(t, equal, slices.MinFunc([]*verdict{equal, {weight: abort, rank: at(0)}}, nearer), "of equals the first")
}

// Ranks that fail together are many, so a failure is no reason to look at all the others while
// it is known that one is ending. Here that would panic: most have no process to look at.
func TestFailuresTogetherAreCheap(t *testing.T) {
	failed, suspect, aborter := &rank{ended: true, place: 1}, &rank{}, &rank{Proc: gone()}
	r, _ := still(failed, suspect, aborter, &rank{}, &rank{})
	r.suspects = []*rank{suspect}
	r.held = []*verdict{{rank: suspect, weight: abort}}
	died, followed := &verdict{rank: failed, weight: death}, &verdict{rank: aborter, weight: abort}
	assert.NotPanics(t, func() { r.blame(died); r.blame(followed) })
	assert.False(t, died.follows)
	assert.True(t, followed.follows)
	assert.Len(t, r.held, 3)
	assert.Nil(t, r.verdict)
}

func TestAbortAloneIsNotHeld(t *testing.T) {
	cfg, _, stderr := shells(t, otherRuns+"echo cmd=abort exitcode=9 >&3; exec sleep 1000", started+"exec sleep 1000")
	assert.Equal(t, 9, Run(cfg))
	assert.Regexp(t, `^mpirun-go: rank 0 \(pid \d+\) on here aborted the job with code 9; the job's other rank was ended\n$`, stderr.String())
}

// While a rank is ending that nobody knows the fate of, an abort waits for it.
func TestAbortOfOneThatSawADeath(t *testing.T) {
	const repeats = 20
	for range repeats {
		cfg, _, stderr := shells(t,
			"while ! test -s pid; do :; done; read dead <pid; "+
				"while ! grep -q zombie /proc/$dead/status; do :; done; echo cmd=abort exitcode=9 >&3; exit 9",
			"echo $$ >pid; kill -KILL $$")
		assert.Equal(t, 137, Run(cfg), stderr)
		assert.Regexp(t, `^mpirun-go: rank 1 .* was killed by signal 9 `, stderr.String())
	}
}

// Who waits in a barrier for a rank that ended without Init is not blamed for it, whether it
// ends by itself or stays.
func TestRankThatNeverJoinedIsBlamed(t *testing.T) {
	const join = "echo cmd=init pmi_version=1 pmi_subversion=1 >&3; read x <&3; echo cmd=barrier_in >&3; read x <&3; echo $x; "
	for end, others := range map[string]string{"exit 7": "", "exec sleep 1000": "; the job's other rank was ended"} {
		cfg, stdout, stderr := shells(t, join+end, "exit 0")
		assert.Equal(t, 1, Run(cfg))
		assert.Equal(t, "cmd=barrier_failed rank=1 state=0\n", stdout.String())
		assert.Regexp(t, `^mpirun-go: rank 1 \(pid \d+\) on here exited with status 0, but without Init, which other ranks have called`+others+`\n$`, stderr.String())
	}
}

// One that has failed is blamed for that, and nobody's if nobody waits.
func TestRankThatNeverJoined(t *testing.T) {
	const join = "echo cmd=init pmi_version=1 pmi_subversion=1 >&3; read x <&3; echo cmd=barrier_in >&3; read x <&3; exit 7"
	cfg, _, stderr := shells(t, join, "exit 5")
	assert.Equal(t, 5, Run(cfg), stderr)
	assert.Regexp(t, `^mpirun-go: rank 1 .* exited with status 5`, stderr.String())
	cfg, _, stderr = shells(t, "exit 0", "exit 0")
	assert.Equal(t, 0, Run(cfg), stderr)
}
