package ibverbs

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/progress"
)

// fabricClock is a fabric's time. A virtual one stands while nothing is under way: pass then moves
// it.
type fabricClock struct {
	f     *simhca.Fabric
	extra *int64
}

func (c fabricClock) Now() int64 { return int64(c.f.Now()) + *c.extra }

func (c fabricClock) pass() {
	if !c.f.Advance() {
		*c.extra += int64(time.Millisecond)
	}
}

// zeros is a source of randomness for simulations, which are to be the same each time.
type zeros struct{ next byte }

func (z *zeros) Read(b []byte) (int, error) {
	for i := range b {
		z.next = z.next*13 + 7
		b[i] = z.next
	}
	return len(b), nil
}

// simPair makes two modules on a simulated network.
func simPair(t testing.TB, net simhca.Config, cfg Config, evA, evB btl.Events) *btltest.Pair {
	f := simhca.NewFabric(net)
	p := &btltest.Pair{RankA: 0, RankB: 1, WakeupA: progress.NewChanWakeup(), WakeupB: progress.NewChanWakeup(), Close: f.Close}
	if net.Virtual {
		clock := fabricClock{f, new(int64)}
		p.Serial, p.Allocates = true, true
		p.Idle, cfg.Pass, cfg.Clock = clock.pass, clock.pass, clock
	}
	mk := func(rank int, ev btl.Events, bell progress.Wakeup) btl.Module {
		cfg := cfg
		cfg.Rank, cfg.Size, cfg.Events, cfg.Wakeup, cfg.Secret = rank, 2, ev, bell, testSecret
		cfg.Provider, cfg.Device = f.NewNode(simhca.DeviceConfig{Name: "sim0"}), "sim0"
		cfg.Random = &zeros{byte(rank)}
		m, err := New(cfg)
		require.NoError(t, err)
		return m
	}
	p.A, p.B = mk(0, evA, p.WakeupA), mk(1, evB, p.WakeupB)
	return p
}

func TestConformance(t *testing.T) {
	btltest.TestBTL(t, func(t testing.TB, evA, evB btl.Events) *btltest.Pair {
		return simPair(t, simhca.Config{}, Config{}, evA, evB)
	})
}

// TestConformanceNarrow: the shortest queues, and fragments of which none goes inline.
func TestConformanceNarrow(t *testing.T) {
	btltest.TestBTL(t, func(t testing.TB, evA, evB btl.Events) *btltest.Pair {
		return simPair(t, simhca.Config{}, Config{FragBytes: 300, RecvDepth: 8, SendDepth: 4}, evA, evB)
	})
}

func TestConformanceVirtual(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			btltest.TestBTL(t, func(t testing.TB, evA, evB btl.Events) *btltest.Pair {
				return simPair(t, simhca.Config{Seed: seed, Virtual: true, Jitter: 3 * time.Microsecond}, Config{}, evA, evB)
			})
		})
	}
}

// TestConformanceRings: with small fragments by remote writes, from the first on.
func TestConformanceRings(t *testing.T) {
	rings := Config{EagerPeers: 1, EagerAfter: 1}
	narrow := Config{FragBytes: 300, RecvDepth: 8, SendDepth: 4, EagerPeers: 1, EagerAfter: 1}
	for _, c := range []struct {
		name string
		net  simhca.Config
		cfg  Config
	}{
		{"real", simhca.Config{}, rings},
		{"late", simhca.Config{Latency: 20 * time.Microsecond}, rings},
		{"narrow", simhca.Config{}, narrow},
		{"virtual", simhca.Config{Virtual: true, Jitter: 3 * time.Microsecond}, rings},
	} {
		t.Run(c.name, func(t *testing.T) {
			var modules []*module
			btltest.TestBTL(t, func(t testing.TB, evA, evB btl.Events) *btltest.Pair {
				p := simPair(t, c.net, c.cfg, evA, evB)
				modules = append(modules, p.A.(*module), p.B.(*module))
				return p
			})
			n := 0
			for _, m := range modules {
				n += m.ahead
			}
			require.Positive(t, n, "nothing was found in memory")
		})
	}
}
