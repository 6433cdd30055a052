package comm

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/pml"
)

// A rail with errors is described by side and kind of error.
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
	now    int64
	over   bool
	levels []slog.Level // of all lines
}

func (n *railTeller) event(e pml.RailEvent) (lines []string) {
	if e.Rail == "" {
		e.Rail = "tcp:r0"
	}
	if line := n.add(e, n.now); line.text != "" {
		lines = append(lines, line.text)
		n.levels = append(n.levels, line.level)
	}
	return lines
}

func (n *railTeller) after(d time.Duration) (lines []string) {
	n.now += int64(d)
	due, _ := n.due(n.now, func(int) bool { return n.over })
	for _, line := range due {
		lines = append(lines, line.text)
		n.levels = append(n.levels, line.level)
	}
	return lines
}

var (
	railCut  = pml.RailEvent{Peer: 1, Cause: errors.New("cut")}
	railBack = pml.RailEvent{Peer: 1, Up: true, Again: true}
)

// TestNoticeOfFailureWaits: a failure is reported after a delay, together with the return if the
// rail is back by then.
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
	const info, warn = slog.LevelInfo, slog.LevelWarn
	require.Equal(t, []slog.Level{info, warn, info, warn, info}, n.levels)
}

// TestNoNoticeOfPeerThatEnds: no line reports the rails to a peer whose process ends.
func TestNoNoticeOfPeerThatEnds(t *testing.T) {
	var n railTeller
	require.Empty(t, n.event(railCut))
	n.over = true
	require.Empty(t, n.after(time.Hour))
	require.Empty(t, n.rails)
}

// TestFlappingRailIsSummedUp: for a rail that fails repeatedly, the first failure is reported, and
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
	otherBack := railBack
	otherBack.Alternate = true
	require.Equal(t, []string{"rail tcp:r0 to another port of rank 1 is back"}, n.event(otherBack))
	require.Empty(t, n.event(railCut))
	require.Empty(t, n.event(railBack))
	require.Equal(t, []string{"rail tcp:r0 to rank 1 failed once more in the last minute, the last time because of: cut; it is up"}, n.after(time.Minute))
	require.Empty(t, n.after(time.Minute), "nothing has happened")
	require.Empty(t, n.rails)
	require.Empty(t, n.event(railCut))
	require.Len(t, n.after(time.Second), 1)
}

// TestRailThatStaysDownIsToldSoon: a rail that was reported as back fails again, and stays down.
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

// connectionEvent is an event of one of several rails of an interface.
func connectionEvent(e pml.RailEvent, number, left int) pml.RailEvent {
	e.Rail, e.Left = "tcp:r0", left
	if number > 1 {
		e.Rail += fmt.Sprintf("#%d", number)
	}
	return e
}

// TestInterfaceOfSeveralRailsIsToldOnce: the failure of an interface is one line, and so is its
// return, for any number of rails.
func TestInterfaceOfSeveralRailsIsToldOnce(t *testing.T) {
	var n railTeller
	fail := func() {
		for number := 1; number <= 4; number++ {
			require.Empty(t, n.event(connectionEvent(railCut, number, 8-number)))
		}
	}
	back := func() (lines []string) {
		for _, number := range []int{3, 1, 2, 4} {
			require.Empty(t, lines)
			lines = n.event(connectionEvent(railBack, number, 0))
		}
		return lines
	}
	const failed = "rail tcp:r0 (4 connections) to rank 1 failed: cut; continuing on the remaining 4"
	const isBack = "rail tcp:r0 (4 connections) to rank 1 is back"
	fail()
	require.Equal(t, []string{failed}, n.after(time.Second))
	require.Equal(t, []string{isBack}, back())
	fail()
	require.Empty(t, back())
	require.Equal(t, []string{"rail tcp:r0 (4 connections) to rank 1 failed once more in the last minute, the last time because of: cut; it is up"}, n.after(time.Minute))
	require.Empty(t, n.after(time.Minute))
	fail() // and stays down for longer than the notices are kept
	require.Equal(t, []string{failed}, n.after(time.Second))
	require.Empty(t, n.after(time.Hour))
	require.Equal(t, []string{isBack}, back())
	fail()
	require.Empty(t, back())
	require.Equal(t, []string{failed, isBack}, n.after(time.Second))
	require.Empty(t, n.after(time.Minute))
	require.Empty(t, n.rails)
}

// TestSingleRailOfAnInterfaceIsNamed: where not all rails of an interface fail, or not at once, the
// lines say so.
func TestSingleRailOfAnInterfaceIsNamed(t *testing.T) {
	var n railTeller
	require.Empty(t, n.event(connectionEvent(railCut, 3, 3)))
	require.Equal(t, []string{"rail tcp:r0#3 to rank 1 failed: cut; continuing on the remaining 3"}, n.after(time.Second))
	require.Equal(t, []string{"rail tcp:r0#3 to rank 1 is back"}, n.event(connectionEvent(railBack, 3, 4)))
	require.Empty(t, n.after(time.Minute))

	require.Empty(t, n.event(connectionEvent(railCut, 2, 3)))
	require.Len(t, n.after(3*time.Second), 1)
	require.Empty(t, n.event(connectionEvent(railCut, 1, 2)))
	require.Empty(t, n.event(connectionEvent(railCut, 4, 1)))
	require.Equal(t, []string{"rail tcp:r0#2 to rank 1 is back"}, n.event(connectionEvent(railBack, 2, 2)), "others are down")
	require.Equal(t, []string{"rail tcp:r0 (2 connections) to rank 1 failed once more in the last minute, the last time because of: cut; it is down"},
		n.after(time.Duration(noticeLasting)))
}

