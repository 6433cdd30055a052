package bml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/loop"
)

// A rail that is down is tried again after 5 ms, then after twice as long each time, up to half a
// second; and after 5 ms again once it was up.
func TestDownRailIsRetriedWithLongerPauses(t *testing.T) {
	w := newWatched(t, 100*sec, loop.RailConfig{})
	w.shut = true
	var pauses []int64
	pauses = append(pauses, w.breaks(t, 0))
	for range 9 {
		n := len(w.opens)
		pauses = append(pauses, w.until(t, "a try", func() bool { return len(w.opens) > n }, 0, 1))
	}
	require.Equal(t, []int64{6, 10, 20, 40, 80, 160, 320, 500, 500, 500}, millis(pauses))
	w.shut = false
	w.until(t, "the rail", w.isUp, 0, 1)
	require.EqualValues(t, 6, w.breaks(t, 0)/msec)
}

// A rail that keeps failing after it comes back is held down for longer each time, up to half a
// minute, while another rail is up. Ten seconds without a failure make up for one failure.
func TestRailThatFailsOftenIsHeldDown(t *testing.T) {
	w := newWatched(t, 100*sec, make([]loop.RailConfig, 2)...)
	back := func() { w.until(t, "the rail", w.isUp, 0, 1) }
	var pauses []int64
	for range 15 {
		pauses = append(pauses, w.breaks(t, 0))
		back()
	}
	for i, want := range []int64{5, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10_240, 20_480, 30_000, 30_000, 30_000} {
		require.InDelta(t, want, pauses[i]/msec, 3, "%v", millis(pauses))
	}
	flaps := w.pr.rails[0].recovery.flaps
	require.Equal(t, 15, flaps)
	w.run(35*sec, 0, 1)
	pause := w.breaks(t, 0)
	require.Equal(t, flaps-3+1, w.pr.rails[0].recovery.flaps)
	require.InDelta(t, 30_000, pause/msec, 3)
	back()
	w.run(200*sec, 0, 1) // makes up for all of them, and no more
	for _, want := range []int64{5, 20, 40} {
		pause = w.breaks(t, 0)
		back()
		require.InDelta(t, want, pause/msec, 3)
	}
}

// Failed attempts to come back do not hold a rail down.
func TestFailedAttemptsDoNotHoldRailDown(t *testing.T) {
	w := newWatched(t, 100*sec, make([]loop.RailConfig, 2)...)
	require.NoError(t, w.fabric.FailLane(0, 1, 0, loop.Cut{}))
	w.run(5*sec, 0, 1)
	require.Greater(t, len(w.opens), 10)
	require.NoError(t, w.fabric.ReviveLane(0, 1, 0))
	w.until(t, "the rail", w.isUp, 0, 1)
	require.InDelta(t, 20, w.breaks(t, 0)/msec, 3)
}

// A rail that was held down, and cannot be opened then, is tried again as soon as any other.
func TestHeldDownRailIsRetriedAsAnyOther(t *testing.T) {
	w := newWatched(t, 100*sec, make([]loop.RailConfig, 2)...)
	for range 8 {
		w.breaks(t, 0)
		w.until(t, "the rail", w.isUp, 0, 1)
	}
	w.shut = true
	pauses := []int64{w.breaks(t, 0)}
	for range 3 {
		n := len(w.opens)
		pauses = append(pauses, w.until(t, "a try", func() bool { return len(w.opens) > n }, 0, 1))
	}
	require.InDelta(t, 2560, pauses[0]/msec, 3)
	require.Equal(t, []int64{20, 40}, millis(pauses[2:]), "the peer asks in between")
}

