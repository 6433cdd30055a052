package comm_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
)

func ExampleRunContext() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := comm.RunContext(ctx, func(ctx context.Context, world *comm.Comm) error {
		sum := []int{0}
		err := comm.Allreduce(world, []int{world.Rank() + 1}, sum, comm.Sum)
		fmt.Println(sum[0])
		return err
	}, comm.WithGrace(5*time.Second))
	if err != nil {
		log.Fatal(err) // of this rank; the program may also go on
	}
	// Output: 1
}

// A program that is to use TCP, and to give up soon when no rail is left.
func ExampleWithTransports() {
	comm.Run(func(world *comm.Comm) error {
		fmt.Println("rank", world.Rank())
		return nil
	}, comm.WithTransports("self", "tcp"), comm.WithGrace(2*time.Second))
}

// toldVariable names a directory in which each rank makes a file when it has printed its line. No
// process ends before that, because the launcher would then end the others.
const toldVariable = "MPIGO_TEST_TOLD"

func tellAndExit(rank, status int, line string) {
	fmt.Println(line)
	dir := os.Getenv(toldVariable)
	check(os.WriteFile(filepath.Join(dir, fmt.Sprint(rank)), nil, 0o600))
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if all, _ := os.ReadDir(dir); len(all) == 2 {
			break
		}
	}
	os.Exit(status)
}

// runContextMain prints what RunContext returns at the rank that fails, and at the one that waits
// for it.
func runContextMain() {
	rank := 0
	err := comm.RunContext(context.Background(), func(ctx context.Context, world *comm.Comm) error {
		if rank = world.Rank(); rank == 1 {
			return errors.New("no data")
		}
		_, err := comm.Recv(world, []int{0}, 1, 0)
		return err
	})
	tellAndExit(rank, rank, fmt.Sprint(errors.Is(err, comm.ErrProcFailed), " ", err))
}

// TestRunContextReturnsError: the process of a rank whose body fails goes on, and the calls of the
// others end.
func TestRunContextReturnsError(t *testing.T) {
	t.Setenv(toldVariable, t.TempDir())
	got := launcher(t)(2, "run context")
	assert.NotZero(t, got.status)
	assert.Contains(t, got.stdout, "false rank 1: no data\n", got.stderr)
	assert.Regexp(t, `(?m)^true rank 0: world: recv .*peer process failed`, got.stdout, got.stderr)
}

var errEnough = errors.New("enough")

// cancelledMain ends the context of rank 1 while both ranks wait for messages that never arrive.
func cancelledMain() {
	ctx, cancel := context.WithCancelCause(context.Background())
	var inner context.Context
	rank := 0
	err := comm.RunContext(ctx, func(ctx context.Context, world *comm.Comm) error {
		if inner, rank = ctx, world.Rank(); rank == 1 {
			cancel(errEnough)
		}
		_, err := comm.Recv(world, []int{0}, 1-rank, 0)
		if _, again := comm.Recv(world, []int{0}, 1-rank, 0); rank == 1 && !errors.Is(again, errEnough) {
			return fmt.Errorf("a later call: %w", again)
		}
		return err
	})
	if rank == 0 {
		tellAndExit(0, 3, fmt.Sprint("rank 0: ", errors.Is(err, comm.ErrProcFailed)))
	}
	tellAndExit(1, 3, fmt.Sprint("rank 1: ", errors.Is(err, errEnough), errors.Is(context.Cause(inner), errEnough)))
}

func TestContextOfRunEndsCalls(t *testing.T) {
	t.Setenv(toldVariable, t.TempDir())
	got := launcher(t)(2, "cancelled")
	assert.Equal(t, 3, got.status, got.stderr)
	assert.ElementsMatch(t, []string{"rank 0: true", "rank 1: true true"}, strings.Split(strings.TrimSpace(got.stdout), "\n"), got.stderr)
}

// panicContextMain has RunContext return a panic as an error, with its stack.
func panicContextMain() {
	err := comm.RunContext(context.Background(), func(context.Context, *comm.Comm) error {
		var nowhere *int
		*nowhere = 1
		return nil
	})
	var p *comm.PanicError
	if errors.As(err, &p) {
		fmt.Println(len(p.Stack) > 0, err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	fmt.Println(comm.RunContext(ended, nil))
}

func TestRunContextReturnsPanic(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	got := execute(t, "panic, context", self)
	assert.Equal(t, outcome{0, "true rank 0: panic: runtime error: invalid memory address or nil pointer dereference\nrun: context canceled\n", ""}, got)
}

// optionsMain has Run take options.
func optionsMain() {
	comm.Run(func(world *comm.Comm) error {
		fmt.Println(world.Size())
		return nil
	}, comm.WithTransports("self", "tcp"), comm.WithGrace(-time.Second))
}

func TestRunTakesOptions(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	got := execute(t, "options", self)
	assert.Equal(t, 1, got.status)
	assert.Contains(t, got.stderr, "pml.grace")
}
