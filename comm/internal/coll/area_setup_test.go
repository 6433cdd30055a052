package coll

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestSetUpWordsOfOtherCalls: a combination of set-up words by another call is invalid.
func TestSetUpWordsOfOtherCalls(t *testing.T) {
	for _, block := range []int{0, 128, 1 << 20, 1<<32 - 128} {
		word := setUpWord(block)
		assert.True(t, isSetUp(word))
		for _, other := range []uint64{1, math.MaxUint64, word, setUpWord(0) + 1, 1 << 32} {
			assert.False(t, isSetUp(word+other), "%#x + %#x", word, other)
		}
		for _, factor := range []uint64{2, 3, math.MaxUint64, word} {
			assert.False(t, isSetUp(word*factor), "%#x * %#x", word, factor)
		}
	}
	assert.False(t, isSetUp(0))
}
