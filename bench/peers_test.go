package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The programs for the peers measure as often, and as much at a time, as this one.
func TestPeersHaveTheSameNumbers(t *testing.T) {
	text, err := os.ReadFile("peers/bench.h")
	require.NoError(t, err)
	defined := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^#define ([A-Z_]+) (.+)$`).FindAllStringSubmatch(string(text), -1) {
		defined[m[1]] = m[2]
	}
	all := func(c counts) string {
		return fmt.Sprintf("{%d, %d, %d, %d}", c.small, c.smallWarmUp, c.large, c.largeWarmUp)
	}
	bytes := func(n int) string {
		if n%(1<<20) == 0 {
			return fmt.Sprintf("(%dL << 20)", n>>20)
		}
		return fmt.Sprintf("(%dL << 10)", n>>10)
	}
	for name, want := range map[string]string{
		"DEFAULT_WINDOW":     fmt.Sprint(defaultWindow),
		"DEFAULT_POOL_BYTES": bytes(defaultPoolBytes),
		"LARGE_BYTES":        bytes(largeBytes),
		"LATENCY_COUNTS":     all(latencyCounts),
		"BANDWIDTH_COUNTS":   all(bandwidthCounts),
		"COLLECTIVE_COUNTS":  all(collectiveCounts),
		"PAIR_BYTES":         bytes(pairBytes),
		"COLLECTIVE_BYTES":   bytes(collectiveBytes),
		"VALIDATIONS":        fmt.Sprint(validations),
		"MAX_SIZES":          fmt.Sprint(maxSizes),
	} {
		assert.Equal(t, want, defined[name], name)
	}

	// And they have the same benchmarks.
	text, err = os.ReadFile("peers/main.c")
	require.NoError(t, err)
	for _, b := range table() {
		assert.True(t, strings.Contains(string(text), `("`+b.name+`"`) || strings.Contains(string(text), `"`+b.name+`",`), b.name)
	}
}
