package comm

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/internal/tunable"
)

// TestSyncChoiceIsRepeatable: a seed makes the same choice at every rank and in every run, of a
// quarter of the sends.
func TestSyncChoiceIsRepeatable(t *testing.T) {
	choose := func(mode tunable.CheckMode, seed int64) (out []bool, chosen int) {
		s := newSyncChoice(mode, seed)
		for range 4000 {
			is := s.next()
			if out = append(out, is); is {
				chosen++
			}
		}
		return out, chosen
	}
	first, n := choose(tunable.Check, 1)
	assert.InDelta(t, 1000, n, 120)
	again, _ := choose(tunable.Check, 1)
	assert.Equal(t, first, again)
	other, n := choose(tunable.Check, 2)
	assert.InDelta(t, 1000, n, 120)
	assert.NotEqual(t, first, other)
	_, n = choose(tunable.CheckStrict, 1)
	assert.Equal(t, 4000, n)
}