// No rail is held down while no other one is up.
func TestLastRailIsNotHeldDown(t *testing.T) {
	w := newWatched(t, 100*sec, make([]loop.RailConfig, 2)...)
	for range 12 {
		w.breaks(t, 0)
		w.until(t, "the rail", w.isUp, 0, 1)
	}
	n := len(w.opens)
	w.pr.rails[0].endpoint.Fail(sideError(btl.SideRemote))
	w.run(100*msec, 0, 1)
	require.Len(t, w.opens, n, "it is not held down")
	w.pr.rails[1].endpoint.Fail(sideError(btl.SideRemote))
	pause := w.until(t, "the next incarnation", func() bool { return len(w.opens) > n }, 0, 1)
	require.EqualValues(t, 6, pause/msec)
}

// An incarnation whose PROBE is not delivered within two seconds is given up. Until then no second
// PROBE is posted.
func TestUndeliveredProbeEndsIncarnation(t *testing.T) {
	w := newWatched(t, 100*sec, loop.RailConfig{})
	w.breaks(t, 0)
	w.until(t, "the rail", w.isUp, 0, 1)
	w.modules[0][0].(btl.Injector).Inject(btl.Fault{Kind: btl.FaultSilence, Peer: 1, Count: 1})
	w.probes = nil
	w.breaks(t, 0)
	rl := &w.pr.rails[0]
	require.Equal(t, railProbing, rl.state)
	took := w.until(t, "the end of the incarnation", func() bool { return rl.state != railProbing }, 0)
	require.InDelta(t, 2000, took/msec, 15)
	require.Len(t, w.probes, 1)
	w.until(t, "the rail", w.isUp, 0, 1)
	require.Zero(t, rl.own.probes)
}

// A PROBE that was delivered is sent again every two seconds while the peer is busy elsewhere, and
// the incarnation is kept.
func TestUnansweredProbeIsSentAgain(t *testing.T) {
	w := newWatched(t, 5*sec, loop.RailConfig{})
	w.pr.rails[0].endpoint.Fail(sideError(btl.SideRemote))
	w.run(21*sec, 0)
	require.Len(t, w.opens, 1)
	require.Equal(t, railProbing, w.pr.rails[0].state)
	require.Len(t, w.probes, 12)
	require.EqualValues(t, 200, (w.probes[1]-w.probes[0])/msec, "the peer may not have been ready")
	for i := 2; i < len(w.probes); i++ {
		require.InDelta(t, 2000, (w.probes[i]-w.probes[i-1])/msec, 2)
	}
	require.NoError(t, w.pr.Err(), "the peer is lost, though it is only busy for longer than the grace time")
	w.until(t, "the rail", w.isUp, 0, 1)
}

// When a device is back, at most 32 of its rails are probed at a time. The others follow, and no
// incarnation ends because it had to wait.
func TestProbesOfOneDeviceAreBounded(t *testing.T) {
	const most, n = 32, 96
	w := newWire(t, n+1, mended, withGrace(100*sec))
	b := w.ranks[0].BML
	w.ranks = w.ranks[:1] // the peers do not answer
	for rank := 1; rank <= n; rank++ {
		require.NoError(t, b.Resolve(b.Peer(rank)))
	}
	w.rails[0][0].lose(btl.AllPeers, pathError(0))
	w.pass(10 * msec)
	seen := map[int]bool{}
	for rounds := 0; len(seen) < n; rounds++ {
		require.Less(t, rounds, 6)
		require.Len(t, w.flying, most)
		w.pass(sec)
		require.Len(t, w.flying, most, "a probe is repeated or given up too early")
		for _, f := range w.flying {
			require.Equal(t, TagProbe, f.tag)
			seen[f.to] = true
			w.end(f, nil)
		}
		w.flying = nil
		w.pass(250 * msec)
	}
	for rank := 1; rank <= n; rank++ {
		require.Equal(t, railProbing, b.Peer(rank).rails[0].state)
		require.EqualValues(t, 2, b.Peer(rank).rails[0].endpoint.Epoch(), "the incarnation is given up, though it waited for its turn")
	}
}

