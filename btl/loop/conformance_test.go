package loop

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
	"github.com/mpigo/mpigo/progress"
)

// newPair makes two of a fabric's modules on a rail.
func newPair(t testing.TB, cfg Config, rankA, rankB, rail int, evA, evB btl.Events) *btltest.Pair {
	f, err := NewFabric(cfg)
	require.NoError(t, err)
	p := &btltest.Pair{RankA: rankA, RankB: rankB, WakeupA: progress.NewChanWakeup(), WakeupB: progress.NewChanWakeup()}
	p.A, err = f.Module(rankA, rail, evA, p.WakeupA)
	require.NoError(t, err)
	p.B, err = f.Module(rankB, rail, evB, p.WakeupB)
	require.NoError(t, err)
	if cfg.Virtual {
		p.Serial, p.Allocates = true, true
		p.Idle = func() { f.Advance() }
	}
	return p
}

func TestConformanceFreeRunning(t *testing.T) {
	btltest.TestBTL(t, func(t testing.TB, evA, evB btl.Events) *btltest.Pair {
		return newPair(t, Config{Ranks: 3, Rails: 2}, 2, 0, 1, evA, evB)
	})
}

// TestConformanceOneSlot: the smallest ring, the smallest fragments.
func TestConformanceOneSlot(t *testing.T) {
	cfg := Config{Ranks: 2, Slots: 1, Rail: []RailConfig{{MaxSendBytes: 100, EagerBytes: 80, InlineBytes: 90}}}
	btltest.TestBTL(t, func(t testing.TB, evA, evB btl.Events) *btltest.Pair {
		return newPair(t, cfg, 0, 1, 0, evA, evB)
	})
}

func TestConformanceVirtual(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			btltest.TestBTL(t, func(t testing.TB, evA, evB btl.Events) *btltest.Pair {
				return newPair(t, Config{Ranks: 2, Seed: seed, Virtual: true}, 0, 1, 0, evA, evB)
			})
		})
	}
}

// TestConformanceBare: a rail that can do nothing but send.
func TestConformanceBare(t *testing.T) {
	cfg := Config{Ranks: 2, Rail: []RailConfig{{Without: btl.CapGet | btl.CapPut | btl.CapInline}}}
	btltest.TestBTL(t, func(t testing.TB, evA, evB btl.Events) *btltest.Pair {
		return newPair(t, cfg, 0, 1, 0, evA, evB)
	})
}
