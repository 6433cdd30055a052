package mpitest

import (
	"testing"

	"github.com/mpigo/mpigo/comm"
)

// Rails joins the ranks of a test by n rails, which are network paths in memory: from 1, the
// default, to 32. A test that cuts all rails except one shows that the program continues while its
// network fails.
func Rails(n int) comm.Option { return comm.WithRails(n) }

// CutRail cuts a rail between all ranks of a test, as if somebody had pulled the cable, until
// [MendRail]. Rails are numbered from 0. The ranks notice the cut when they next make progress, and
// continue with the other rails: no call returns an error, and no message is lost. If no rail is
// left, calls wait for one to come back, and fail with comm.ErrUnreachable after the grace time,
// which is 10 seconds unless comm.WithGrace sets it.
//
// One rank calls CutRail for all ranks, from any goroutine while its body runs. If there is no such
// rail, CutRail ends the test.
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