// The bounds of the waiting times hold however often a rail was tried or failed.
func TestWaitIsBounded(t *testing.T) {
	for _, c := range []struct {
		attempts, flaps int
		want            int64
	}{{100, 0, 500}, {0, 100, 30_000}, {100, 100, 500}} {
		w, _, pr := newDeferredWire(t)
		rc := &pr.rails[0].recovery
		rc.attempts, rc.flaps = c.attempts, c.flaps
		w.rails[0][0].lose(1, pathError(0))
		w.pass((c.want - 2) * msec)
		require.Zero(t, w.rails[0][0].opened, "%+v", c)
		w.pass(4 * msec)
		require.Equal(t, 1, w.rails[0][0].opened, "%+v", c)
	}
}

// A rail without Reopen stays down.
func TestRailWithoutReopenStaysDown(t *testing.T) {
	w := newWire(t, 2, withRails(2))
	resolve(w)
	w.rails[0][0].lose(1, pathError(0))
	w.pass(sec)
	require.Equal(t, railDown, w.ranks[0].Peer(1).rails[0].state)
	require.Zero(t, w.rails[0][0].opened)
}

// A spare rail is not opened while a rail of an earlier tier is up, and is opened then.
func TestSpareRailIsOpenedWhenNeeded(t *testing.T) {
	w := newWire(t, 2, withRails(2), mended, withGrace(10*sec), withRoutes(func(all []Route) {
		all[1].Tier, all[1].Endpoint = 1, nil
	}))
	resolve(w)
	w.pass(sec)
	require.Zero(t, w.rails[1][0].opened)
	require.Equal(t, PeerUp, w.ranks[0].Peer(1).State())
	w.rails[0][0].fail(1, pathError(0))
	w.pass(6 * msec)
	require.Equal(t, 1, w.rails[1][0].opened)
}

// An endpoint that is not up when it is made does not count as an incarnation.
func TestReopenedEndpointThatIsDownIsNotUsed(t *testing.T) {
	w, _, pr := newDeferredWire(t)
	rl := &pr.rails[0]
	reopen := rl.reopen
	rl.reopen = func() (btl.Endpoint, error) {
		ep, err := reopen()
		ep.(*wireEndpoint).state = btl.Drained
		return ep, err
	}
	w.rails[0][0].lose(1, pathError(0))
	w.pass(6 * msec)
	require.Equal(t, railDown, rl.state)
	require.EqualValues(t, 1, rl.endpoint.Epoch())
	rl.reopen = reopen
	w.pass(10 * msec)
	require.Equal(t, railProbing, rl.state)
}

// The next incarnation is used for remote access too, and its module does not count as failed.
func TestReopenedEndpointIsUsed(t *testing.T) {
	w, r, pr := newDeferredWire(t)
	rl := &pr.rails[0]
	w.rails[0][0].fail(btl.AllPeers, pathError(0))
	w.rails[0][0].drain(btl.AllPeers)
	require.True(t, r.HasFallen())
	w.pass(6 * msec)
	require.False(t, r.HasFallen())
	require.EqualValues(t, 2, rl.endpoint.Epoch())
	require.Same(t, rl.endpoint, rl.getter)
	require.Same(t, rl.endpoint, rl.putter)
}

// A PROBE is as long as the longest fragment, and goes only by its own rail.
func TestProbeIsAsLongAsTheLongestFragment(t *testing.T) {
	w, _, _ := newDeferredWire(t)
	w.rails[0][0].lose(1, pathError(0))
	w.flying = nil
	w.pass(6 * msec)
	f := w.flying[0]
	require.Equal(t, TagProbe, f.tag)
	require.Zero(t, f.rail)
	require.Len(t, f.frag, 128)
	require.NoError(t, new(railHeader).decode(f.frag, testVersion))
}

