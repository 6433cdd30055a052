package bml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/progress"
)

// Each rank has two ports: r on a switch of the job, and q, which a router joins. The switch falls
// silent. Only the pairs (q, q) still lead anywhere. They are alternates of level 1: other spare
// pairs, which lead nowhere, leave them places for probes.
func TestSparePairsGoOnToManyPeers(t *testing.T) {
	for _, peers := range []int{1, 8, 24} {
		n := peers + 1
		w := &pair{modules: make([][]btl.Module, n)}
		var err error
		rail := loop.RailConfig{RetryNanos: 2 * sec}
		w.fabric, err = loop.NewFabric(loop.Config{Ranks: n, Rails: 2, Rail: []loop.RailConfig{rail, rail}, Virtual: true, Seed: 1, Switched: true})
		require.NoError(t, err)
		all := []int{}
		for rank := range n {
			all = append(all, rank)
			eng := progress.New(progress.Config{Clock: w.fabric})
			r := newTestRank(t, rank, n, eng, 10*sec, func(cfg *Config) {
				cfg.Resolve = func(peer int) (routes []Route, err error) {
					leads := func(i, j int) int {
						if i == 0 && j == 0 {
							return 3
						}
						return 2
					}
					for _, p := range transport.Pairs(2, 2, leads, rank < peer) {
						m, address := w.modules[rank][p.Local], w.modules[peer][p.Remote].Address()
						open := func() (btl.Endpoint, error) {
							return m.Connect(btl.Path{Peer: peer, Module: uint8(p.Remote)}, address)
						}
						r := Route{Module: m, Local: p.Local, Remote: p.Remote, Tier: p.Level, Extra: p.Extra, Alternate: p.Alternate, Reopen: open}
						if p.Level == 0 {
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
			for rail := range 2 {
				m, err := w.fabric.Module(rank, rail, r, nil)
				require.NoError(t, err)
				w.modules[rank] = append(w.modules[rank], m)
				eng.AddPoller(m)
			}
			eng.AddPoller(r)
			w.ranks = append(w.ranks, r)
		}
		for a := range n {
			for p := range n {
				if a != p {
					w.ranks[a].send(p, "hello")
				}
			}
		}
		w.run(100*msec, all...)
		for a := range n {
			for p := range n {
				if a == p {
					continue
				}
				for _, l := range [][2]int{{0, 0}, {0, 1}, {1, 0}} {
					require.NoError(t, w.fabric.SetLoss(loop.Port{Rank: a, Rail: l[0]}, loop.Port{Rank: p, Rail: l[1]}, func(loop.Packet) bool { return true }))
				}
				w.ranks[a].send(p, "on")
			}
		}
		for _, rank := range w.ranks {
			for end := w.fabric.Now() + 10*sec; len(rank.got) < 2*peers && w.fabric.Now() < end; {
				w.run(10*msec, all...)
			}
			require.Len(t, rank.got, 2*peers)
		}
	}
}
