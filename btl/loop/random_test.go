package loop

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/internal/race"
)

var errTest = errors.New("failed by the test")

// simulate runs random traffic with random faults on a virtual fabric and returns its trace.
func simulate(t *testing.T, seed uint64, ranks, rails, steps int, changes ...func(f *Fabric)) string {
	var trace bytes.Buffer
	w := newWorld(t, Config{Ranks: ranks, Rails: rails, Seed: seed, Virtual: true, Slots: 8})
	w.f.Trace(&trace)
	for _, change := range changes {
		change(w.f)
	}
	rng := rand.New(rand.NewPCG(seed, 99))
	broken := 0
	for range steps {
		n := w.nodes[rng.IntN(ranks)][rng.IntN(rails)]
		for range rng.IntN(4) {
			n.send(rng.IntN(ranks), 28+rng.IntN(2000))
		}
		switch rng.IntN(60) {
		case 0, 1:
			if w.breakSomething(rng) {
				broken++
			}
		case 2, 3:
			n.injectSomething()
		case 4:
			n.failSomething()
		}
		if rng.IntN(3) > 0 {
			w.f.Advance()
		}
		if rng.IntN(4) == 0 {
			w.turn()
		} else {
			n.m.Progress()
		}
	}
	require.Positive(t, broken, "nothing broke")
	w.reviveAll()
	w.settle()
	require.Positive(t, w.failAll())
	fired := 0
	w.all(func(n *node) { fired += n.m.(btl.Injector).Fired() })
	require.Positive(t, fired)
	// Everything works again.
	w.all(func(n *node) {
		n.m.(interface{ Clear() }).Clear()
		for peer := range ranks {
			require.True(t, n.send(peer, 100), "rank %d to %d on rail %d", n.rank, peer, n.rail)
		}
	})
	w.settle()
	before, after := 0, 0
	w.all(func(n *node) { before += n.arrived })
	w.all(func(n *node) {
		for peer := range ranks {
			if n.eps[peer].State() == btl.Up {
				require.True(t, n.send(peer, 100))
			}
		}
	})
	w.settle()
	w.all(func(n *node) { after += n.arrived })
	require.Greater(t, after, before)
	return trace.String()
}

// TestVirtualRandom: eight ranks on three rails, with faults of all kinds. Fragments arrive at most
// once and in order, and all fragments that were reported as delivered arrive.
func TestVirtualRandom(t *testing.T) {
	for seed := range race.Some(uint64(8)) {
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) { simulate(t, seed, 8, 3, 2000) })
	}
}

// TestVirtualDeterministic: the same seed and the same calls give the same trace, and another seed
// gives another trace.
func TestVirtualDeterministic(t *testing.T) {
	first := simulate(t, 5, 4, 2, 1500)
	again := simulate(t, 5, 4, 2, 1500)
	if first != again {
		a, b := strings.Split(first, "\n"), strings.Split(again, "\n")
		for i := range min(len(a), len(b)) {
			require.Equal(t, a[i], b[i], "line %d of the trace", i)
		}
		require.Equal(t, len(a), len(b), "lines of the trace")
	}
	for _, word := range strings.Fields("post deliver arrive complete failed error drained lost stale cut break revive") {
		require.Contains(t, first, " "+word+" ", "a kind of event is missing in the trace")
	}
	require.NotEqual(t, first, simulate(t, 6, 4, 2, 1500))
}

// TestSeedAlone: another seed alone, with the same calls, gives another trace.
func TestSeedAlone(t *testing.T) {
	run := func(seed uint64) string {
		var trace bytes.Buffer
		w, a, _ := twoNodes(t, Config{Seed: seed, Virtual: true})
		w.f.Trace(&trace)
		a.rng = rand.New(rand.NewPCG(1, 1))
		for range 20 {
			a.send(1, 100)
			w.settle()
		}
		return trace.String()
	}
	require.Equal(t, run(1), run(1))
	require.NotEqual(t, run(1), run(2))
}

// TestFreeRunningRandom does what TestVirtualRandom does, with a goroutine for each rank, and one
// that makes the faults.
func TestFreeRunningRandom(t *testing.T) {
	const ranks, rails, faults = 8, 3, 60
	w := newWorld(t, Config{Ranks: ranks, Rails: rails, Slots: 8})
	var quit atomic.Bool
	var sent atomic.Int64
	var wg sync.WaitGroup
	for _, ns := range w.nodes {
		wg.Go(func() {
			for !quit.Load() && !t.Failed() {
				n := ns[ns[0].rng.IntN(rails)]
				for range n.rng.IntN(8) {
					if n.send(n.rng.IntN(ranks), 28+n.rng.IntN(2000)) {
						sent.Add(1)
					}
				}
				switch n.rng.IntN(300) {
				case 0:
					n.injectSomething()
				case 1:
					n.failSomething()
				}
				for _, n := range ns {
					n.m.Progress()
				}
				runtime.Gosched()
			}
		})
	}
	rng := rand.New(rand.NewPCG(4, 5))
	for broken := 0; broken < faults; {
		// Let some traffic pass between two faults.
		before := sent.Load()
		for i := 1; sent.Load() < before+50 && !t.Failed(); i++ {
			if i%1000 == 0 {
				w.reviveAll() // there may be no path left
			}
			runtime.Gosched()
		}
		if w.breakSomething(rng) {
			broken++
		}
		if rng.IntN(3) == 0 {
			w.reviveAll()
		}
	}
	quit.Store(true)
	wg.Wait()
	// From here on there is one goroutine.
	w.reviveAll()
	w.settle()
	require.Positive(t, w.failAll())
}