// A rank that joins the peer's incarnation answers. It probes too if its answer is not delivered in
// time.
func TestProbedRankProbesToo(t *testing.T) {
	w, _, pr := newDeferredWire(t)
	w.rails[0][0].lose(1, pathError(0))
	w.flying = nil
	w.ranks[0].Arrived(w.rails[0][0], 1, TagProbe, railMessage(railHeader{epoch: 2}))
	require.Len(t, w.on(TagProbeAck), 1)
	require.Empty(t, w.on(TagProbe))
	w.pass(199 * msec)
	require.Empty(t, w.on(TagProbe))
	w.pass(3 * msec)
	require.Len(t, w.on(TagProbe), 1)
	require.Equal(t, railProbing, pr.rails[0].state)
	w.end(w.on(TagProbeAck)[0], nil)
	require.Equal(t, railUp, pr.rails[0].state)
}

// A rail that fails while it is probed is not probed any more.
func TestFailedRailIsNotProbed(t *testing.T) {
	w, _, pr := newDeferredWire(t)
	w.rails[0][0].lose(1, pathError(0))
	w.pass(6 * msec)
	w.rails[0][0].fail(1, pathError(0))
	w.rails[0][0].take(1)
	w.pass(300 * msec)
	require.Nil(t, pr.rails[0].recovery.timer)
	require.Empty(t, w.on(TagProbe))
}

// An incarnation ends after two seconds without an answer, even if its PROBE was the last that the
// device has room for, or ended with an error that is no evidence against the rail.
func TestProbesInVainEndIncarnations(t *testing.T) {
	const most = maxModuleProbes
	w := newWire(t, most+1, mended, withGrace(100*sec))
	b := w.ranks[0].BML
	w.ranks = w.ranks[:1]
	for rank := 1; rank <= most; rank++ {
		require.NoError(t, b.Resolve(b.Peer(rank)))
	}
	w.rails[0][0].lose(btl.AllPeers, pathError(0))
	w.pass(10 * msec)
	require.Len(t, w.on(TagProbe), most)
	wrong := w.flying[0]
	w.flying = w.flying[1:]
	w.end(wrong, &btl.Error{Class: btl.ClassUsage})
	w.pass(2200 * msec)
	for rank := 1; rank <= most; rank++ {
		require.Equal(t, railFailing, b.Peer(rank).rails[0].state, "rank %d", rank)
		require.Equal(t, &btl.Error{Rail: "wire0", Peer: rank, Class: btl.ClassTimeout, Native: "PROBE"},
			w.rails[0][0].endpoints[rank].cause)
	}
}

// Probes and answers do nothing if they are not about the present incarnation of the rail by which
// they came.
func TestProbesOfOtherIncarnationsHaveNoEffect(t *testing.T) {
	w, _, pr := newDeferredWire(t)
	rl := &pr.rails[0]
	w.rails[0][0].lose(1, pathError(0))
	w.pass(6 * msec)
	require.Equal(t, railProbing, rl.state)
	w.flying = nil
	for _, c := range []struct {
		by  int
		tag btl.Tag
		h   railHeader
	}{
		{0, TagProbe, railHeader{epoch: 1}},
		{0, TagProbe, railHeader{epoch: 3}},
		{1, TagProbe, railHeader{epoch: 2}}, // not by the rail that it is about
		{0, TagProbe, railHeader{sender: 7, receiver: 7, epoch: 2}},
		{0, TagProbeAck, railHeader{epoch: 1}},
		{0, TagProbeAck, railHeader{epoch: 3}},
		{1, TagProbeAck, railHeader{epoch: 2}},
		{0, TagProbeAck, railHeader{sender: 7, receiver: 7, epoch: 2}},
	} {
		w.arrive(c.by, 1, 0, c.tag, railMessage(c.h))
		require.Equal(t, railProbing, rl.state, "%+v", c)
		require.Empty(t, w.flying, "%+v", c)
	}
	w.arrive(0, 1, 0, TagProbeAck, railMessage(railHeader{epoch: 2}))
	require.Equal(t, railUp, rl.state)
	w.arrive(0, 1, 0, TagProbeAck, railMessage(railHeader{epoch: 2})) // once more
	require.Equal(t, railUp, rl.state)

	w.rails[0][0].fail(1, pathError(0))
	w.flying = nil
	w.arrive(0, 1, 0, TagProbe, railMessage(railHeader{epoch: 2})) // while it drains
	require.Empty(t, w.flying)
}

