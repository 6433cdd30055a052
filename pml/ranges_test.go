package pml

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// checkRanges adds a range, and compares the set with a model that has a flag for each byte.
func checkRanges(t *testing.T, s *ranges, model []bool, from, to int) {
	t.Helper()
	fresh, bytes := int64(0), int64(0)
	for i := from; i < to; i++ {
		if !model[i] {
			model[i] = true
			fresh++
		}
	}
	require.Equal(t, fresh, s.add(int64(from), int64(to)), "%d to %d", from, to)
	var want []byteRange
	for i, is := range model {
		switch last := len(want) - 1; {
		case !is:
			continue
		case last >= 0 && want[last].to == int64(i):
			want[last].to++
		default:
			want = append(want, byteRange{int64(i), int64(i) + 1})
		}
		bytes++
	}
	require.Equal(t, bytes, s.bytes)
	require.ElementsMatch(t, want, s.list)
	for i := 1; i < len(s.list); i++ {
		require.Less(t, s.list[i-1].to, s.list[i].from, "ranges touch, or are not in order")
	}
}

// TestRangesAgainstModel adds random ranges, of which some are empty, inside others, or touch them.
func TestRangesAgainstModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var s ranges
	for range 200 {
		model := make([]bool, 1+rng.IntN(100))
		for range 30 {
			from := rng.IntN(len(model) + 1)
			checkRanges(t, &s, model, from, min(len(model), from+rng.IntN(20)))
		}
		s.reset()
		require.Zero(t, s.bytes)
	}
}

// FuzzRanges is TestRangesAgainstModel with ranges that the fuzzer chooses.
func FuzzRanges(f *testing.F) {
	f.Add([]byte{0, 10, 20, 30, 10, 20})
	f.Add([]byte{5, 5, 0, 255, 3, 7})
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 0, 8})
	f.Fuzz(func(t *testing.T, list []byte) {
		var s ranges
		model := make([]bool, 256)
		for ; len(list) >= 2 && len(list) < 1000; list = list[2:] {
			checkRanges(t, &s, model, int(min(list[0], list[1])), int(max(list[0], list[1])))
		}
	})
}

// TestRangesInOrderAllocateNothing: a message's fragments come almost in order.
func TestRangesInOrderAllocateNothing(t *testing.T) {
	s := ranges{list: make([]byteRange, 0, 4)}
	at := int64(0)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		s.add(at+100, at+200)
		s.add(at, at+100)
		at += 200
	}))
	require.Len(t, s.list, 1)
}
