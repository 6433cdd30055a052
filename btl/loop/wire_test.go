package loop

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/internal/network"
	"github.com/mpigo/mpigo/internal/race"
)

// wires gives a fabric one network link for each port, which all connections of the port share. The
// connections use TCP, or are direct.
func (f *Fabric) useWires(t testing.TB, isTCP bool, change func(l *network.Link), w Wires) {
	rng := rand.New(rand.NewPCG(f.cfg.Seed, 1))
	links := map[Port]*network.Link{}
	for rail := range f.cfg.Rails {
		for rank := range f.cfg.Ranks {
			l := network.NewLink(f, rng, network.Steady(1e9), 100)
			change(l)
			links[Port{rank, rail}] = l
		}
	}
	w.Dial = func(a, b Port) (to, fro Wire) {
		if isTCP {
			return network.NewTCP(f, links[a], links[b]), network.NewTCP(f, links[b], links[a])
		}
		return network.Direct{Out: links[a]}, network.Direct{Out: links[b]}
	}
	require.NoError(t, f.SetWires(w))
}

// wiredNodes are the nodes of exact on direct wires of 1 GB/s and 100 ns.
func wiredNodes(t testing.TB, cfg Config, w Wires) (*world, *node, *node) {
	world, a, b := twoNodes(t, cfg)
	world.f.useWires(t, false, func(*network.Link) {}, w)
	require.NotNil(t, b.connect(0))
	require.NotNil(t, a.connect(1))
	return world, a, b
}

func (w *world) at(nanos int64) {
	w.f.AdvanceTo(nanos)
	w.turn()
}

// A fragment arrives when its last byte has crossed, and completes when the acknowledgement is
// back. The acknowledgement crosses an idle link at once.
func TestWireTakesItsTime(t *testing.T) {
	w, a, b := wiredNodes(t, exact(), Wires{})
	require.True(t, a.send(1, 100))
	w.at(100 + frameBytes + 99)
	require.Zero(t, b.arrived)
	w.at(100 + frameBytes + 100)
	require.Equal(t, 1, b.arrived)
	w.at(100 + frameBytes + 199)
	require.Equal(t, 1, a.pending)
	w.at(100 + frameBytes + 200)
	require.Zero(t, a.pending)
}

// The bytes of a read cross on the way back, the bytes of a write on the way there.
func TestWireCarriesRemoteAccess(t *testing.T) {
	access := func() (w *world, mine, theirs []byte, op *btl.Op, ended *int) {
		w, a, b := wiredNodes(t, exact(), Wires{})
		mine, theirs, ended = make([]byte, 1000), make([]byte, 1000), new(int)
		op = &btl.Op{Payload: mine, Local: a.register(mine, btl.AccessLocal), Remote: b.register(theirs, forPeers).Key()}
		op.Done = func(_ *btl.Op, err error) {
			require.NoError(t, err)
			*ended++
		}
		return w, mine, theirs, op, ended
	}
	w, mine, theirs, op, ended := access()
	theirs[999] = 7
	require.NoError(t, w.nodes[0][0].eps[1].(btl.Getter).Get(op))
	w.at(frameBytes + 1000 + 99) // the request has crossed meanwhile
	require.Zero(t, *ended)
	w.at(frameBytes + 1000 + 100)
	require.Equal(t, 1, *ended)
	require.EqualValues(t, 7, mine[999])

	w, mine, theirs, op, ended = access()
	mine[999] = 3
	require.NoError(t, w.nodes[0][0].eps[1].(btl.Putter).Put(op))
	w.at(frameBytes + 1000 + 99)
	require.Zero(t, theirs[999])
	w.at(frameBytes + 1000 + 100)
	require.EqualValues(t, 3, theirs[999])
	require.Zero(t, *ended)
	w.at(frameBytes + 1000 + 200)
	require.Equal(t, 1, *ended)
}

// Two peers of a rank share the link of its port.
func TestPeersShareThePort(t *testing.T) {
	cfg := exact()
	cfg.Ranks = 3
	w, a, b := wiredNodes(t, cfg, Wires{})
	require.NotNil(t, w.nodes[2][0].connect(0))
	require.True(t, a.send(1, 1000))
	require.True(t, a.send(2, 1000))
	w.at(1000 + frameBytes + 100)
	require.Equal(t, [2]int{1, 0}, [2]int{b.arrived, w.nodes[2][0].arrived})
	w.at(2*(1000+frameBytes) + 100)
	require.Equal(t, 1, w.nodes[2][0].arrived)
}

