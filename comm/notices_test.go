package comm

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/pml"
)

// A rail is described if something went wrong with it, by side and kind of error.
func TestDescribeErrors(t *testing.T) {
	require.Empty(t, describeErrors(pml.RailStatus{Peer: 1, Rail: "tcp:r0", Health: 1000}))
	for want, r := range map[string]pml.RailStatus{
		"slow":                   {Slow: true},
		"local device errors: 1": {LocalErrors: pml.ErrorCounts{Device: 1}},
		"path timeout errors: 3": {PathErrors: pml.ErrorCounts{Timeout: 3}},
		"remote path errors: 4, remote protocol errors: 1": {RemoteErrors: pml.ErrorCounts{Path: 4, Protocol: 1}},
	} {
		r.Peer, r.Rail = 1, "tcp:r0"
		require.Equal(t, "rail tcp:r0 to rank 1: "+want, describeErrors(r))
		require.Equal(t, "mpigo: rank 7:   rail tcp:r0 to rank 1: "+want+"\n", railErrors(7, []pml.RailStatus{{Peer: 2}, r}))
	}
}

// railTeller is notices with a clock that the test moves.
type railTeller struct {
	notices
	now  int64
	over bool
}

func (n *railTeller) event(e pml.RailEvent) (lines []string) {
	if e.Rail = "tcp:r0"; n.add(e, n.now) {
		lines = append(lines, describeRail(e))
	}
	return lines
}

func (n *railTeller) after(d time.Duration) (lines []string) {
	n.now += int64(d)
	lines, _ = n.due(n.now, func(int) bool { return n.over })
	return lines
}

var (
	railCut  = pml.RailEvent{Peer: 1, Cause: errors.New("cut")}
	railBack = pml.RailEvent{Peer: 1, Up: true, Again: true}
)

// TestNoticeOfFailureWaits: a failure is told after a while, with the return if that has come.
func TestNoticeOfFailureWaits(t *testing.T) {
	const failed, back = "rail tcp:r0 to rank 1 failed: cut; no other rail there is up: waiting for a rail", "rail tcp:r0 to rank 1 is back"
	n := railTeller{now: 7}
	require.Equal(t, []string{back}, n.event(railBack))
	require.Empty(t, n.event(railCut))
	require.Empty(t, n.after(time.Duration(noticeHold)-1))
	require.Equal(t, []string{failed}, n.after(1))
	require.Equal(t, []string{back}, n.event(railBack))
	require.Empty(t, n.after(time.Minute))
	require.Empty(t, n.rails)

	require.Empty(t, n.event(railCut))
	require.Empty(t, n.event(railBack))
	require.Equal(t, []string{failed, back}, n.after(time.Duration(noticeHold)))
}

// TestNoNoticeOfPeerThatEnds: nothing is told of the rails to a peer whose process ends.
func TestNoNoticeOfPeerThatEnds(t *testing.T) {
	var n railTeller
	require.Empty(t, n.event(railCut))
	n.over = true
	require.Empty(t, n.after(time.Hour))
	require.Empty(t, n.rails)
}

// TestFlappingRailIsSummedUp: of a rail that fails again and again, the first failure is told, and
// then one line a minute.
func TestFlappingRailIsSummedUp(t *testing.T) {
	var n railTeller
	other := railCut
	other.Alternate = true // a rail of its own
	require.Empty(t, n.event(railCut))
	require.Empty(t, n.event(other))
	require.Len(t, n.after(time.Second), 2)
	require.Len(t, n.event(railBack), 1)
	for range 9 {
		require.Empty(t, n.event(railCut))
		require.Empty(t, n.event(railBack))
		require.Empty(t, n.after(time.Second))
	}
	require.Empty(t, n.event(other))
	require.Equal(t, []string{
		"rail tcp:r0 to rank 1 failed 9 more times in the last minute, the last time because of: cut; it is up",
		"rail tcp:r0 to another port of rank 1 failed once more in the last minute, the last time because of: cut; it is down",
	}, n.after(50*time.Second))
	require.Empty(t, n.event(railCut))
	require.Empty(t, n.event(railBack))
	require.Equal(t, []string{"rail tcp:r0 to rank 1 failed once more in the last minute, the last time because of: cut; it is up"}, n.after(time.Minute))
	require.Empty(t, n.after(time.Minute), "nothing has happened")
	require.Empty(t, n.rails)
	require.Empty(t, n.event(railCut))
	require.Len(t, n.after(time.Second), 1)
}

// TestRailThatStaysDownIsToldSoon: a rail that was told to be back fails again, for good.
func TestRailThatStaysDownIsToldSoon(t *testing.T) {
	var n railTeller
	require.Empty(t, n.event(railCut))
	require.Len(t, n.after(time.Duration(noticeHold)), 1)
	require.Len(t, n.event(railBack), 1)
	require.Empty(t, n.event(railCut))
	require.Empty(t, n.after(time.Duration(noticeLasting)-1))
	require.Equal(t, []string{"rail tcp:r0 to rank 1 failed once more in the last minute, the last time because of: cut; it is down"}, n.after(1))
	require.Empty(t, n.after(time.Duration(noticeLasting)))
	require.Equal(t, []string{describeRail(pml.RailEvent{Rail: "tcp:r0", Peer: 1, Up: true, Again: true})}, n.event(railBack))
}
