package bml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/loop"
)

// A rail that is down is tried again after 5 ms, then after twice as long each time, up to half a
// second; and after 5 ms again once it was up.
func TestRetries(t *testing.T) {
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

// A rail that fails again each time it came back is held down for longer each time, up to half a
// minute, while another one is up. Ten seconds without a failure make up for one failure.
func TestHoldDown(t *testing.T) {
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

// Attempts in vain to come back do not hold a rail down.
func TestHoldDownAfterFailedAttempts(t *testing.T) {
	w := newWatched(t, 100*sec, make([]loop.RailConfig, 2)...)
	require.NoError(t, w.fabric.FailLane(0, 1, 0, loop.Cut{}))
	w.run(5*sec, 0, 1)
	require.Greater(t, len(w.opens), 10)
	require.NoError(t, w.fabric.ReviveLane(0, 1, 0))
	w.until(t, "the rail", w.isUp, 0, 1)
	require.InDelta(t, 20, w.breaks(t, 0)/msec, 3)
}

// A rail that was held down, and then cannot be opened, is tried again as soon as any other.
func TestRetriesAfterHoldDown(t *testing.T) {
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
func TestHoldDownOfTheLastRail(t *testing.T) {
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
func TestProbeNotDelivered(t *testing.T) {
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
	require.Zero(t, rl.device.probes)
}

// A PROBE that was delivered is sent again every two seconds while the peer is busy elsewhere, and
// the incarnation is kept.
func TestProbeNotAnswered(t *testing.T) {
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

// When a device is back, 32 of its rails at most are probed at a time. The others have their turn,
// and no incarnation is given up because it waited.
func TestProbesOfOneDevice(t *testing.T) {
	const most, n = 32, 96
	w := newWire(t, n+1, func(w *wire) { w.mended, w.grace = true, 100*sec })
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
		require.Len(t, w.flying, most, "their time is not over")
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
