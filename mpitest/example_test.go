package mpitest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/mpitest"
)

// shift is the function under test: it sends the value of each rank to the rank to its right.
func shift(c *comm.Comm, value int) (int, error) {
	n := c.Size()
	got := make([]int, 1)
	_, err := comm.Sendrecv(c, []int{value}, (c.Rank()+1)%n, 0, got, (c.Rank()+n-1)%n, 0)
	return got[0], err
}

func ExampleRun() {
	testShift := func(t testing.TB) { // in a test file: func TestShift(t *testing.T)
		mpitest.Run(t, 4, func(t testing.TB, world *comm.Comm) {
			got, err := shift(world, 10*world.Rank())
			require.NoError(t, err)
			assert.Equal(t, 10*((world.Rank()+3)%4), got)
		}, mpitest.HangAfter(10*time.Second))
	}

	// go test calls it:
	f := &fakeTB{}
	testShift(f)
	fmt.Println("failed:", f.Failed())
	// Output: failed: false
}

// A rail is cut while the ranks exchange messages. The program notices nothing.
func ExampleCutRail() {
	testCut := func(t testing.TB) { // in a test file: func TestCut(t *testing.T)
		mpitest.Run(t, 3, func(t testing.TB, world *comm.Comm) {
			for i := range 100 {
				if world.Rank() == 0 && i == 30 {
					mpitest.CutRail(t, world, 1)
				}
				if world.Rank() == 0 && i == 60 {
					mpitest.MendRail(t, world, 1)
				}
				got, err := shift(world, 10*world.Rank()+i)
				require.NoError(t, err)
				assert.Equal(t, 10*((world.Rank()+2)%3)+i, got)
			}
		}, mpitest.Rails(2), comm.WithSetting("pml.notices", "false"))
	}

	// go test calls it:
	f := &fakeTB{}
	testCut(f)
	fmt.Println("failed:", f.Failed())
	// Output: failed: false
}

// A cable is plugged in again. The rail carries messages again as soon as the ranks have tried it.
func ExampleMendRail() {
	testMend := func(t testing.TB) { // in a test file: func TestMend(t *testing.T)
		mpitest.Run(t, 2, func(t testing.TB, world *comm.Comm) {
			if world.Rank() == 0 {
				mpitest.CutRail(t, world, 0)
				mpitest.MendRail(t, world, 0)
			}
			got, err := shift(world, world.Rank())
			require.NoError(t, err)
			assert.Equal(t, 1-world.Rank(), got)
		}, mpitest.Rails(2), comm.WithSetting("pml.notices", "false"))
	}

	// go test calls it:
	f := &fakeTB{}
	testMend(f)
	fmt.Println("failed:", f.Failed())
	// Output: failed: false
}

// Three rails lead from each rank to each other one.
func ExampleRails() {
	testRails := func(t testing.TB) { // in a test file: func TestRails(t *testing.T)
		mpitest.Run(t, 2, func(t testing.TB, world *comm.Comm) {
			_, err := shift(world, world.Rank())
			require.NoError(t, err)
			assert.Len(t, world.Rails(), 3)
		}, mpitest.Rails(3))
	}

	// go test calls it:
	f := &fakeTB{}
	testRails(f)
	fmt.Println("failed:", f.Failed())
	// Output: failed: false
}

// Each rank waits for a message that the other one sends only later. The test fails, and its log
// says which rank waits for which, and at which lines.
func ExampleHangAfter() {
	testHang := func(t testing.TB) { // in a test file: func TestHang(t *testing.T)
		mpitest.Run(t, 2, func(t testing.TB, world *comm.Comm) {
			peer := 1 - world.Rank()
			if _, err := comm.Recv(world, []int{0}, peer, 0); err != nil {
				return // the test has failed
			}
			_ = comm.Send(world, []int{1}, peer, 0)
		}, mpitest.HangAfter(100*time.Millisecond))
	}

	// go test calls it:
	f := &fakeTB{}
	testHang(f)
	fmt.Println("failed:", f.Failed())
	// Output: failed: true
}
