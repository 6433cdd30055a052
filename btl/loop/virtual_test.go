package loop

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
	"github.com/mpigo/mpigo/progress"
)

var _ progress.Clock = (*Fabric)(nil)

// exact is a virtual rail without jitter: 100 ns, and one byte a nanosecond.
func exact() Config {
	return Config{Ranks: 2, Virtual: true, Slots: 4, Rail: []RailConfig{{
		LatencyNanos: 100, JitterNanos: -1, RetryNanos: 5000, BandwidthMBps: 1000,
	}}}
}

// TestVirtualTime: a fragment takes its size divided by the bandwidth, and then the latency. The
// next fragment of the lane starts when the first has left. The completion comes one latency after
// the arrival.
func TestVirtualTime(t *testing.T) {
	w, a, b := twoNodes(t, exact())
	require.Zero(t, w.f.Now())
	require.True(t, a.send(1, 1000))
	require.True(t, a.send(1, 500))
	require.NotNil(t, b.connect(0))
	require.True(t, b.send(0, 50)) // by another lane, so it does not wait
	for range 100 {
		require.Zero(t, w.turn(), "progress calls do not move the time")
	}
	next, ok := w.f.Next()
	require.True(t, ok)
	require.Equal(t, int64(150), next)

	at := func(nanos int64, arrivedA, arrivedB, underA int) {
		t.Helper()
		w.f.AdvanceTo(nanos)
		w.turn()
		require.Equal(t, nanos, w.f.Now())
		require.Equal(t, []int{arrivedA, arrivedB, underA}, []int{a.arrived, b.arrived, a.pending}, "at %d", nanos)
	}
	at(149, 0, 0, 2)
	require.True(t, w.f.Advance())
	at(150, 1, 0, 2)
	at(1099, 1, 0, 2)
	at(1100, 1, 1, 2) // 1000 + 100
	at(1199, 1, 1, 2)
	at(1200, 1, 1, 1) // acknowledged
	at(1599, 1, 1, 1)
	at(1600, 1, 2, 1) // 1000 + 500 + 100
	at(1700, 1, 2, 0)
	_, ok = w.f.Next()
	require.False(t, ok)
	require.False(t, w.f.Advance(), "nothing is left to happen")
	w.f.AdvanceTo(10)
	require.Equal(t, int64(1700), w.f.Now(), "time does not go back")
}

// TestVirtualWindow: at most Slots operations of an endpoint are outstanding.
func TestVirtualWindow(t *testing.T) {
	w, a, _ := twoNodes(t, exact())
	for range 4 {
		require.True(t, a.send(1, 100))
	}
	require.False(t, a.send(1, 100))
	w.settle()
	require.True(t, a.send(1, 100))
}

// TestVirtualJitter: the jitter changes the times of arrival, and keeps the order of an endpoint.
func TestVirtualJitter(t *testing.T) {
	cfg := exact()
	cfg.Slots = 64
	cfg.Rail[0].JitterNanos = 100_000
	cfg.Seed = 3
	w, a, b := twoNodes(t, cfg)
	waits := map[int64]bool{}
	for range 60 {
		require.True(t, a.send(1, 100))
	}
	last := int64(0)
	for w.f.Advance() {
		before := b.arrived
		w.turn()
		if b.arrived > before {
			waits[w.f.Now()-last] = true
			last = w.f.Now()
		}
	}
	require.Equal(t, 60, b.arrived)
	require.Greater(t, len(waits), 3)
}

// TestVirtualRemote: a Put is in the peer's memory one latency after the post, and completes after
// another latency. A Get reads the bytes that are there one latency after the post.
func TestVirtualRemote(t *testing.T) {
	w, a, b := twoNodes(t, exact())
	mine, theirs := []byte("mine"), []byte("them")
	local, remote := a.register(mine, btl.AccessLocal), b.register(theirs, forPeers)
	done := 0
	op := &btl.Op{Payload: mine, Local: local, Remote: remote.Key(), Done: func(_ *btl.Op, err error) {
		require.NoError(t, err)
		done++
	}}
	ep := a.connect(1)
	require.NoError(t, ep.(btl.Putter).Put(op))
	w.f.AdvanceTo(103)
	w.turn()
	require.Equal(t, "them", string(theirs))
	w.f.AdvanceTo(104)
	w.turn()
	require.Equal(t, "mine", string(theirs))
	require.Zero(t, done)
	w.f.AdvanceTo(204)
	require.Zero(t, done)
	w.turn()
	require.Equal(t, 1, done)

	require.NoError(t, ep.(btl.Getter).Get(op))
	copy(theirs, "then")
	w.f.AdvanceTo(304)
	copy(theirs, "late")
	w.f.AdvanceTo(407)
	w.turn()
	require.Equal(t, "mine", string(mine))
	w.f.AdvanceTo(408) // the way back of four bytes
	w.turn()
	require.Equal(t, "then", string(mine))
	require.Equal(t, 2, done)

	// After the endpoint has failed, bytes that a Get has read do not reach local memory.
	op.Done = func(*btl.Op, error) {}
	require.NoError(t, ep.(btl.Getter).Get(op))
	ep.Fail(errTest)
	w.turn()
	require.Equal(t, btl.Drained, ep.State())
	copy(mine, "safe")
	w.settle()
	require.Equal(t, "safe", string(mine))
}

