package loop

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

var _ progress.Clock = (*Fabric)(nil)

// exact is a virtual rail without jitter: 100 ns, and one byte a nanosecond.
func exact() Config {
	return Config{Ranks: 2, Virtual: true, Slots: 4, Rail: []RailConfig{{
		LatencyNanos: 100, JitterNanos: -1, RetryNanos: 5000, BandwidthMBps: 1000,
	}}}
}

// TestVirtualTime: a fragment takes its bytes over the bandwidth and the latency, the next
// one of the lane begins when it has gone, and the completion comes a latency later.
func TestVirtualTime(t *testing.T) {
	w := newWorld(t, exact())
	a, b := w.nodes[0][0], w.nodes[1][0]
	require.Zero(t, w.f.Now())
	require.True(t, a.send(1, 1000))
	require.True(t, a.send(1, 500))
	require.NotNil(t, b.connect(0))
	require.True(t, b.send(0, 50)) // another lane: is not held up

	at := func(nanos int64, arrivedA, arrivedB, underA int) {
		t.Helper()
		w.f.AdvanceTo(nanos)
		w.turn()
		require.Equal(t, nanos, w.f.Now())
		require.Equal(t, []int{arrivedA, arrivedB, underA}, []int{a.arrived, b.arrived, a.under}, "at %d", nanos)
	}
	at(149, 0, 0, 2)
	at(150, 1, 0, 2)
	at(1099, 1, 0, 2)
	at(1100, 1, 1, 2) // 1000 + 100
	at(1199, 1, 1, 2)
	at(1200, 1, 1, 1) // acknowledged
	at(1599, 1, 1, 1)
	at(1600, 1, 2, 1) // 1000 + 500 + 100
	at(1700, 1, 2, 0)
	_, ok := w.f.Next()
	require.False(t, ok)
	require.False(t, w.f.Advance(), "nothing is left to happen")
	w.f.AdvanceTo(10)
	require.Equal(t, int64(1700), w.f.Now(), "time does not go back")
}

// TestVirtualStandsStill: nothing moves but by Advance.
func TestVirtualStandsStill(t *testing.T) {
	w := newWorld(t, exact())
	a := w.nodes[0][0]
	require.True(t, a.send(1, 100))
	for range 100 {
		require.Zero(t, w.turn())
	}
	next, ok := w.f.Next()
	require.True(t, ok)
	require.True(t, w.f.Advance())
	require.Equal(t, next, w.f.Now())
	require.Equal(t, 1, w.turn())
}

// TestVirtualWindow: no more than Slots operations are under way.
func TestVirtualWindow(t *testing.T) {
	w := newWorld(t, exact())
	a := w.nodes[0][0]
	for range 4 {
		require.True(t, a.send(1, 100))
	}
	require.False(t, a.send(1, 100))
	w.settle()
	require.True(t, a.send(1, 100))
}

