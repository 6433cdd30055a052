package mpitest

import (
	"testing"

	"github.com/mpigo/mpigo/comm"
)

// Rails has the ranks of a test joined by n rails, network paths in memory, from 1, which is the
// default, to 32. A test that cuts all rails but one shows that the program works on while its
// network fails.
func Rails(n int) comm.Option { return comm.WithRails(n) }

// CutRail cuts a rail between all ranks of a test, as if somebody had pulled the cable, until
// [MendRail]. Rails count from 0. The ranks notice the cut when they next make progress, and go on
// with the other rails: no call returns an error, and no message is lost. If no rail is left, calls
// wait for one to come back, and fail with comm.ErrUnreachable after the grace time, which is 10
// seconds unless comm.WithGrace sets another one.
//
// One rank calls it for all, or any goroutine while the body of the rank runs. If there is no such
// rail, it ends the test.
func CutRail(t testing.TB, world *comm.Comm, rail int) {
	t.Helper()
	if err := world.CutRail(rail); err != nil {
		t.Fatal(err)
	}
}

// MendRail ends a cut by [CutRail]. The ranks use the rail again within about half a second in
// which they make progress.
func MendRail(t testing.TB, world *comm.Comm, rail int) {
	t.Helper()
	if err := world.MendRail(rail); err != nil {
		t.Fatal(err)
	}
}
