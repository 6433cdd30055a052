package sm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
	"github.com/mpigo/mpigo/internal/race"
	"github.com/mpigo/mpigo/progress"
)

// TestMain lets this program also be the other process of a test.
func TestMain(m *testing.M) {
	btltest.Main(m, map[string]btltest.Role{
		"serve": btltest.ServeRole(opener(Config{RingSlots: 16})),
		"echo":  echoRole,
		"pull":  pullRole,
		"owner": ownerRole,
		"mesh":  meshRole,
		"spin":  spinRole,
		"waker": wakerRole, "sharer": sharerRole,
	})
}

// opener makes modules of a job of three ranks.
func opener(cfg Config) btltest.Opener {
	return func(rank int, ev btl.Events, wakeup *progress.PipeWakeup) (btl.Module, error) {
		cfg := cfg
		cfg.Rank, cfg.Size, cfg.Events, cfg.Wakeup = rank, 3, ev, wakeup
		return New(cfg)
	}
}

func TestConformance(t *testing.T) {
	// The rings are so small that they are constantly full and wrap around.
	small := opener(Config{RingSlots: 4, FragBytes: 4096})
	fenced := func(t testing.TB, evA, evB btl.Events) *btltest.Pair {
		p := btltest.Pairs(0, 2, opener(Config{}))(t, evA, evB)
		withoutBarrier(t, p.A.(*module))
		withoutBarrier(t, p.B.(*module))
		return p
	}
	for name, mk := range map[string]btltest.Maker{
		"default":       btltest.Pairs(0, 2, opener(Config{})),
		"small":         btltest.Pairs(0, 2, small),
		"fenced":        fenced,
		"two processes": btltest.RemotePairs("serve", opener(Config{RingSlots: 16})),
	} {
		if name == "default" && !race.All() {
			continue // fenced has the same rings
		}
		t.Run(name, func(t *testing.T) { btltest.TestBTL(t, mk) })
	}
}

// withoutBarrier makes a module as on a kernel without membarrier.
func withoutBarrier(t testing.TB, m *module) {
	c, ok := parseAddress(m.Address())
	require.True(t, ok)
	c.fences, m.fences = false, false
	copy(m.Address(), c.encode())
}
