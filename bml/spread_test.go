package bml

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/loop"
)

// ticks has n busy ticks, in which so many bytes are delivered with and without the spread. It
// returns in how many of them the spread was on.
func (s *spread) ticks(n int, off, on int64) (were int) {
	for range n {
		bytes := off
		if s.isOn {
			bytes = on
			were++
		}
		s.wanted = busySends
		s.tick(s.before+bytes, tickPeriod)
	}
	return were
}

// Messages go by several rails if more is delivered then.
func TestSpreadThatGains(t *testing.T) {
	var s spread
	require.GreaterOrEqual(t, s.ticks(100, 100, 200), 90)
	require.True(t, s.isOn)
	require.LessOrEqual(t, s.ticks(200, 100, 50), 20, "it does not end when it gains nothing any more")
	require.False(t, s.isOn)
}

// A way that gains nothing is tried ever more seldom.
func TestSpreadThatLoses(t *testing.T) {
	var s spread
	require.Equal(t, 4, s.ticks(100, 100, 110))
	require.InDelta(t, 5, s.ticks(1000, 100, 50), 1)
	require.False(t, s.isOn)
}

// A tick with few messages says nothing, and one that took longer says how much it delivered for
// its length.
func TestSpreadOfIdleAndLateTicks(t *testing.T) {
	var s spread
	require.Zero(t, s.ticks(firstSpread, 100, 200))
	require.True(t, s.isTrial)
	s.wanted = busySends - 1
	s.tick(s.before+1000, tickPeriod)
	require.False(t, s.isOn || s.isTrial)
	require.Zero(t, s.ticks(1, 100, 200))
	require.True(t, s.isTrial)
	s.wanted = busySends
	s.tick(s.before+400, 4*tickPeriod)
	require.False(t, s.isOn, "100 bytes a tick are no gain")
}

// What a tick makes of the spread. It delivers so many bytes a second.
func TestTicksOfSpread(t *testing.T) {
	busy := func(s spread) spread { s.wanted, s.before = busySends, 500; return s }
	for name, c := range map[string]struct {
		before spread
		rate   int64
		want   spread
	}{
		"idle":          {spread{wanted: busySends - 1, before: 500, rate: 1000, left: 3, wait: 8}, 9000, spread{rate: 1000, left: 3, wait: 8}},
		"idle, on":      {spread{isOn: true, before: 500, rate: 1000, left: 3, wait: 8}, 9000, spread{isOn: true, rate: 1000, left: 3, wait: 8}},
		"idle trial":    {spread{isOn: true, isTrial: true, before: 500, rate: 1000, wait: 8}, 9000, spread{rate: 1000, wait: 8}},
		"idle, off":     {spread{isTrial: true, before: 500, rate: 1000, wait: 8}, 9000, spread{isOn: true, rate: 1000, wait: 8}},
		"first":         {busy(spread{}), 1000, spread{rate: 1000, left: firstSpread - 1, wait: firstSpread}},
		"average":       {busy(spread{rate: 1000, left: 3, wait: 8}), 1400, spread{rate: 1100, left: 2, wait: 8}},
		"trial of on":   {busy(spread{rate: 1000, left: 1, wait: 8}), 1000, spread{isOn: true, isTrial: true, rate: 1000, wait: 8}},
		"trial of off":  {busy(spread{isOn: true, rate: 1000, left: 1, wait: 8}), 1000, spread{isTrial: true, rate: 1000, wait: 8}},
		"much less":     {busy(spread{rate: 700, left: 9, wait: 64}), 299, spread{isOn: true, isTrial: true, rate: 299, wait: firstSpread}},
		"half":          {busy(spread{rate: 700, left: 9, wait: 64}), 300, spread{rate: 600, left: 8, wait: 64}},
		"gain":          {busy(spread{isOn: true, isTrial: true, rate: 1000, wait: 64}), 1151, spread{isOn: true, rate: 1151, wait: firstSpread, left: 8 * firstSpread}},
		"too little":    {busy(spread{isOn: true, isTrial: true, rate: 1000, wait: 8}), 1150, spread{rate: 1000, wait: 16, left: 16}},
		"loss with off": {busy(spread{isTrial: true, rate: 1000, wait: 8}), 900, spread{isOn: true, rate: 1000, wait: 16, left: 16}},
		"longest wait":  {busy(spread{isOn: true, isTrial: true, rate: 1000, wait: 200}), 900, spread{rate: 1000, wait: mostSpread, left: mostSpread}},
	} {
		s := c.before
		s.tick(500+2*c.rate, 2*time.Second)
		c.want.before = 500 + 2*c.rate
		require.Equal(t, c.want, s, name)
	}
}

// spreading is a rank with three rails of the same latency to a peer, with so many bytes under way
// on each.
func spreading(t *testing.T, bytes ...int64) (w *wire, pr *Peer) {
	w, pr = threeRails(t)
	for i := range pr.rails {
		pr.rails[i].latencyNanos, pr.rails[i].meter.bytes = 10, bytes[i]
	}
	return w, pr
}

