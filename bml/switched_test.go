package bml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/progress"
)

// newSwitched makes two ranks with some ports on a switch: all pairs, as package rails makes them.
func newSwitched(t *testing.T, ports int) *pair {
	w := &pair{modules: make([][]btl.Module, 2)}
	var err error
	w.fabric, err = loop.NewFabric(loop.Config{Ranks: 2, Rails: ports, Rail: make([]loop.RailConfig, ports), Virtual: true, Seed: 1, Switched: true})
	require.NoError(t, err)
	for rank := range 2 {
		eng := progress.New(progress.Config{Clock: w.fabric})
		r := newTestRank(t, rank, 2, eng, 10*sec, func(cfg *Config) {
			cfg.Resolve = func(peer int) (routes []Route, err error) {
				pairs := transport.Pairs(ports, ports, func(i, j int) int { return 1 }, rank < peer)
				for _, p := range pairs {
					m, address := w.modules[rank][p.Local], w.modules[peer][p.Remote].Address()
					open := func() (btl.Endpoint, error) {
						return m.Connect(btl.Path{Peer: peer, Module: uint8(p.Remote)}, address)
					}
					r := Route{Module: m, Local: p.Local, Remote: p.Remote, Alternate: p.Alternate, Reopen: open}
					if !p.Alternate {
						if r.Endpoint, err = open(); err != nil {
							return nil, err
						}
					}
					routes = append(routes, r)
				}
				return routes, nil
			}
		})
		eng.Lock()
		for rail := range ports {
			m, err := w.fabric.Module(rank, rail, r, nil)
			require.NoError(t, err)
			w.modules[rank] = append(w.modules[rank], m)
			eng.AddPoller(m)
		}
		eng.AddPoller(r)
		w.ranks = append(w.ranks, r)
	}
	return w
}

// Two ports of one rank are down for two seconds, and return. Nothing fails after that, so the
// alternates have to come to rest.
func TestAlternatesComeToRestAfterPortsReturn(t *testing.T) {
	for _, ports := range []int{2, 3, 4} { // the fewest with alternates, and more
		w := newSwitched(t, ports)
		require.NoError(t, w.ranks[1].Resolve(w.ranks[1].Peer(0)))
		w.ranks[0].send(1, "hello")
		w.run(100*msec, 0, 1)
		require.Equal(t, []string{"hello"}, w.ranks[1].got)
		for p := range ports - 1 {
			require.NoError(t, w.fabric.FailPort(1, p, loop.Fate(0)))
		}
		w.run(2*sec, 0, 1)
		for p := range ports - 1 {
			require.NoError(t, w.fabric.RevivePort(1, p))
		}
		w.run(20*sec, 0, 1)
		// Everything has been well for 20 s.
		opened := func() (n uint32) {
			for rank := range 2 {
				for i := range w.ranks[rank].Peer(1 - rank).rails {
					if rl := &w.ranks[rank].Peer(1 - rank).rails[i]; rl.alternate && rl.endpoint != nil {
						n += rl.endpoint.Epoch()
					}
				}
			}
			return n
		}
		before := opened()
		require.Positive(t, before)
		w.run(60*sec, 0, 1)
		require.Equal(t, before, opened(), "%d ports: alternates fail and return for ever", ports)
		for rank := range 2 {
			for i := range w.ranks[rank].Peer(1 - rank).rails {
				rl := &w.ranks[rank].Peer(1 - rank).rails[i]
				require.Equal(t, !rl.alternate, rl.state == railUp)
				require.Equal(t, fullHealth, rl.trust())
			}
		}
	}
}
