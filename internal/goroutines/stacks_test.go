package goroutines

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestStacksAreBounded: the buffer grows as the stacks need, up to maxTextBytes.
func TestStacksAreBounded(t *testing.T) {
	for _, n := range []int{100, 1 << 20, maxTextBytes - 1, maxTextBytes, 3 * maxTextBytes} {
		largest := 0
		text, isCut := stackText(func(buf []byte, all bool) int {
			assert.True(t, all)
			largest = max(largest, len(buf))
			return min(n, len(buf))
		})
		assert.Len(t, text, min(n, maxTextBytes))
		assert.LessOrEqual(t, largest, maxTextBytes)
		assert.Equal(t, n >= maxTextBytes, isCut, n)
	}
}
