package railsim

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/network"
	"github.com/mpigo/mpigo/internal/race"
)

// No seed breaks an invariant.
func TestSeedsKeepInvariants(t *testing.T) {
	seeds := race.Some(uint64(100))
	if race.Enabled {
		seeds /= 10
	}
	for seed := uint64(1); seed <= max(seeds, 1); seed++ {
		r := Run(seed, Options{CarriesOn: true})
		for _, f := range r.Failures {
			t.Errorf("seed %d (%s): %v", seed, r.Plan, f)
		}
	}
}

// The same seed gives the same result.
func TestSameSeedGivesSameResult(t *testing.T) {
	skipIfBrief(t)
	for _, seed := range []uint64{4, 11, 24} {
		assert.Equal(t, Run(seed, Options{}).String(), Run(seed, Options{}).String())
	}
}

// With the option, a run fails if it takes longer than allowed.
func TestOptionChecksTimes(t *testing.T) {
	skipIfBrief(t)
	p := draw(15)
	require.Greater(t, p.run(Options{}).Nanos, 2*network.Second)
	p = draw(15)
	p.stopNanos = 0
	p.sound = []func(int64) float64{network.Steady(1e12)}
	assert.Contains(t, p.run(Options{CarriesOn: true}).broken(), "time")
}

// With the option, a run fails if a sound rail has failed.
func TestOptionChecksFailures(t *testing.T) {
	skipIfBrief(t)
	seed := uint64(1)
	for len(draw(seed).faults) == 0 || Run(seed, Options{}).RailsFailed == 0 {
		seed++
	}
	p := draw(seed)
	p.mayFail = make([][]span, len(p.cfg.rails))
	assert.Contains(t, p.run(Options{CarriesOn: true}).broken(), "failure")
}

// broken are the invariants that a run broke.
func (r *Result) broken() (list []string) {
	for _, f := range r.Failures {
		list = append(list, f.Invariant)
	}
	return list
}

func TestLedgerCountsWhatComesAgain(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		var l ledger
		seen := [100]bool{}
		for range 30 {
			from := rng.Int64N(100)
			s := span{from, from + rng.Int64N(101-from)}
			again := int64(0)
			for i := s.from; i < s.to; i++ {
				if seen[i] {
					again++
				}
				seen[i] = true
			}
			require.Equal(t, again, l.add(s))
			require.True(t, slices.IsSortedFunc(l.spans, func(a, b span) int { return int(a.to - b.from) }))
		}
	}
}

func TestPlaceIn(t *testing.T) {
	buf := make([]byte, 100)
	s, ok := placeIn(buf, buf[10:30])
	assert.Equal(t, [2]any{span{10, 30}, true}, [2]any{s, ok})
	for _, other := range [][]byte{nil, make([]byte, 10)} {
		_, ok = placeIn(buf, other)
		assert.False(t, ok)
	}
}

func TestWriteAfterCompletionIsFound(t *testing.T) {
	m := &message{out: make([]byte, 10), in: make([]byte, 10+guard), isChecked: true}
	m.reuse()
	require.NoError(t, m.checkReused())
	m.in[3] = 0
	require.Error(t, m.checkReused())
}