// A PROBEACK puts no rail in use if it was not delivered, or if its rail has failed in between.
func TestLateProbeAckPutsNoRailInUse(t *testing.T) {
	for name, until := range map[string]func(w *wire, f flight){
		"not delivered":             func(w *wire, f flight) { w.end(f, &btl.Error{Class: btl.ClassUsage}) },
		"delivered after a failure": func(w *wire, f flight) { w.rails[0][0].fail(1, pathError(0)); w.end(f, nil) },
		"of an incarnation before": func(w *wire, f flight) {
			w.rails[0][0].fail(1, pathError(0))
			w.rails[0][0].drain(1)
			w.pass(20 * msec)
			require.EqualValues(t, 3, w.ranks[0].Peer(1).rails[0].endpoint.Epoch())
			w.end(f, nil)
		},
	} {
		w, _, pr := newDeferredWire(t)
		w.rails[0][0].lose(1, pathError(0))
		w.flying = nil
		w.ranks[0].Arrived(w.rails[0][0], 1, TagProbe, railMessage(railHeader{epoch: 2}))
		f := w.on(TagProbeAck)[0]
		w.flying = nil
		until(w, f)
		require.NotEqual(t, railUp, pr.rails[0].state, name)
	}
}

// A rail fails while no rail is up. RAILDOWN goes when another rail is up.
func TestRailDownIsSentLater(t *testing.T) {
	w, _, pr := newDeferredWire(t)
	for i, rail := range w.rails {
		rail[0].fail(1, pathError(i))
	}
	require.Empty(t, w.on(TagRailDown)[1:], "a RAILDOWN about the first rail")
	require.True(t, pr.rails[1].recovery.isUntold)
	for _, rail := range w.rails {
		rail[0].drain(1)
	}
	w.flying = nil
	returns(0)(w)
	require.False(t, pr.rails[1].recovery.isUntold)
	var frags [][]byte
	for _, f := range w.on(TagRailDown) {
		require.Zero(t, f.rail)
		frags = append(frags, f.frag)
	}
	require.Equal(t, [][]byte{ // the one about rail 0 waited for a rail
		railMessage(railHeader{sender: 1, receiver: 1, epoch: 1}), railMessage(railHeader{sender: 0, receiver: 0, epoch: 1}),
	}, frags)
	returns(1)(w)
	require.Len(t, w.on(TagRailDown), 2)
	require.False(t, pr.AwaitsPath())
}

// No RAILDOWN is sent for a rail that has come back, and only one for each rail.
func TestRailDownIsSentOnce(t *testing.T) {
	w, _, pr := newGraceWire(t, 3, 10*sec)
	w.rails[2][0].lose(1, pathError(2))
	w.end(w.rails[0][0].take(1)[0], nil) // RAILDOWN about rail 2
	w.rails[1][0].lose(1, pathError(1))
	w.end(w.rails[0][0].take(1)[0], nil) // RAILDOWN about rail 1
	w.rails[0][0].lose(1, pathError(0))
	require.True(t, pr.rails[0].recovery.isUntold)
	require.Empty(t, w.flying)
	returns(0)(w)
	require.Empty(t, w.on(TagRailDown))
	returns(1)(w)
	require.Empty(t, w.on(TagRailDown))
}

// When an incarnation is given up because its PROBE is not delivered, no timer of it is left.
func TestGivenUpIncarnationHasNoTimer(t *testing.T) {
	w, _, pr := newGraceWire(t, 3, 10*sec)
	w.mended = true
	rl := &pr.rails[0]
	w.rails[0][0].lose(1, pathError(0))
	for n := 0; rl.recovery.probes <= maxProbes; n++ {
		require.Less(t, n, 10_000)
		w.pass(msec)
	}
	require.Equal(t, railFailing, rl.state)
	require.Nil(t, rl.recovery.timer)
}