// TestVirtualNoAnswer: an endpoint that sends to a failed end fails after the rail's retries.
func TestVirtualNoAnswer(t *testing.T) {
	w, a, b := twoNodes(t, exact())
	require.NotNil(t, b.connect(0))
	require.NotNil(t, a.connect(1))
	b.eps[0].Fail(errTest)
	w.turn()
	require.True(t, a.send(1, 100))
	w.f.AdvanceTo(5199)
	w.turn()
	require.Equal(t, btl.Up, a.eps[1].State())
	w.f.AdvanceTo(5200) // 100 + 100 + 5000
	w.turn()
	require.Equal(t, btl.Drained, a.eps[1].State())
	require.Zero(t, b.arrived)
	require.Equal(t, 1, a.inner.Stale)
}

// TestSetLoss: a lost packet does not arrive, and the endpoint fails after the rail's retries.
// Other packets pass, also in the next incarnation.
func TestSetLoss(t *testing.T) {
	w, a, b := twoNodes(t, exact())
	require.NotNil(t, b.connect(0))
	var asked []Packet
	require.NoError(t, w.f.SetLoss(Port{0, 0}, Port{1, 0}, func(p Packet) bool {
		asked = append(asked, p)
		return p.Bytes > 100
	}))
	require.True(t, a.send(1, 100))
	require.True(t, a.send(1, 101))
	w.f.AdvanceTo(5300) // 100 + 101 + 100 + 5000 − 1
	w.turn()
	require.Equal(t, 1, b.arrived)
	require.Equal(t, btl.Up, a.eps[1].State())
	w.f.AdvanceTo(5301)
	w.turn()
	require.Equal(t, btl.Drained, a.eps[1].State())
	require.Equal(t, []Packet{{From: 0, To: 1, Bytes: 100}, {From: 0, To: 1, Bytes: 101}}, asked)

	b.eps[0].Fail(errTest)
	w.settle()
	require.True(t, a.send(1, 100))
	w.settle()
	require.Equal(t, 2, b.arrived)
	require.NoError(t, w.f.ReviveLane(0, 1, 0))
	require.True(t, a.send(1, 101))
	w.settle()
	require.Equal(t, 3, b.arrived)
	require.Len(t, asked, 3, "a revived link loses nothing")
}

// TestSetLossOfRemote: a path can lose remote reads and writes, and still pass fragments.
func TestSetLossOfRemote(t *testing.T) {
	for _, v := range []verb{put, get} {
		w, a, b := twoNodes(t, exact())
		mine, theirs := []byte("mine"), []byte("them")
		local, remote := a.register(mine, btl.AccessLocal), b.register(theirs, forPeers)
		require.NoError(t, w.f.SetLoss(Port{0, 0}, Port{1, 0}, func(p Packet) bool { return p.Remote }))
		require.True(t, a.send(1, 100))
		var ended error
		op := &btl.Op{Payload: mine, Local: local, Remote: remote.Key(), Done: func(_ *btl.Op, err error) { ended = err }}
		post := a.connect(1).(btl.Putter).Put
		if v == get {
			post = a.eps[1].(btl.Getter).Get
		}
		require.NoError(t, post(op))
		w.settle()
		require.Equal(t, 1, b.arrived)
		require.Equal(t, btl.ClassPath, btltest.AsError(t, ended).Class)
		require.Equal(t, []string{"mine", "them"}, []string{string(mine), string(theirs)})
	}
}

// TestAcknowledgementAfterFailure: outstanding operations of a Failed endpoint end with an error,
// even if an acknowledgement has come (C4).
func TestAcknowledgementAfterFailure(t *testing.T) {
	w, a, b := twoNodes(t, exact())
	require.True(t, a.send(1, 100))
	for w.f.Advance() {
	}
	a.eps[1].Fail(errTest)
	w.settle()
	require.Equal(t, 1, b.arrived)
	require.Zero(t, a.pending)
	for _, f := range w.sent {
		require.False(t, f.succeeded)
	}
}

// TestTrace: the trace has all events of a fragment, and can be ended.
func TestTrace(t *testing.T) {
	w, a, _ := twoNodes(t, exact())
	var trace bytes.Buffer
	w.f.Trace(&trace)
	a.send(1, 100)
	w.settle()
	require.Equal(t, strings.TrimLeft(`
0 connect loop0 0>1 epoch 1
0 post loop0 0>1 epoch 1 send tag 100 bytes 100
200 deliver loop0 0>1 epoch 1 send
200 arrive loop0 0>1 epoch 1 tag 100 bytes 100
300 complete loop0 0>1 epoch 1
`, "\n"), trace.String())
	w.f.Trace(nil)
	length := trace.Len()
	a.send(1, 100)
	w.settle()
	require.Equal(t, length, trace.Len())
}

// TestFreeRunningClock: calls for virtual fabrics do nothing on a free-running fabric.
func TestFreeRunningClock(t *testing.T) {
	f := newSides(t, Config{})[0].mod.f
	f.Trace(&bytes.Buffer{})
	before := f.Now()
	f.AdvanceTo(1 << 60)
	require.False(t, f.Advance())
	_, ok := f.Next()
	require.False(t, ok)
	require.Less(t, before, int64(1)<<60)
	require.GreaterOrEqual(t, f.Now(), before)
}
