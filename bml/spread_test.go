package bml

import (
	"testing"

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
