package comm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/tunable"
)

func settings(t *testing.T, keysAndValues ...string) tunable.Set {
	t.Helper()
	var s tunable.Set
	for i := 0; i < len(keysAndValues); i += 2 {
		var err error
		s, err = s.With(keysAndValues[i], keysAndValues[i+1], tunable.FromCommandLine)
		require.NoError(t, err)
	}
	return s
}

// TestIdlePolicyOfCrowdedRanks: with more ranks than cores, a rank hardly spins and soon sleeps.
// The user's settings have precedence.
func TestIdlePolicyOfCrowdedRanks(t *testing.T) {
	roomy := idlePolicy(settings(t), 4, 4)
	assert.Equal(t, spinTurns, roomy.SpinTurns)
	assert.Equal(t, int64(time.Millisecond), roomy.YieldNanos)
	assert.False(t, roomy.NoSleep)

	crowded := idlePolicy(settings(t), 5, 4)
	assert.LessOrEqual(t, crowded.SpinTurns, 10)
	assert.Equal(t, int64(100*time.Microsecond), crowded.YieldNanos)

	for _, ranks := range []int{1, 100} {
		asked := idlePolicy(settings(t, "progress.spin", "77", "progress.yield", "3ms", "progress.sleep", "false"), ranks, 4)
		assert.Equal(t, 77, asked.SpinTurns)
		assert.Equal(t, int64(3*time.Millisecond), asked.YieldNanos)
		assert.True(t, asked.NoSleep)
	}
	assert.GreaterOrEqual(t, coresOfProcesses(), 1)
}

func TestEagerBytes(t *testing.T) {
	assert.Equal(t, 0, bytesIfSet(settings(t), "pml.eager.bytes"))
	assert.Equal(t, 4096, bytesIfSet(settings(t, "pml.eager.bytes", "4K"), "pml.eager.bytes"))
	assert.Equal(t, 1, bytesIfSet(settings(t, "pml.eager.bytes", "0"), "pml.eager.bytes"))
}

func TestExitStatus(t *testing.T) {
	for code, want := range map[int]int{0: 0, 1: 1, 7: 7, 255: 255, 256: 1, 257: 1, -1: 255, -256: 1} {
		assert.Equal(t, want, exitStatus(code), "%d", code)
	}
}
