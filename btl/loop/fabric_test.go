package loop

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

func TestConfigRefused(t *testing.T) {
	for name, cfg := range map[string]Config{
		"negative ranks":    {Ranks: -1},
		"too many ranks":    {Ranks: maxRanks + 1},
		"negative rails":    {Rails: -1},
		"too many rails":    {Rails: maxRails + 1},
		"negative slots":    {Slots: -1},
		"too many slots":    {Slots: maxSlots + 1},
		"more descriptions": {Rails: 1, Rail: make([]RailConfig, 2)},
		"equal names":       {Rails: 2, Rail: []RailConfig{{Name: "x"}, {Name: "x"}}},
		"name of a default": {Rails: 2, Rail: []RailConfig{{Name: "loop1"}}},
		"negative latency":  {Rail: []RailConfig{{LatencyNanos: -1}}},
		"negative retry":    {Rail: []RailConfig{{RetryNanos: -1}}},
		"negative speed":    {Rail: []RailConfig{{BandwidthMBps: -1}}},
		"no room":           {Rail: []RailConfig{{MaxSendBytes: btl.MaxHeaderBytes - 1}}},
		"too much room":     {Rail: []RailConfig{{MaxSendBytes: maxFragBytes + 1}}},
		"eager too large":   {Rail: []RailConfig{{MaxSendBytes: 100, EagerBytes: 101}}},
		"negative eager":    {Rail: []RailConfig{{EagerBytes: -1}}},
		"inline too large":  {Rail: []RailConfig{{MaxSendBytes: 100, InlineBytes: 101}}},
		"negative inline":   {Rail: []RailConfig{{InlineBytes: -1}}},
	} {
		_, err := NewFabric(cfg)
		require.ErrorIs(t, err, ErrConfig, name)
	}
}

func TestConfigDefaults(t *testing.T) {
	f, err := NewFabric(Config{Ranks: 2, Rails: 3, Slots: 5, Rail: []RailConfig{
		{Name: "fast", LatencyNanos: 100, Without: btl.CapPut},
		{MaxSendBytes: 100},
	}})
	require.NoError(t, err)
	require.Equal(t, 2, f.Ranks())
	require.Equal(t, 3, f.Rails())
	require.Equal(t, 8, f.cfg.Slots, "slots are a power of two")
	var ev counter
	var names []string
	for rail := range 3 {
		m, err := f.Module(0, rail, &ev, nil)
		require.NoError(t, err)
		names = append(names, m.Attrs().Name)
	}
	require.Equal(t, []string{"fast", "loop1", "loop2"}, names)
	require.Equal(t, btl.CapGet|btl.CapInline, f.attrs[0].Caps)
	require.Equal(t, btl.CapGet|btl.CapPut|btl.CapInline, f.attrs[1].Caps)
	require.Equal(t, 100, f.attrs[2].MaxSendBytes, "as the last one described")
	require.Equal(t, 100, f.attrs[2].EagerBytes)

	for _, c := range []struct{ rank, rail int }{{-1, 0}, {2, 0}, {0, -1}, {0, 3}, {0, 0}} {
		_, err := f.Module(c.rank, c.rail, &ev, nil)
		require.ErrorIs(t, err, ErrConfig, "rank %d rail %d", c.rank, c.rail)
	}
	_, err = f.Module(1, 0, nil, nil)
	require.ErrorIs(t, err, ErrConfig, "nobody to report to")
}

// TestSlotsShrink: what all lanes of a large fabric take stays bounded.
func TestSlotsShrink(t *testing.T) {
	for ranks, slots := range map[int]int{1: 64, 32: 64, 64: 32, 128: 16, 1024: 16} {
		cfg := Config{Ranks: ranks}
		require.NoError(t, cfg.complete())
		require.Equal(t, slots, cfg.Slots, "%d ranks", ranks)
	}
}

// TestOtherFabric: an address leads nowhere in a fabric that it is not of.
func TestOtherFabric(t *testing.T) {
	f, err := NewFabric(Config{Ranks: 2, Rails: 2})
	require.NoError(t, err)
	g, err := NewFabric(Config{Ranks: 2, Rails: 2})
	require.NoError(t, err)
	var ev counter
	m, err := f.Module(0, 0, &ev, nil)
	require.NoError(t, err)
	far, err := g.Module(1, 0, &ev, nil)
	require.NoError(t, err)
	otherRail, err := f.Module(1, 1, &ev, nil)
	require.NoError(t, err)
	for _, address := range [][]byte{far.Address(), otherRail.Address()} {
		_, err = m.Connect(1, address)
		require.ErrorIs(t, err, btl.ErrUnreachable)
	}
}

// TestSelf: a fabric of one rank carries the rank's messages to itself, also those that it sends
// from inside Arrived.
func TestSelf(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		w := newWorld(t, Config{Virtual: virtual})
		n := w.nodes[0][0]
		for i := range 200 {
			for !n.send(0, 28+i*50) {
				w.settle()
			}
		}
		w.settle()
		require.Equal(t, 200, n.arrived)
		for range 3 {
			n.eps[0].Fail(errTest)
			w.settle()
			require.Equal(t, btl.Drained, n.eps[0].State())
			require.True(t, n.send(0, 100))
			w.settle()
		}
		require.Equal(t, 203, n.arrived)
		require.Equal(t, 3, n.failures)
		n.m.Fail(errTest)
		w.settle()
		require.True(t, n.send(0, 100))
		w.settle()
		require.Equal(t, 204, n.arrived)
	}
}

