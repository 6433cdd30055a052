package ibverbs

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/internal/race"
	"github.com/mpigo/mpigo/progress"
)

// pairOf makes the modules of two ranks with open.
func pairOf(cfg Config, evA, evB btl.Events, open func(cfg Config) *module) *btltest.Pair {
	p := &btltest.Pair{RankB: 1, WakeupA: progress.NewChanWakeup(), WakeupB: progress.NewChanWakeup()}
	cfg.Size, cfg.Events, cfg.Wakeup = 2, evA, p.WakeupA
	p.A = open(cfg)
	cfg.Rank, cfg.Events, cfg.Wakeup = 1, evB, p.WakeupB
	p.B = open(cfg)
	return p
}

// differMost are the configurations for shorter test runs. Never written.
var differMost = map[verbs.LinkLayer][]string{
	verbs.LinkEthernet:   {"real", "narrow", "virtual", "rings-late", "shared-narrow", "shared-rings"},
	verbs.LinkInfiniBand: {"virtual", "rings"},
}

func TestConformance(t *testing.T) { onEachFabric(t, testConformance) }

func testConformance(t *testing.T, link verbs.LinkLayer) {
	// The shortest queues, and no fragment goes inline.
	narrow := Config{FragBytes: 300, RecvDepth: 8, SendDepth: 4}
	virtual := simhca.Config{Virtual: true, Jitter: 3 * time.Microsecond}
	virtual1 := virtual
	virtual1.Seed = 1
	configurations := map[string]struct {
		net simhca.Config
		cfg Config
	}{
		"real":          {},
		"narrow":        {cfg: narrow},
		"virtual":       {net: virtual},
		"virtual-1":     {net: virtual1},
		"rings":         {cfg: withRings(Config{})},
		"rings-late":    {net: simhca.Config{Latency: 20 * time.Microsecond}, cfg: withRings(Config{})},
		"rings-narrow":  {cfg: withRings(narrow)},
		"rings-virtual": {net: virtual, cfg: withRings(Config{})},

		"shared":         {cfg: withSharedReceives(Config{})},
		"shared-narrow":  {cfg: withSharedReceives(narrow)},
		"shared-virtual": {net: virtual1, cfg: withSharedReceives(Config{})},
		"shared-rings":   {cfg: withSharedReceives(withRings(Config{}))},
		"shared-least":   {cfg: withSharedReceives(Config{SharedDepth: leastShared})},
	}
	for _, name := range differMost[link] {
		require.Contains(t, configurations, name)
	}
	for name, c := range configurations {
		if link == verbs.LinkInfiniBand && !slices.Contains([]string{"virtual", "rings", "shared"}, name) {
			continue // the kind of address does not matter for the others
		}
		if race.Brief() && c.net.Virtual {
			continue // with one goroutine there is no race to find
		}
		if !race.All() && !slices.Contains(differMost[link], name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			var modules []*module
			btltest.TestBTL(t, func(t testing.TB, evA, evB btl.Events) *btltest.Pair {
				net := c.net
				net.Link = link
				f := simhca.NewFabric(net)
				clock, cfg := fabricClock{f, new(int64)}, c.cfg
				if c.net.Virtual {
					cfg.Pass, cfg.Clock = clock.pass, clock
				}
				p := pairOf(cfg, evA, evB, func(cfg Config) *module {
					m, _ := openSim(t, f, simhca.DeviceConfig{}, cfg)
					modules = append(modules, m)
					return m
				})
				p.Close = f.Close
				if c.net.Virtual {
					p.Serial, p.Allocates, p.Idle = true, true, clock.pass
				}
				return p
			})
			ahead := 0
			for _, m := range modules {
				ahead += m.ahead
			}
			require.Equal(t, c.cfg.EagerPeers > 0, ahead > 0, "fragments were found in rings")
		})
	}
}