// Messages that find the first rail busy are counted, and go by others while the spread is on.
func TestBusyRailSpreadsShortMessages(t *testing.T) {
	_, pr := spreading(t, busyNanos-1, 0, 0) // at a byte a nanosecond
	pr.spread.isOn = true
	require.Same(t, pr.first, pr.railForShort())
	require.Zero(t, pr.spread.wanted)
	pr.first.meter.bytes++
	require.Same(t, &pr.rails[1], pr.railForShort())
	require.Equal(t, 1, pr.spread.wanted)
	pr.spread.isOn = false
	require.Same(t, pr.first, pr.railForShort())
	require.Equal(t, 2, pr.spread.wanted)
	pr.watch.isOn = false
	require.Same(t, pr.first, pr.railForShort())
	require.Equal(t, 2, pr.spread.wanted, "there is one rail")
}

// Short messages are spread over rails that have room, are of the first one's tier, up, trusted,
// not slow, and of at most twice its latency. Of these the one takes a message that is done first.
func TestWhichRailTakesShortMessage(t *testing.T) {
	waits := func(w *wire, rl *Rail) { push(&rl.queue, w.ranks[0].op("waits")) }
	for name, c := range map[string]struct {
		bytes  []int64
		change func(w *wire, pr *Peer)
		want   int
	}{
		"least":                {[]int64{1000, 100, 200}, func(*wire, *Peer) {}, 1},
		"last":                 {[]int64{1000, 200, 100}, func(*wire, *Peer) {}, 2},
		"equal":                {[]int64{100, 100, 100}, func(*wire, *Peer) {}, 0},
		"less weight":          {[]int64{1000, 100, 200}, func(_ *wire, pr *Peer) { pr.rails[1].weight = 100 }, 2},
		"first of less weight": {[]int64{100, 200, 300}, func(_ *wire, pr *Peer) { pr.rails[0].weight = 100 }, 1},
		"slow":                 {[]int64{1000, 100, 200}, func(_ *wire, pr *Peer) { pr.becomesSlow(&pr.rails[1]) }, 2},
		"down":                 {[]int64{1000, 100, 200}, func(w *wire, _ *Peer) { w.rails[1][0].lose(1, pathError(1)) }, 2},
		"no room":              {[]int64{1000, 100, 200}, func(w *wire, pr *Peer) { waits(w, &pr.rails[1]) }, 2},
		"no room on the last":  {[]int64{1000, 200, 100}, func(w *wire, pr *Peer) { waits(w, &pr.rails[2]) }, 1},
		"no room on the first": {[]int64{10, 100, 200}, func(w *wire, pr *Peer) { waits(w, &pr.rails[0]) }, 1},
		"just trusted":         {[]int64{1000, 100, 200}, func(_ *wire, pr *Peer) { pr.rails[1].health = trusted }, 1},
		"not trusted":          {[]int64{1000, 100, 200}, func(_ *wire, pr *Peer) { pr.rails[1].health = trusted - 1 }, 2},
		"twice the latency":    {[]int64{1000, 100, 200}, func(_ *wire, pr *Peer) { pr.rails[1].latencyNanos = 20 }, 1},
		"more latency":         {[]int64{1000, 100, 200}, func(_ *wire, pr *Peer) { pr.rails[1].latencyNanos = 21 }, 2},
		"later tier":           {[]int64{1000, 100, 200}, func(_ *wire, pr *Peer) { pr.rails[1].tier = 1 }, 2},
	} {
		w, pr := spreading(t, c.bytes...)
		c.change(w, pr)
		require.Same(t, &pr.rails[c.want], pr.leastLoaded(), name)
	}
}

// Two rails carry twice as many short messages as one.
func TestShortMessagesGoByAllRails(t *testing.T) {
	rail := loop.RailConfig{BandwidthMBps: 1, LatencyNanos: msec}
	w := newWatched(t, 10*sec, rail, rail)
	payload := make([]byte, 1000)
	posted, sent := 0, len(w.ranks[0].sent)
	stream := func(millis int) int { // keeps 60 messages under way
		before := len(w.ranks[0].sent)
		for range millis {
			for ; posted-(len(w.ranks[0].sent)-sent) < 60; posted++ {
				w.ranks[0].send(1, string(payload))
			}
			w.run(msec, 0, 1)
		}
		return len(w.ranks[0].sent) - before
	}
	alone := stream(200)
	stream(1000)
	require.Greater(t, stream(200), alone*3/2)
	w.run(sec, 0, 1)
	for i := range w.pr.rails {
		require.NotZero(t, w.pr.rails[i].meter.deliveredBytes)
	}
	require.NotZero(t, w.ranks[1].Stats().Early, "no message overtook another")
	require.Zero(t, w.ranks[1].early)
}
