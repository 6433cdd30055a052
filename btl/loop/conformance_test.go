package loop

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
	"github.com/mpigo/mpigo/internal/network"
	"github.com/mpigo/mpigo/internal/race"
	"github.com/mpigo/mpigo/progress"
)

// TestConformance runs the suite on several kinds of fabrics, with the ranks in either order.
func TestConformance(t *testing.T) {
	for name, cfg := range map[string]Config{
		"free-running": {Ranks: 3, Rails: 2},
		// The smallest ring, the smallest fragments.
		"one-slot":       {Ranks: 3, Slots: 1, Rail: []RailConfig{{MaxSendBytes: 100, EagerBytes: 80, InlineBytes: 90}}},
		"only-send":      {Ranks: 3, Rail: []RailConfig{{Without: btl.CapGet | btl.CapPut | btl.CapInline}}},
		"virtual-seed-0": {Ranks: 3, Virtual: true},
		"virtual-seed-1": {Ranks: 3, Virtual: true, Seed: 1},
		// Between different rails.
		"switched":         {Ranks: 3, Rails: 3, Switched: true},
		"switched-virtual": {Ranks: 3, Rails: 3, Switched: true, Virtual: true},
		"wires-direct":     {Ranks: 3, Virtual: true},
		"wires-tcp":        {Ranks: 3, Virtual: true},
	} {
		if race.Brief() && cfg.Virtual {
			continue // with one goroutine there is no race to find
		}
		rankA, rankB := 0, 2
		if name == "free-running" {
			rankA, rankB = 2, 0
		}
		t.Run(name, func(t *testing.T) {
			btltest.TestBTL(t, func(t testing.TB, evA, evB btl.Events) *btltest.Pair {
				f, err := NewFabric(cfg)
				require.NoError(t, err)
				if strings.HasPrefix(name, "wires") {
					f.useWires(t, name == "wires-tcp", func(*network.Link) {}, Wires{AcksTaken: name == "wires-tcp"})
				}
				p := btltest.Pairs(rankA, rankB, func(rank int, ev btl.Events, w *progress.PipeWakeup) (btl.Module, error) {
					rail := f.Rails() - 1
					if cfg.Switched {
						rail = rank
					}
					return f.Module(rank, rail, ev, w)
				})(t, evA, evB)
				if cfg.Virtual {
					p.Serial, p.Allocates = true, true
					p.Idle = func() { f.Advance() }
				}
				return p
			})
		})
	}
}
