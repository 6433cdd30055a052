package mpitest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/mpitest"
)

// TestCutRailFailsRailAndMendRailReturnsIt: the messages between the ranks arrive while one rail of
// two is cut, and when it is back.
func TestCutRailFailsRailAndMendRailReturnsIt(t *testing.T) {
	mpitest.Run(t, 2, func(t testing.TB, world *comm.Comm) {
		// until exchanges messages until what holds at both ranks.
		until := func(what func(s comm.Stats) bool) {
			for all := []bool{false}; !all[0]; {
				got, err := shift(world, 10*world.Rank())
				require.NoError(t, err)
				require.Equal(t, 10*(1-world.Rank()), got)
				require.NoError(t, comm.Allreduce(world, []bool{what(world.Stats())}, all, comm.Land))
			}
		}
		until(func(comm.Stats) bool { return true })
		require.Len(t, world.Rails(), 2)
		if world.Rank() == 0 {
			mpitest.CutRail(t, world, 0)
		}
		until(func(s comm.Stats) bool { return s.RailsFailed > 0 })
		if world.Rank() == 0 {
			mpitest.MendRail(t, world, 0)
		}
		until(func(s comm.Stats) bool { return s.RailsReturned > 0 })
	}, mpitest.Rails(2), comm.WithSetting("pml.notices", "false"))
}

// TestCutOfLastRailEndsCallsAfterGraceTime: the calls of both ranks fail; nothing hangs.
func TestCutOfLastRailEndsCallsAfterGraceTime(t *testing.T) {
	mpitest.Run(t, 2, func(t testing.TB, world *comm.Comm) {
		require.NoError(t, world.Barrier())
		if world.Rank() == 0 {
			mpitest.CutRail(t, world, 0)
		}
		var err error
		for err == nil { // a message may have gone before the cut
			_, err = shift(world, 1)
		}
		require.ErrorIs(t, err, comm.ErrUnreachable)
	}, comm.WithGrace(30*time.Millisecond), comm.WithSetting("pml.notices", "false"))
}

// TestCutRailThatIsNotThereFailsTest: the failure is at the line of the call.
func TestCutRailThatIsNotThereFailsTest(t *testing.T) {
	for name, call := range map[string]func(testing.TB, *comm.Comm, int){"cut": mpitest.CutRail, "mend": mpitest.MendRail} {
		t.Run(name, func(t *testing.T) {
			var line string
			f, log := runFails(t, 2, func(t testing.TB, world *comm.Comm) {
				if world.Rank() == 0 {
					call(t, world, 1+at(&line))
				}
			}, mpitest.Rails(2))
			assert.Regexp(t, `rank 0: world: `+name+` rail \(rails_test.go:\d+\): invalid count: rail 2 of 2 \(the option Rails or WithRails sets their number\)`, log)
			assert.Contains(t, f.lines, line)
		})
	}
}
