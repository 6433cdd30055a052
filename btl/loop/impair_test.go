package loop

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

// A slow link takes a multiple of the latency and of the time for the bytes, in both directions. A
// repaired link takes the usual time, even for operations in flight.
func TestImpairedLinkIsSlowUntilRepaired(t *testing.T) {
	w, a, b := twoNodes(t, exact())
	link := [2]Port{{0, 0}, {1, 0}}
	require.NotNil(t, b.connect(0))
	require.NoError(t, w.f.ImpairLink(link[0], link[1], Impairment{Latency: 10, PerByte: 3}))
	require.True(t, a.send(1, 100))
	w.f.AdvanceTo(1299) // 3·100 + 10·100 − 1
	w.turn()
	require.Zero(t, b.arrived)
	w.f.AdvanceTo(1300)
	w.turn()
	require.Equal(t, 1, b.arrived)
	w.f.AdvanceTo(2299)
	w.turn()
	require.Equal(t, 1, a.pending)
	w.f.AdvanceTo(2300)
	w.turn()
	require.Zero(t, a.pending)

	require.True(t, a.send(1, 100))
	require.True(t, a.send(1, 50))
	require.NoError(t, w.f.ImpairLink(link[1], link[0], Impairment{}))
	w.f.AdvanceTo(2500) // one latency each way
	w.turn()
	require.Equal(t, 3, b.arrived)
	require.Zero(t, a.pending)
}

// A lossy link delivers late, and in order. Some packets are never repeated successfully, and fail
// the endpoint.
func TestLossyLinkDeliversLateOrFails(t *testing.T) {
	const retry = 1_000_000
	late, failed := 0, 0
	for seed := range uint64(50) {
		cfg := exact()
		cfg.Seed = seed
		w, a, b := twoNodes(t, cfg)
		require.NotNil(t, b.connect(0))
		require.NoError(t, w.f.ImpairLink(Port{0, 0}, Port{1, 0}, Impairment{Loss: 0.6, RetryNanos: retry}))
		require.True(t, a.send(1, 100))
		require.True(t, a.send(1, 100)) // Arrived checks the order
		w.settle()
		require.Zero(t, a.pending)
		if a.failures > 0 {
			failed++
		} else if w.f.Now() >= retry {
			late++
		}
	}
	require.Greater(t, late, 10)
	require.Greater(t, failed, 1)
}

func TestImpairmentOfRealTimeFabricFails(t *testing.T) {
	f, err := NewFabric(Config{Ranks: 2})
	require.NoError(t, err)
	require.ErrorIs(t, f.ImpairLink(Port{0, 0}, Port{1, 0}, Impairment{Latency: 2}), ErrConfig)
}

// Without Switched, rails are separate networks. With it, each pair of modules has its own link.
func TestSwitchedFabricLinksAllPorts(t *testing.T) {
	for _, switched := range []bool{false, true} {
		w := newWorld(t, Config{Ranks: 2, Rails: 2, Switched: switched})
		from, to := w.nodes[0][0], w.nodes[1][1]
		ep, err := from.m.Connect(btl.Path{Peer: 1, Module: 1}, to.m.Address())
		if !switched {
			require.ErrorIs(t, err, btl.ErrUnreachable)
			require.ErrorIs(t, w.f.FailLink(Port{0, 0}, Port{1, 1}, Cut{}), ErrConfig)
			continue
		}
		require.NoError(t, err)
		straight := from.connect(1)
		require.NotNil(t, straight)
		require.NoError(t, w.f.FailLink(Port{0, 0}, Port{1, 1}, Cut{}))
		from.m.Progress()
		require.Equal(t, btl.Drained, ep.State())
		require.Equal(t, btl.Up, straight.State(), "the cut of a link fails another link")
		require.NoError(t, w.f.FailPort(0, 0, Lose))
		from.m.Progress()
		require.Equal(t, btl.Drained, straight.State())
		require.NoError(t, w.f.RevivePort(0, 0))
		require.NoError(t, w.f.ReviveLink(Port{0, 0}, Port{1, 1}))
		again, err := from.m.Connect(btl.Path{Peer: 1, Module: 1}, to.m.Address())
		require.NoError(t, err)
		require.EqualValues(t, 2, again.Epoch())
	}
}
