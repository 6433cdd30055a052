package main

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPeerProgramHasTheSameNumbers compares the C program for other libraries with this one.
func TestPeerProgramHasTheSameNumbers(t *testing.T) {
	text, err := os.ReadFile("peers/peer.c")
	require.NoError(t, err)
	defined := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^#define ([A-Z_]+) (.+)$`).FindAllStringSubmatch(string(text), -1) {
		defined[m[1]] = m[2]
	}
	all := func(c counts) string {
		return fmt.Sprintf("{%d, %d, %d, %d}", c.small, c.smallWarmUp, c.large, c.largeWarmUp)
	}
	assert.Equal(t, map[string]string{
		"WINDOW":            fmt.Sprint(defaultWindow),
		"POOL_BYTES":        fmt.Sprintf("(%dL << 20)", defaultPoolBytes>>20),
		"LARGE_BYTES":       fmt.Sprintf("(%dL << 10)", largeBytes>>10),
		"LATENCY_COUNTS":    all(latencyCounts),
		"BANDWIDTH_COUNTS":  all(bandwidthCounts),
		"COLLECTIVE_COUNTS": all(collectiveCounts),
		"MAX_SIZES":         fmt.Sprint(maxSizes),
	}, defined)
	names := regexp.MustCompile(`(?m)^    {"([a-z_]+)", `).FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, names)
	for _, name := range names {
		_, known := find(name[1])
		assert.True(t, known, name[1])
	}
}