// TestManyLanes: more ranks send than are watched; nothing is forgotten, whoever is idle makes way,
// and a module that sleeps is woken by those that it does not watch.
func TestManyLanes(t *testing.T) {
	const ranks = 70
	w := newWorld(t, Config{Ranks: ranks})
	to := w.nodes[0][0]
	for round := range 300 {
		for rank := 1; rank < ranks; rank++ {
			if round < 30 || rank%7 == round%7 {
				n := w.nodes[rank][0]
				for !n.send(0, 50) {
					to.m.Progress()
				}
			}
		}
		if round%5 == 0 {
			to.m.Progress()
		}
	}
	w.settle()
	require.LessOrEqual(t, len(to.inner.watched), maxWatched)

	// One that has been silent for long, and is not watched, becomes watched when it sends and
	// others are idle.
	for range 2 * maxIdleLooks {
		to.m.Progress()
	}
	for range 2 * maxWatched {
		require.True(t, w.nodes[33][0].send(0, 50))
		to.m.Progress()
	}
	w.settle()
	watched := 0
	for _, l := range to.inner.watched {
		require.Equal(t, uint32(1), l.watched.Load())
		if l.fromRank == 33 {
			watched++
		}
	}
	require.Equal(t, 1, watched)
}

// TestUnwatchedInTime: a lane that has to make way just when it has got something again is not
// forgotten.
func TestUnwatchedInTime(t *testing.T) {
	const ranks = maxWatched + 2
	w := newWorld(t, Config{Ranks: ranks})
	to := w.nodes[0][0]
	for rank := 1; rank < ranks; rank++ {
		require.True(t, w.nodes[rank][0].send(0, 50))
	}
	w.settle()
	for range 2 * maxIdleLooks {
		to.m.Progress()
	}
	before := to.arrived
	for rank := 1; rank < ranks; rank++ {
		require.True(t, w.nodes[rank][0].send(0, 50))
	}
	for range 10 {
		to.m.Progress()
	}
	require.Equal(t, before+ranks-1, to.arrived)
}

// TestWakeByMany: whoever sends wakes a sleeper, watched or not.
func TestWakeByMany(t *testing.T) {
	const ranks = 20
	f, err := NewFabric(Config{Ranks: ranks})
	require.NoError(t, err)
	var ev counter
	bell := &ringCounter{}
	to, err := f.Module(0, 0, &ev, bell)
	require.NoError(t, err)
	var eps []btl.Endpoint
	for rank := 1; rank < ranks; rank++ {
		m, err := f.Module(rank, 0, &counter{}, nil)
		require.NoError(t, err)
		ep, err := m.Connect(0, to.Address())
		require.NoError(t, err)
		eps = append(eps, ep)
	}
	require.Zero(t, bell.rings, "rung without having been armed")
	idler := to.(progress.Idler)
	for round := range 3 {
		for i, ep := range eps {
			require.True(t, idler.Arm())
			require.Zero(t, to.Progress())
			require.True(t, ep.(btl.Inliner).SendInline(0, nil, []byte{1}))
			require.Equal(t, round*len(eps)+i+1, bell.rings)
			// One ring is enough.
			require.True(t, ep.(btl.Inliner).SendInline(0, nil, []byte{1}))
			require.Equal(t, round*len(eps)+i+1, bell.rings)
			idler.Disarm()
			for ev.arrived < 2*(round*len(eps)+i+1) {
				to.Progress()
			}
			require.True(t, ep.(btl.Inliner).SendInline(0, nil, []byte{1}), "disarmed")
			require.Equal(t, round*len(eps)+i+1, bell.rings)
			for to.Progress() > 0 {
			}
			ev.arrived = 2 * (round*len(eps) + i + 1)
		}
	}
}

type ringCounter struct{ rings int }

func (b *ringCounter) Wake()            { b.rings++ }
func (b *ringCounter) Sleep(int64) bool { return false }
func (b *ringCounter) Close() error     { return nil }

// TestArmWithoutBell: who cannot be rung says so; the engine then only naps.
func TestArmWithoutBell(t *testing.T) {
	w := newWorld(t, Config{Ranks: 2})
	require.False(t, w.nodes[0][0].m.(progress.Idler).Arm())
}

// TestTurnIsBounded: one turn hands up only so many fragments of a lane.
func TestTurnIsBounded(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		w := newWorld(t, Config{Ranks: 2, Virtual: virtual})
		for range 3*laneBudget - 1 {
			require.True(t, w.nodes[0][0].send(1, 30))
		}
		for w.f.Advance() {
		}
		to := w.nodes[1][0]
		for i, want := range []int{laneBudget, 2 * laneBudget, 3*laneBudget - 1} {
			require.Positive(t, to.m.Progress())
			require.Equal(t, want, to.arrived, "turn %d", i)
		}
	}
}

// TestConnectWhileRailFails: nothing new begins before the old has ended.
func TestConnectWhileRailFails(t *testing.T) {
	w := newWorld(t, Config{Ranks: 3})
	m, peers := w.nodes[0][0].m, w.nodes
	ep, err := m.Connect(1, peers[1][0].m.Address())
	require.NoError(t, err)
	m.Fail(errTest)
	same, err := m.Connect(1, peers[1][0].m.Address())
	require.NoError(t, err)
	require.True(t, ep == same)
	_, err = m.Connect(2, peers[2][0].m.Address())
	require.ErrorIs(t, err, btl.ErrFailed)
	var be *btl.Error
	require.ErrorAs(t, err, &be)
	w.settle()
	_, err = m.Connect(2, peers[2][0].m.Address())
	require.NoError(t, err)
}

// TestHeaderTooLong: an impossible header is refused like any other excess.
func TestHeaderTooLong(t *testing.T) {
	s := newSides(t, 2)
	s[0].connect(t, 1, s[1])
	require.Equal(t, btl.ErrTooLong, s[0].ep.Send(&btl.Op{HdrLen: btl.MaxHeaderBytes + 1}))
}
