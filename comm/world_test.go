package comm

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/comm/internal/userlog"
	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/internal/wireup"
	"github.com/mpigo/mpigo/pml"
)

func settings(t *testing.T, opts ...Option) tunable.Set {
	t.Helper()
	_, set, err := makeOptions(opts)
	require.NoError(t, err)
	return set
}

// TestIdlePolicyOfCrowdedRanks: with more ranks than cores, a rank yields at once, and for long.
// The user's settings have precedence.
func TestIdlePolicyOfCrowdedRanks(t *testing.T) {
	roomy := idlePolicy(settings(t), 4, 4, crowdedYieldNanos)
	assert.Equal(t, spinTurns, roomy.SpinTurns)
	assert.Equal(t, int64(time.Millisecond), roomy.YieldNanos)
	assert.False(t, roomy.NoSleep)

	crowded := idlePolicy(settings(t), 5, 4, crowdedYieldNanos)
	assert.LessOrEqual(t, crowded.SpinTurns, 10)
	assert.Equal(t, int64(20*time.Millisecond), crowded.YieldNanos)

	set := settings(t, WithSetting("progress.spin", "77"), WithSetting("progress.yield", "3ms"), WithSetting("progress.sleep", "false"))
	for _, ranks := range []int{1, 100} {
		asked := idlePolicy(set, ranks, 4, crowdedYieldNanos)
		assert.Equal(t, 77, asked.SpinTurns)
		assert.Equal(t, int64(3*time.Millisecond), asked.YieldNanos)
		assert.True(t, asked.NoSleep)
	}
	assert.GreaterOrEqual(t, coresOfProcesses(), 1)
}

func TestAloneInSchedulingGroup(t *testing.T) {
	const pid, other = 42, 7
	for _, p := range []struct {
		what         string
		sid, parent  int
		own, parents string
		want         bool
	}{
		{"a rank of mpirun-go", other, other, "0::/a\n", "0::/a\n", false},
		{"a session of its own", pid, other, "0::/a\n", "0::/a\n", true},
		{"a cgroup of its own", other, other, "0::/a/rank\n", "0::/a\n", true},
		{"the first process of a container", other, 0, "0::/\n", "0::/\n", true},
	} {
		assert.Equal(t, p.want, aloneInGroup(pid, p.sid, p.parent, p.own, p.parents), p.what)
	}
	isAloneInGroup() // reads what there is
}

func TestEagerBytes(t *testing.T) {
	const key = "pml.eager.bytes"
	assert.Equal(t, 0, bytesIfSet(settings(t), key))
	assert.Equal(t, 4096, bytesIfSet(settings(t, WithSetting(key, "4K")), key))
	assert.Equal(t, 1, bytesIfSet(settings(t, WithSetting(key, "0")), key))
}

func TestExitStatus(t *testing.T) {
	for code, want := range map[int]int{0: 0, 1: 1, 7: 7, 255: 255, 256: 1, 257: 1, -1: 255, -256: 1} {
		assert.Equal(t, want, exitStatus(code), "%d", code)
	}
}

func TestAnyCrowded(t *testing.T) {
	roomy, crowded := wireup.Card{}, wireup.Card{Oversubscribed: true}
	assert.False(t, anyCrowded([]wireup.Card{roomy, roomy}, false))
	assert.True(t, anyCrowded([]wireup.Card{roomy, roomy}, true))
	assert.True(t, anyCrowded([]wireup.Card{roomy, crowded}, false))
}

// TestWorldOfOneRankReachesItself: the rank has no other rank to reach.
func TestWorldOfOneRankReachesItself(t *testing.T) {
	w, err := join(nil, settings(t), options{})
	require.NoError(t, err)
	assert.Equal(t, 0, w.Rank())
	assert.Equal(t, 1, w.Size())
	assert.Len(t, w.job.modules, 0, "the rail to itself is polled once it is used")
	for range 2 {
		require.NoError(t, Send(w, []int{42}, 0, 0))
		got := []int{0}
		_, err = Recv(w, got, 0, 0)
		require.NoError(t, err)
		assert.Equal(t, []int{42}, got)
		assert.Len(t, w.job.modules, 1)
	}
	require.NoError(t, w.Finalize())
	assert.ErrorIs(t, w.Finalize(), ErrFinalized)
}

// TestSendToSelfWithoutSelfRailFails: the error names the transport that is missing.
func TestSendToSelfWithoutSelfRailFails(t *testing.T) {
	w, err := join(nil, settings(t, WithSetting("btl", "sm")), options{})
	require.NoError(t, err)
	err = Send(w, []int{42}, 0, 0)
	assert.ErrorIs(t, err, ErrUnreachable)
	assert.ErrorContains(t, err, "btl=sm has no self")
	require.NoError(t, w.Finalize())
}

func TestOneLine(t *testing.T) {
	assert.Equal(t, "a; b; c", userlog.OneLine(errors.Join(errors.New("a"), errors.New("b\r\n\nc\n"))))
}

func TestNoticesAreLimited(t *testing.T) {
	var n notices
	now := int64(1e15)
	admit := func(times int) (admitted, withheld int) {
		for range times {
			before, ok := n.admit(now)
			admitted, withheld = admitted+b2i(ok), withheld+before
		}
		return admitted, withheld
	}
	for _, step := range []struct {
		after              time.Duration // the step before
		admitted, withheld int
	}{
		{0, maxNotices, 0},
		{time.Second / 2, 0, 0},
		{time.Second / 2, 1, 19 + 10}, // those of both steps before
		{3 * time.Second, 3, 9},
		{time.Hour, maxNotices, 7},
	} {
		now += int64(step.after)
		times := 10
		if step.admitted == maxNotices {
			times = maxNotices + 19
		}
		admitted, withheld := admit(times)
		assert.Equal(t, []int{step.admitted, step.withheld}, []int{admitted, withheld}, step)
	}
}

func TestDescribeRail(t *testing.T) {
	const rail = "rail ibverbs:rxe0/1 to rank 3 "
	cause := &btl.Error{Rail: "ibverbs:rxe0/1", Peer: 3, Class: btl.ClassPath, Native: "IBV_WC_RETRY_EXC_ERR", Err: errors.New("no answer\nat all")}
	for want, e := range map[string]pml.RailEvent{
		"failed: IBV_WC_RETRY_EXC_ERR: no answer; at all; continuing on the remaining one":               {Cause: cause, Left: 1},
		"failed: IBV_WC_RETRY_EXC_ERR: no answer; at all; continuing on the remaining 2":                 {Cause: cause, Left: 2},
		"failed: IBV_WC_RETRY_EXC_ERR: no answer; at all; no other rail there is up: waiting for a rail": {Cause: cause},
		"is back":                   {Up: true, Again: true},
		"is up, for the first time": {Up: true},
	} {
		e.Rail, e.Peer = "ibverbs:rxe0/1", 3
		assert.Equal(t, rail+want, describeRail(e))
	}
	other := pml.RailEvent{Rail: "tcp:eth0", Peer: 3, Up: true, Alternate: true}
	assert.Equal(t, "rail tcp:eth0 to another port of rank 3 is up", describeRail(other))
}
