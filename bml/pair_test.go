package bml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/faults"
	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/progress"
)

const (
	msec = int64(1e6)
	sec  = int64(1e9)
)

// pair is two ranks over a virtual fabric. Each makes progress only when the test tells it to.
type pair struct {
	fabric  *loop.Fabric
	ranks   []*testRank
	modules [][]btl.Module // by rank, then rail
}

// newPair makes two ranks that have these rails.
func newPair(t *testing.T, grace int64, rails ...loop.RailConfig) *pair {
	w := &pair{modules: make([][]btl.Module, 2)}
	var err error
	w.fabric, err = loop.NewFabric(loop.Config{Ranks: 2, Rails: len(rails), Rail: rails, Virtual: true, Seed: 1})
	require.NoError(t, err)
	for rank := range 2 {
		eng := progress.New(progress.Config{Clock: w.fabric})
		r := newTestRank(t, rank, 2, eng, grace, func(cfg *Config) {
			cfg.Resolve = func(peer int) ([]Route, error) { return w.routes(rank, peer), nil }
		})
		eng.Lock()
		for rail := range rails {
			m, err := faults.Wrap(faults.Config{Events: r}, func(ev btl.Events) (btl.Module, error) {
				return w.fabric.Module(rank, rail, ev, nil)
			})
			require.NoError(t, err)
			w.modules[rank] = append(w.modules[rank], m)
			eng.AddPoller(m)
		}
		eng.AddPoller(r)
		w.ranks = append(w.ranks, r)
	}
	return w
}

// routes are all rails from one rank to the other.
func (w *pair) routes(rank, peer int) (routes []Route) {
	for rail, m := range w.modules[rank] {
		address := w.modules[peer][rail].Address()
		open := func() (btl.Endpoint, error) { return m.Connect(btl.Path{Peer: peer, Module: uint8(rail)}, address) }
		r := Route{Module: m, Local: rail, Remote: rail, Reopen: open}
		if ep, err := open(); err == nil {
			r.Endpoint = ep
		}
		routes = append(routes, r)
	}
	return routes
}

// run lets time pass, with these ranks at work.
func (w *pair) run(nanos int64, ranks ...int) {
	for end := w.fabric.Now() + nanos; w.fabric.Now() < end; {
		for range 8 {
			for _, r := range ranks {
				w.ranks[r].eng.Turn()
			}
		}
		w.fabric.AdvanceTo(w.fabric.Now() + msec)
	}
}
