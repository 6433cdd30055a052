package ibverbs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/progress"
)

const testKeepAlive = 50 * time.Millisecond

// silence cuts the path between both ranks both ways. No port reports it.
func (w *world) silence() {
	w.t.Helper()
	require.True(w.t, w.f.Partition(w.ranks[0].m.h.gid.GID, w.ranks[1].m.h.gid.GID, true))
}

func (w *world) speak() { w.f.Heal(w.ranks[0].m.h.gid.GID, w.ranks[1].m.h.gid.GID) }

// passes drives both ranks for so long.
func (w *world) passes(d time.Duration) {
	for end := w.clock.Now() + int64(d); w.clock.Now() < end; {
		w.turn()
	}
}

// tries is how many work requests an end has posted.
func (r *rankOf) tries() int { return int(r.end().sqHead) }

// TestSilentCut: a cut that no port reports is noticed by both ends, though neither sends, soon
// after the time of the keep-alive.
func TestSilentCut(t *testing.T) { eachWay(t, testSilentCut) }

func testSilentCut(t *testing.T, way func(Config) Config) {
	w := newWorld(t, way(Config{AckTimeout: 10, RetryCount: 2, KeepAlive: testKeepAlive}))
	w.begin()
	w.silence()
	at := w.clock.Now()
	for i, r := range w.ranks {
		r.fails(1-i, btl.ClassPath, btl.SideBoth, verbs.StatusRetryExcErr.Native())
	}
	const retries = 3 * 4096 << 10
	require.Less(t, w.clock.Now()-at, int64(testKeepAlive)+2*retries+2*checkNanos+drainNanos)
	w.speak()
	w.mend()
}

// TestHalfOpenWait: who waits finds out alone when what it would send is lost; and when what it is
// sent is, as no answer comes.
func TestHalfOpenWait(t *testing.T) {
	for from := range 2 {
		w := newWorld(t, Config{AckTimeout: 10, RetryCount: 2, KeepAlive: testKeepAlive})
		w.begin()
		w.ranks[1].m.cfg.KeepAlive = -1
		a, b := w.ranks[from].m.h.gid.GID, w.ranks[1-from].m.h.gid.GID
		require.True(t, w.f.Partition(a, b, false))
		w.ranks[0].fails(1, btl.ClassPath, btl.SideBoth, verbs.StatusRetryExcErr.Native())
		w.f.Heal(a, b)
		w.mend()
	}
}

// TestKeepAliveOff: a negative time is none.
func TestKeepAliveOff(t *testing.T) {
	w := newWorld(t, Config{AckTimeout: 10, RetryCount: 2, KeepAlive: -1})
	w.begin()
	before := w.ranks[0].tries()
	w.silence()
	w.passes(time.Minute)
	require.Equal(t, before, w.ranks[0].tries())
	for _, r := range w.ranks {
		require.Empty(t, r.failed)
	}
	w.speak()
	w.works()
}

// TestKeepAliveCosts: it takes one work request a period of who is idle, and nothing of the peer.
func TestKeepAliveCosts(t *testing.T) { eachWay(t, testKeepAliveCosts) }

func testKeepAliveCosts(t *testing.T, way func(Config) Config) {
	w := newWorld(t, way(Config{KeepAlive: testKeepAlive}))
	w.begin()
	type state struct{ credits, notes, posted int }
	of := func(e *endpoint) state { return state{e.credits, e.controlCredits, e.posted} }
	var tried [2]int
	var before [2]state
	for i, r := range w.ranks {
		tried[i], before[i] = r.tries(), of(r.end())
	}
	const periods = 100
	w.passes(periods * testKeepAlive)
	for i, r := range w.ranks {
		n := r.tries() - tried[i]
		require.LessOrEqual(t, n, periods)
		require.Greater(t, n, periods/3) // a module looks at the clock now and then
		require.Equal(t, before[i], of(r.end()))
		require.Empty(t, r.failed)
	}
	w.works()
}

// TestKeepAliveWhileBusy: what comes in, and what is under way, shows that a way leads there.
func TestKeepAliveWhileBusy(t *testing.T) { eachWay(t, testKeepAliveWhileBusy) }

func testKeepAliveWhileBusy(t *testing.T, way func(Config) Config) {
	w := newWorld(t, way(Config{KeepAlive: testKeepAlive, RecvDepth: 256}))
	w.begin()
	w.turns(100)
	a, b := w.ranks[0], w.ranks[1]
	tries := [2]int{a.tries(), b.tries()}
	const sent = 60
	for range sent {
		require.NoError(t, a.send("x"))
		w.passes(testKeepAlive / 2)
	}
	require.Equal(t, [2]int{tries[0] + sent, tries[1]}, [2]int{a.tries(), b.tries()})
	// A device that does not say what became of a send: nothing else is sent until the deadline.
	a.hca.Inject(simhca.Fault{Kind: simhca.FaultSilence, QPN: a.end().qpn})
	require.NoError(t, a.send("never"))
	w.passes(5 * testKeepAlive)
	require.Equal(t, tries[0]+sent+1, a.tries())
	a.ep.Fail(nil)
	w.until("Drained", func() bool { return a.under == 0 })
}

// TestKeepAliveWhileDown: nothing is posted while the port is down.
func TestKeepAliveWhileDown(t *testing.T) {
	w := newWorld(t, Config{KeepAlive: testKeepAlive, PortGrace: time.Second})
	w.begin()
	a := w.ranks[0]
	a.hca.SetLink(1, false)
	w.turns(2 * lookEvery)
	before := a.tries()
	w.passes(5 * testKeepAlive)
	require.Equal(t, before, a.tries())
	a.hca.SetLink(1, true)
	w.passes(2 * testKeepAlive)
	require.Greater(t, a.tries(), before)
	require.Empty(t, a.failed)
	w.works()
}

// TestKeepAliveOfSleepers: a rank that sleeps on its bell, and is woken by nothing, looks each time
// its sleep ends.
func TestKeepAliveOfSleepers(t *testing.T) {
	bell := progress.NewChanWakeup()
	w := newWorld(t, Config{AckTimeout: 10, RetryCount: 2, KeepAlive: testKeepAlive, Wakeup: bell})
	w.begin()
	w.silence()
	a := w.ranks[0]
	for range 10 {
		long := a.m.Arm()
		a.m.Progress()
		if long {
			*w.clock.extra += int64(100 * time.Millisecond) // the longest sleep
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
