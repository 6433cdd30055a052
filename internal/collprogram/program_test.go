package collprogram_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/collprogram"
)

func TestProgramFollowsFromSeedAndRanks(t *testing.T) {
	for seed := range uint64(100) {
		p := collprogram.New(seed, 3)
		require.Equal(t, p.String(), collprogram.New(seed, 3).String())
		assert.NotEqual(t, p.String(), collprogram.New(seed+1, 3).String())
		p.Cut(p.Len() / 2)
		assert.NotEqual(t, p.String(), collprogram.New(seed, 3).String())
	}
}

func TestProgramNeedsItsNumberOfRanks(t *testing.T) {
	assert.ErrorContains(t, comm.RunLocal(2, collprogram.New(1, 3).Run), "the program has 3 ranks, not 2")
}

// TestEveryCallAgainstModel: the model knows each call in each form.
func TestEveryCallAgainstModel(t *testing.T) {
	for _, id := range collprogram.IDs() {
		for _, inPlace := range []bool{false, true} {
			for form := collprogram.Blocking; form <= collprogram.Persistent; form++ {
				require.NoError(t, comm.RunLocal(3, func(w *comm.Comm) error {
					return (&collprogram.Call{ID: id, Count: 10, Root: 1, InPlace: inPlace, Counts: []int{3, 0, 10}, Gap: 1}).Check(w, form)
				}))
			}
		}
	}
}

// TestCheckFindsMissingResult: before the call, at least one rank does not have its result.
func TestCheckFindsMissingResult(t *testing.T) {
	for _, id := range collprogram.IDs() {
		if id == calls.Barrier {
			continue
		}
		c := &collprogram.Call{ID: id, Count: 10, Counts: []int{3, 10}}
		assert.Error(t, errors.Join(c.Prepare(0, 2).Check(), c.Prepare(1, 2).Check()), id)
	}
}

// TestProgramsHaveEveryCollective: they have each collective of the table of calls, except those
// that need a topology.
func TestProgramsHaveEveryCollective(t *testing.T) {
	for _, id := range calls.All() {
		if id.HasAllForms() && id.Form() == calls.Blocking && id.Flow() != calls.FromNeighbors {
			assert.Contains(t, collprogram.IDs(), id, "%v is missing in kinds (call.go)", id.Go())
		}
	}
}
