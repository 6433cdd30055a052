package comm_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
)

// A program that does not use comm.Run.
func ExampleInit() {
	world, err := comm.Init()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// If this rank panics, the job ends, and no rank waits for it.
	defer world.Finalize()

	sum := []int{0}
	if err := comm.Allreduce(world, []int{world.Rank()}, sum, comm.Sum); err != nil {
		fmt.Fprintln(os.Stderr, err)
		world.Abort(1) // the job ends here too
	}
	fmt.Println("the sum is", sum[0])

	// This call returns the error. The deferred one then has nothing to do.
	if err := world.Finalize(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// deferredPanicMain has the last rank dereference nil while the others wait for it.
func deferredPanicMain() {
	w, err := comm.Init()
	defer w.Finalize()
	if err != nil {
		panic(err)
	}
	if w.Rank() == w.Size()-1 {
		var nowhere *int
		*nowhere = 1
	}
	_, err = comm.Recv(w, []int{0}, w.Size()-1, 0)
	fmt.Println("received", err)
}

// deferredInAllMain finalizes by a deferred call only, once.
func deferredInAllMain() {
	w := must(comm.Init())
	defer func() { fmt.Println(w.Barrier()) }()
	defer w.Finalize()
	if w.Rank() == 0 {
		check(w.Finalize())
	}
}

// initAgainMain calls Init three times.
func initAgainMain() {
	w := must(comm.Init())
	_, again := comm.Init()
	check(w.Barrier())
	check(w.Finalize())
	_, after := comm.Init()
	fmt.Println(again, errors.Is(again, comm.ErrNotSupported))
	fmt.Println(after, errors.Is(after, comm.ErrNotSupported))
}

// execMain joins and then executes itself, after Finalize or without.
func execMain(finalizes bool) {
	w, err := comm.Init()
	if err != nil {
		fmt.Println(err, errors.Is(err, comm.ErrNotSupported))
		return
	}
	if finalizes {
		check(w.Finalize())
	}
	check(syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
}

// childMain starts child processes, which inherit nothing of the job that they could misuse.
func childMain() {
	w := must(comm.Init())
	self := must(os.Executable())
	run := func(name string, arg ...string) string {
		out, err := exec.Command(name, arg...).CombinedOutput()
		return fmt.Sprintln(strings.TrimSpace(string(out)), err)
	}
	text := run("sh", "-c", "env | grep -E '^(PMI_FD|PMI_PORT|MPIGO_SECRET|MPIGO_INTROSPECT_FD)='; ls -l /proc/self/fd | grep socket:; true")
	check(os.Setenv(programVariable, "calls"))
	text += run(self) + run(os.Getenv(launcherVariable), "-n", "2", "--oversubscribe", self)
	check(os.Unsetenv("MPIGO_JOINED_PID"))
	text += run(self)
	check(w.Finalize())
	fmt.Print(text)
}

// launcherVariable is an environment variable with the path of mpirun-go.
const launcherVariable = "COMM_TEST_LAUNCHER"

func TestMainsOfProcesses(t *testing.T) {
	launch := launcher(t)
	self, err := os.Executable()
	require.NoError(t, err)

	t.Run("deferred panic", func(t *testing.T) {
		for _, got := range []outcome{launch(3, "deferred panic"), execute(t, "deferred panic", self)} {
			assert.Equal(t, 1, got.status)
			// A rank that panics exits if a slow launcher has not ended the job by then.
			assert.Regexp(t, `^(received world: recv \(\w+.go:\d+, peer 2, tag 0\): peer process failed: .*\n)*$`, got.stdout)
			assert.Regexp(t, `mpigo: rank [02]: panic: runtime error: invalid memory address or nil pointer dereference\n`, got.stderr)
			assert.Contains(t, got.stderr, "comm_test.deferredPanicMain", "the stack")
		}
	})
	t.Run("deferred in all", func(t *testing.T) {
		line := "world: barrier: already finalized\n"
		assert.Equal(t, outcome{0, line + line, ""}, withoutLines(launch(2, "deferred in all")))
	})
	t.Run("init again", func(t *testing.T) {
		const lines = "world: init: not supported: Init was called before in this process (a program that it executes cannot join again: start it by mpirun-go) true\n" +
			"world: init: not supported: Init was called before in this process (a program that it executes cannot join again: start it by mpirun-go) true\n"
		assert.Equal(t, outcome{0, lines, ""}, withoutLines(execute(t, "init again", self)))
		assert.Equal(t, outcome{0, lines + lines, ""}, withoutLines(launch(2, "init again")))
	})
	t.Run("exec", func(t *testing.T) {
		const line = "world: init: not supported: Init was called before in this process " +
			"(a program that it executes cannot join again: start it by mpirun-go) true\n"
		assert.Equal(t, outcome{0, line, ""}, withoutLines(execute(t, "exec", self)))
		assert.Equal(t, outcome{0, line + line, ""}, withoutLines(launch(2, "exec")))
		got := launch(1, "exec joined")
		assert.Equal(t, line, comm.WithoutLines(got.stdout))
		assert.Contains(t, got.stderr, "exited with status 0, but without Finalize")
	})
	t.Run("child", func(t *testing.T) {
		mpirun, err := launcherFile()
		require.NoError(t, err)
		t.Setenv(launcherVariable, mpirun)
		got := launch(1, "child")
		assert.Equal(t, outcome{0, got.stdout, ""}, got)
		assert.Regexp(t, `^ <nil>
mpigo: world: init \(\w+.go:\d+\): wireup: process \d+ has joined the job already as this rank, .* exit status 1
calls done <nil>
calls done <nil>
$`, got.stdout)
	})
}

// TestDeferredFinalizeKeepsPanicOfLocalRank: a rank of RunLocal goes on panicking in a deferred
// Finalize, and the calls of the other ranks end.
func TestDeferredFinalizeKeepsPanicOfLocalRank(t *testing.T) {
	err := tryRun(t, 3, func(t rank, w *comm.Comm) {
		defer w.Finalize()
		if w.Rank() == 1 {
			panic("enough")
		}
		_, err := comm.Recv(w, []int{0}, 1, 0)
		assert.ErrorIs(t, err, comm.ErrProcFailed)
	})
	require.ErrorIs(t, err, comm.ErrProcFailed)
	assert.ErrorContains(t, err, "rank 1: panic: enough")
	assert.ErrorContains(t, err, "comm_test.TestDeferredFinalizeKeepsPanicOfLocalRank", "the stack")

	assert.PanicsWithValue(t, "no communicator", func() {
		var none *comm.Comm
		defer none.Finalize()
		panic("no communicator")
	})
}
