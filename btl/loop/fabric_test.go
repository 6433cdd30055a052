package loop

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
)

func TestNewFabricWithBadConfigFails(t *testing.T) {
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
	var ev side
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
	require.ErrorIs(t, err, ErrConfig, "no Events")
}

// TestDefaultOfSlotsShrinksWithRanks: the memory of all lanes of a large fabric is bounded.
func TestDefaultOfSlotsShrinksWithRanks(t *testing.T) {
	for ranks, slots := range map[int]int{1: 64, 32: 64, 64: 32, 128: 16, 1024: 16} {
		cfg := Config{Ranks: ranks}
		require.NoError(t, cfg.complete())
		require.Equal(t, slots, cfg.Slots, "%d ranks", ranks)
	}
}

// TestConnectToOtherFabricOrRailFails: an address is valid only on its rail of its fabric.
func TestConnectToOtherFabricOrRailFails(t *testing.T) {
	cfg := Config{Ranks: 2, Rails: 2}
	m, far := newSides(t, cfg)[0].mod, newSides(t, cfg)[1].mod
	otherRail, err := m.f.Module(1, 1, &side{}, nil)
	require.NoError(t, err)
	for _, address := range [][]byte{far.Address(), otherRail.Address()} {
		_, err = m.Connect(btl.Path{Peer: 1}, address)
		require.ErrorIs(t, err, btl.ErrUnreachable)
	}
}

// TestSelf: a fabric of one rank carries the rank's messages to itself.
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

// TestManyLanes: more lanes carry fragments than a module watches. All fragments arrive, and idle
// lanes make room for others among the watched ones.
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

	// An unwatched lane becomes watched when it carries fragments and others are idle.
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

// TestUnwatchedLaneDelivers: a lane that makes room for another one just when a fragment is
// published on it still delivers the fragment.
func TestUnwatchedLaneDelivers(t *testing.T) {
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

// TestEverySenderWakesOnce: the first fragment wakes a rank that sleeps, whether or not the rank
// watches the lane. Further fragments do not.
func TestEverySenderWakesOnce(t *testing.T) {
	const ranks = 20
	wakeup := &wakeCounter{}
	sides := newSides(t, Config{Ranks: ranks}, wakeup)
	to, from := sides[0], sides[1:]
	for _, s := range from {
		s.connect(t, to)
	}
	require.Zero(t, wakeup.wakes, "the rank was not armed")
	for round := range 3 {
		for i, s := range from {
			wakes := round*len(from) + i + 1
			require.True(t, to.mod.Arm())
			require.Zero(t, to.mod.Progress())
			for range 2 {
				require.True(t, s.ep.SendInline(0, nil, []byte{1}))
				require.Equal(t, wakes, wakeup.wakes)
			}
			to.mod.Disarm()
			for to.arrived < 2*wakes {
				to.mod.Progress()
			}
			require.True(t, s.ep.SendInline(0, nil, []byte{1}), "disarmed")
			require.Equal(t, wakes, wakeup.wakes)
			to.poll()
			to.arrived = 2 * wakes
		}
	}
}

type wakeCounter struct{ wakes int }

func (w *wakeCounter) Wake()            { w.wakes++ }
func (w *wakeCounter) Sleep(int64) bool { return false }
func (w *wakeCounter) Close() error     { return nil }

// TestArmWithoutWakeup: Arm reports that peers cannot wake the rank.
func TestArmWithoutWakeup(t *testing.T) {
	require.False(t, newSides(t, Config{})[0].mod.Arm())
}

// TestProgressIsBounded: a progress call hands up at most laneBudget fragments of a lane.
func TestProgressIsBounded(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		w, from, to := twoNodes(t, Config{Virtual: virtual})
		for range 3*laneBudget - 1 {
			require.True(t, from.send(1, 30))
		}
		for w.f.Advance() {
		}
		for i, want := range []int{laneBudget, 2 * laneBudget, 3*laneBudget - 1} {
			require.Positive(t, to.m.Progress())
			require.Equal(t, want, to.arrived, "progress call %d", i)
		}
	}
}

// TestConnectWhileRailFails: no endpoint is made before those of the failed rail are drained.
func TestConnectWhileRailFails(t *testing.T) {
	s := newSides(t, Config{Ranks: 3})
	s[0].connect(t, s[1])
	ep := s[0].ep
	s[0].mod.Fail(errTest)
	s[0].connect(t, s[1])
	require.Same(t, ep, s[0].ep)
	_, err := s[0].mod.Connect(btl.Path{Peer: 2}, s[2].mod.Address())
	require.ErrorIs(t, btltest.AsError(t, err), btl.ErrFailed)
	s[0].poll()
	s[0].connect(t, s[2])
}

// TestHeaderTooLong: an operation with an impossible header is refused.
func TestHeaderTooLong(t *testing.T) {
	a, _ := pairOfSides(t, Config{})
	require.Equal(t, btl.ErrTooLong, a.ep.Send(&btl.Op{HdrLen: btl.MaxHeaderBytes + 1}))
}