// TestFirstRailOfAnInterfaceTellsThatItHasCome: an interface that was absent at the start is
// reported once.
func TestFirstRailOfAnInterfaceTellsThatItHasCome(t *testing.T) {
	var n railTeller
	come := pml.RailEvent{Peer: 1, Up: true}
	require.Equal(t, []string{"rail tcp:r0 to rank 1 is up, for the first time"}, n.event(connectionEvent(come, 1, 1)))
	require.Empty(t, n.event(connectionEvent(come, 2, 2)))
}

// TestConnectionThatFailsIsToldThoughAnotherIsDown: a connection has been down for minutes. Another
// one fails, and is back a moment later: one has failed, not two.
func TestConnectionThatFailsIsToldThoughAnotherIsDown(t *testing.T) {
	var n railTeller
	require.Empty(t, n.event(connectionEvent(railCut, 2, 3)))
	require.Len(t, n.after(2*time.Minute), 1)
	require.Empty(t, n.after(time.Minute))
	require.Empty(t, n.event(connectionEvent(railCut, 3, 2)))
	require.Equal(t, []string{"rail tcp:r0#3 to rank 1 failed: cut; continuing on the remaining 2"}, n.after(time.Second))
	require.Equal(t, []string{"rail tcp:r0#3 to rank 1 is back"}, n.event(connectionEvent(railBack, 3, 3)))
	require.Empty(t, n.after(time.Minute))
	require.Equal(t, []string{"rail tcp:r0#2 to rank 1 is back"}, n.event(connectionEvent(railBack, 2, 4)))
	require.Empty(t, n.after(time.Minute))
	require.Empty(t, n.rails)
}

// TestReturnIsToldThoughTheOthersStayDown: of three connections that failed together, one comes
// back, then another one, and it fails again.
func TestReturnIsToldThoughTheOthersStayDown(t *testing.T) {
	var n railTeller
	for number := 1; number <= 3; number++ {
		require.Empty(t, n.event(connectionEvent(railCut, number, 3-number)))
	}
	require.Empty(t, n.event(connectionEvent(railBack, 3, 1)))
	require.Equal(t, []string{
		"rail tcp:r0 (3 connections) to rank 1 failed: cut; no other rail there is up: waiting for a rail",
		"rail tcp:r0#3 to rank 1 is back",
	}, n.after(time.Second))
	require.Empty(t, n.event(connectionEvent(railBack, 2, 2)))
	require.Equal(t, []string{"rail tcp:r0#2 to rank 1 is back"}, n.after(time.Second))
	require.Empty(t, n.event(connectionEvent(railCut, 2, 1)))
	require.Equal(t, []string{"rail tcp:r0#2 to rank 1 failed once more in the last minute, the last time because of: cut; it is down"}, n.after(time.Duration(noticeLasting)))
	require.Equal(t, []string{"rail tcp:r0 to rank 1 is back"}, n.event(connectionEvent(railBack, 1, 2)))
}

// TestSparePairDoesNotTellThatTheFailedRailIsUp: two rails of one name lead to different modules of
// the peer.
func TestSparePairDoesNotTellThatTheFailedRailIsUp(t *testing.T) {
	var n railTeller
	require.Empty(t, n.event(railCut))
	require.Len(t, n.after(time.Second), 1)
	spare := pml.RailEvent{Peer: 1, Remote: 1, Up: true, Alternate: true, Left: 1}
	require.Equal(t, []string{"rail tcp:r0 to another port of rank 1 is up"}, n.event(spare))
	other := spare
	other.Remote = 2
	spare.Up, spare.Cause = false, railCut.Cause
	require.Empty(t, n.event(spare))
	require.Len(t, n.after(time.Second), 1)
	require.Equal(t, []string{"rail tcp:r0 to another port of rank 1 is up"}, n.event(other))
	spare.Up, spare.Again = true, true
	require.Equal(t, []string{"rail tcp:r0 to another port of rank 1 is back"}, n.event(spare))
	require.Equal(t, []string{"rail tcp:r0 to rank 1 is back"}, n.event(railBack))
}

// TestConnectionsThatFlapAtOnceAreCounted: connections that fail again before their first failure
// was reported are counted.
func TestConnectionsThatFlapAtOnceAreCounted(t *testing.T) {
	var n railTeller
	for range 3 {
		for number := 1; number <= 2; number++ {
			require.Empty(t, n.event(connectionEvent(railCut, number, 0)))
		}
		require.Empty(t, n.event(connectionEvent(railBack, 1, 1)))
	}
	require.Equal(t, []string{"rail tcp:r0 (2 connections) to rank 1 failed 3 times in the last minute, the last time because of: cut; 1 of them down"}, n.after(time.Second))
}