// TestVirtualJitter: it makes a difference, and leaves the order of an endpoint alone.
func TestVirtualJitter(t *testing.T) {
	cfg := exact()
	cfg.Slots = 64
	cfg.Rail[0].JitterNanos = 100_000
	cfg.Seed = 3
	w := newWorld(t, cfg)
	a, b := w.nodes[0][0], w.nodes[1][0]
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

// TestVirtualRemote: a Put is in the peer's memory one way after the post and complete
// two ways after; what a Get reads is what was there one way after.
func TestVirtualRemote(t *testing.T) {
	w := newWorld(t, exact())
	a, b := w.nodes[0][0], w.nodes[1][0]
	mine, theirs := []byte("mine"), []byte("them")
	local, err := a.m.(btl.Registrar).Register(mine, btl.AccessLocal)
	require.NoError(t, err)
	remote, err := b.m.(btl.Registrar).Register(theirs, btl.AccessRemoteRead|btl.AccessRemoteWrite)
	require.NoError(t, err)
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

	// What a Get brings after the endpoint has failed does not touch our memory.
	require.NoError(t, ep.(btl.Getter).Get(&btl.Op{Payload: mine, Local: local, Remote: remote.Key(), Done: func(*btl.Op, error) {}}))
	ep.Fail(errTest)
	w.turn()
	require.Equal(t, btl.Drained, ep.State())
	copy(mine, "safe")
	w.settle()
	require.Equal(t, "safe", string(mine))
}

// TestVirtualNoAnswer: a sender whose peer's end has failed learns of it after the time
// that the rail tries.
func TestVirtualNoAnswer(t *testing.T) {
	w := newWorld(t, exact())
	a, b := w.nodes[0][0], w.nodes[1][0]
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
	require.Equal(t, uint64(1), w.f.Stale())
}

// TestSetLoss: what the path loses does not arrive, and fails the endpoint when the rail has tried;
// what it does not lose passes, also in the next incarnation.
func TestSetLoss(t *testing.T) {
	w := newWorld(t, exact())
	a, b := w.nodes[0][0], w.nodes[1][0]
	require.NotNil(t, b.connect(0))
	var asked []Packet
	require.NoError(t, w.f.SetLoss(0, 1, 0, func(p Packet) bool {
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
	require.Len(t, asked, 3, "a link that is mended loses nothing")
}

// TestSetLossOfRemote: reads and writes are told apart from fragments.
func TestSetLossOfRemote(t *testing.T) {
	for _, v := range []verb{put, get} {
		w := newWorld(t, exact())
		a, b := w.nodes[0][0], w.nodes[1][0]
		local, err := a.m.(btl.Registrar).Register([]byte("mine"), btl.AccessLocal)
		require.NoError(t, err)
		theirs := []byte("them")
		remote, err := b.m.(btl.Registrar).Register(theirs, btl.AccessRemoteRead|btl.AccessRemoteWrite)
		require.NoError(t, err)
		require.NoError(t, w.f.SetLoss(0, 1, 0, func(p Packet) bool { return p.Remote }))
		require.True(t, a.send(1, 100))
		var ended error
		mine := []byte("mine")
		op := &btl.Op{Payload: mine, Local: local, Remote: remote.Key(), Done: func(_ *btl.Op, err error) { ended = err }}
		ep := a.connect(1)
		if v == put {
			require.NoError(t, ep.(btl.Putter).Put(op))
		} else {
			require.NoError(t, ep.(btl.Getter).Get(op))
		}
		w.settle()
		require.Equal(t, 1, b.arrived)
		require.Error(t, ended)
		require.Equal(t, []string{"mine", "them"}, []string{string(mine), string(theirs)})
	}
}

// TestAcknowledgedTooLate: once the endpoint is Failed, what is outstanding ends with an
// error, whatever has been heard of it (C4).
func TestAcknowledgedTooLate(t *testing.T) {
	w := newWorld(t, exact())
	a, b := w.nodes[0][0], w.nodes[1][0]
	require.True(t, a.send(1, 100))
	for w.f.Advance() {
	}
	a.eps[1].Fail(errTest)
	w.settle()
	require.Equal(t, 1, b.arrived)
	require.Zero(t, a.under)
	for _, f := range w.sent {
		require.False(t, f.succeeded)
	}
}

// TestTrace: what it says of one fragment, and that it can be ended.
func TestTrace(t *testing.T) {
	w := newWorld(t, exact())
	var trace bytes.Buffer
	w.f.Trace(&trace)
	w.nodes[0][0].send(1, 100)
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
	w.nodes[0][0].send(1, 100)
	w.settle()
	require.Equal(t, length, trace.Len())
}

// TestFreeRunningClock: what belongs to virtual fabrics does nothing to others.
func TestFreeRunningClock(t *testing.T) {
	f, err := NewFabric(Config{Ranks: 2})
	require.NoError(t, err)
	f.Trace(&bytes.Buffer{})
	before := f.Now()
	f.AdvanceTo(1 << 60)
	require.False(t, f.Advance())
	_, ok := f.Next()
	require.False(t, ok)
	require.Less(t, before, int64(1)<<60)
	require.GreaterOrEqual(t, f.Now(), before)
}
