package ibverbs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/progress"
)

const testKeepAlive = 50 * time.Millisecond

// passes makes both ranks progress for some time.
func (w *world) passes(d time.Duration) {
	for end := w.clock.Now() + int64(d); w.clock.Now() < end; {
		w.turn()
	}
}

// requests returns how many work requests the rank's end has posted.
func (r *testRank) requests() int { return int(r.end().sqHead) }

// TestKeepAliveFindsCut: although neither end sends, both detect a cut that no port reports soon
// after the keep-alive time.
func TestKeepAliveFindsCut(t *testing.T) {
	cfg := Config{AckTimeout: 10, RetryCount: 2, KeepAlive: testKeepAlive}
	bothWays(t, cfg, func(t *testing.T, w *world, a, b *testRank) {
		w.cut()
		at := w.clock.Now()
		a.fails(1, btl.ClassPath, btl.SideBoth, verbs.StatusRetryExcErr.Native())
		b.fails(0, btl.ClassPath, btl.SideBoth, verbs.StatusRetryExcErr.Native())
		const retries = 3 * 4096 << 10
		require.Less(t, w.clock.Now()-at, int64(testKeepAlive)+2*retries+2*checkNanos+drainNanos)
		w.heal()
		w.recovers()
	})
}

// TestKeepAliveFindsOneWayCut: a rank that sends nothing detects a cut in either direction without
// the help of its peer.
func TestKeepAliveFindsOneWayCut(t *testing.T) { onEachFabric(t, testKeepAliveFindsOneWayCut) }

func testKeepAliveFindsOneWayCut(t *testing.T, link verbs.LinkLayer) {
	for from := range 2 {
		w, a, b := connectedWorld(t, link, Config{AckTimeout: 10, RetryCount: 2, KeepAlive: testKeepAlive})
		b.m.cfg.KeepAlive = -1
		src, dst := w.ranks[from].m.h.gid.GID, w.ranks[1-from].m.h.gid.GID
		require.True(t, w.f.Partition(src, dst, false))
		a.fails(1, btl.ClassPath, btl.SideBoth, verbs.StatusRetryExcErr.Native())
		w.f.Heal(src, dst)
		w.recovers()
	}
}

// TestKeepAliveDisabled: a negative time disables probing.
func TestKeepAliveDisabled(t *testing.T) { onEachFabric(t, testKeepAliveDisabled) }

func testKeepAliveDisabled(t *testing.T, link verbs.LinkLayer) {
	w, a, b := connectedWorld(t, link, Config{AckTimeout: 10, RetryCount: 2, KeepAlive: -1})
	before := a.requests()
	w.cut()
	w.passes(time.Minute)
	require.Equal(t, before, a.requests())
	require.Empty(t, a.failed)
	require.Empty(t, b.failed)
	w.heal()
	w.works()
}

// TestKeepAliveOfIdleRanks: an idle rank posts one work request in each period, which takes no
// receive or credit of the peer.
func TestKeepAliveOfIdleRanks(t *testing.T) {
	bothWays(t, Config{KeepAlive: testKeepAlive}, func(t *testing.T, w *world, a, b *testRank) {
		type state struct{ credits, controlCredits, posted int }
		of := func(e *endpoint) state { return state{e.credits, e.controlCredits, e.posted} }
		requests, before := [2]int{a.requests(), b.requests()}, [2]state{of(a.end()), of(b.end())}
		const periods = 100
		w.passes(periods * testKeepAlive)
		for i, r := range w.ranks {
			n := r.requests() - requests[i]
			require.LessOrEqual(t, n, periods)
			require.Greater(t, n, periods/3) // a module reads the clock only occasionally
			require.Equal(t, before[i], of(r.end()))
			require.Empty(t, r.failed)
		}
		w.works()
	})
}

// TestKeepAliveOfBusyRanks: no rank probes while fragments arrive or requests are in flight.
func TestKeepAliveOfBusyRanks(t *testing.T) {
	bothWays(t, Config{KeepAlive: testKeepAlive, RecvDepth: 256}, func(t *testing.T, w *world, a, b *testRank) {
		w.turns(100)
		before := [2]int{a.requests(), b.requests()}
		const sent = 60
		for range sent {
			require.NoError(t, a.send("x"))
			w.passes(testKeepAlive / 2)
		}
		require.Equal(t, [2]int{before[0] + sent, before[1]}, [2]int{a.requests(), b.requests()})
		// A send that never completes: nothing else is sent until the deadline.
		a.silence()
		require.NoError(t, a.send("never"))
		w.passes(5 * testKeepAlive)
		require.Equal(t, before[0]+sent+1, a.requests())
		a.ep.Fail(nil)
		w.until("Drained", a.isIdle)
	})
}

// TestKeepAliveWhilePortIsDown: no probe is posted while the port is down.
func TestKeepAliveWhilePortIsDown(t *testing.T) { onEachFabric(t, testKeepAliveWhilePortIsDown) }

func testKeepAliveWhilePortIsDown(t *testing.T, link verbs.LinkLayer) {
	w, a, _ := connectedWorld(t, link, Config{KeepAlive: testKeepAlive, PortGrace: time.Second})
	a.hca.SetLink(1, false)
	w.turns(2 * attendEvery)
	before := a.requests()
	w.passes(5 * testKeepAlive)
	require.Equal(t, before, a.requests())
	a.hca.SetLink(1, true)
	w.passes(2 * testKeepAlive)
	require.Greater(t, a.requests(), before)
	require.Empty(t, a.failed)
	w.works()
}

// TestKeepAliveOfSleepingRank: a rank that sleeps and is not woken probes each time its sleep ends.
func TestKeepAliveOfSleepingRank(t *testing.T) { onEachFabric(t, testKeepAliveOfSleepingRank) }

func testKeepAliveOfSleepingRank(t *testing.T, link verbs.LinkLayer) {
	cfg := Config{AckTimeout: 10, RetryCount: 2, KeepAlive: testKeepAlive, Wakeup: progress.NewChanWakeup()}
	w, a, _ := connectedWorld(t, link, cfg)
	w.cut()
	for range 10 {
		long := a.m.Arm()
		a.m.Progress()
		if long {
			w.clock.skip(100 * time.Millisecond) // the longest sleep
		}
		w.f.Advance()
		a.m.Disarm()
		a.m.Progress()
		if len(a.failed) > 0 {
			break
		}
		w.deliver()
	}
	require.Len(t, a.failed, 1)
	require.Equal(t, verbs.StatusRetryExcErr.Native(), a.failed[0].Native)
}