// A full window refuses operations until an acknowledgement makes room. An idle endpoint takes an
// operation that is longer than the window.
func TestWindowBoundsWhatIsUnderWay(t *testing.T) {
	w, a, _ := wiredNodes(t, exact(), Wires{WindowBytes: 300})
	require.True(t, a.send(1, 200))
	require.True(t, a.send(1, 100))
	require.False(t, a.send(1, 28))
	for a.pending == 2 {
		w.f.Advance()
		w.turn()
	}
	require.True(t, a.send(1, 200))
	require.False(t, a.send(1, 28))
	w.settle()
	require.True(t, a.send(1, 5000))
	w.settle()
	require.Zero(t, a.pending)
}

// An endpoint that fails drops the writes that the network has not sent. If they include
// acknowledgements, the peer's operations fail.
func TestFailedEndpointDropsItsQueue(t *testing.T) {
	w, a, b := twoNodes(t, exact())
	w.f.useWires(t, true, func(l *network.Link) { l.Rate = network.Steady(1e6) }, Wires{})
	require.NotNil(t, b.connect(0))
	require.True(t, a.send(1, 60_000)) // four times TCP's first window
	require.True(t, b.send(0, 100))
	w.f.AdvanceTo(10 * network.Millisecond) // arrived, and its acknowledgement queued
	w.turn()
	require.Equal(t, 1, a.arrived)
	a.eps[1].Fail(errTest)
	w.settle()
	require.Zero(t, a.pending)
	require.Zero(t, b.pending)
	require.Zero(t, b.arrived)
	require.Equal(t, 1, b.failures)
	for _, l := range w.f.links {
		require.Empty(t, l.flights)
	}
}

// A silent network fails endpoints with outstanding operations, but not idle ones.
func TestSilentWireFailsTheEndpoint(t *testing.T) {
	const from, limit = 50_000, 1_000_000
	w, a, b := twoNodes(t, exact())
	w.f.useWires(t, true, func(l *network.Link) { l.Silent = network.During(from, 1<<60, true, false) }, Wires{SilenceNanos: limit})
	require.NotNil(t, b.connect(0))
	require.True(t, a.send(1, 100))
	w.at(from)
	require.Zero(t, a.pending)
	w.at(10 * limit)
	require.Zero(t, a.failures)
	require.True(t, a.send(1, 100))
	w.at(11*limit - 1)
	require.Zero(t, a.failures)
	w.at(11 * limit)
	require.Equal(t, [3]int{1, 0, 0}, [3]int{a.failures, a.pending, b.failures})
}

// With AcksTaken an operation completes when the peer's rank has taken it. A rank that takes
// nothing does not count as a silent network.
func TestRankAcknowledgesWhatItTakes(t *testing.T) {
	const limit = 100_000
	w, a, b := wiredNodes(t, exact(), Wires{AcksTaken: true, SilenceNanos: limit})
	require.True(t, a.send(1, 100))
	for w.f.Now() < 20*limit {
		w.f.AdvanceTo(w.f.Now() + limit/10)
		a.m.Progress()
	}
	require.Equal(t, [2]int{1, 0}, [2]int{a.pending, a.failures})
	w.turn()
	require.Equal(t, 1, b.arrived)
	w.f.AdvanceTo(21 * limit)
	w.turn()
	require.Zero(t, a.pending)

	// The peer leaves before it takes the next operation.
	require.True(t, a.send(1, 100))
	w.f.AdvanceTo(22 * limit)
	require.NoError(t, b.m.Close())
	w.settle()
	require.Equal(t, [2]int{0, 1}, [2]int{a.pending, a.failures})
}

// Random traffic and faults over wires.
func TestWiresRandom(t *testing.T) {
	for seed := range race.Some(uint64(8)) {
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			simulate(t, seed, 4, 3, 2000, func(f *Fabric) {
				f.useWires(t, seed%2 == 0, func(l *network.Link) {
					if seed%2 == 0 {
						l.QueueSeconds, l.BurstBytes, l.Loss = 0.001, 5000, network.Steady(0.01)
					}
				}, Wires{WindowBytes: 10_000, AcksTaken: seed%4 < 2})
			})
		})
	}
}

func TestWiresNeedAVirtualFabric(t *testing.T) {
	f, err := NewFabric(Config{})
	require.NoError(t, err)
	dial := func(Port, Port) (to, fro Wire) { return nil, nil }
	require.ErrorIs(t, f.SetWires(Wires{Dial: dial}), ErrConfig)
	f, err = NewFabric(Config{Virtual: true})
	require.NoError(t, err)
	require.NoError(t, f.SetWires(Wires{Dial: dial}))
	for _, bad := range []Wires{{}, {Dial: dial, WindowBytes: -1}, {Dial: dial, SilenceNanos: -1}} {
		require.ErrorIs(t, f.SetWires(bad), ErrConfig)
	}
}
