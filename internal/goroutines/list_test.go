package goroutines_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/goroutines"
	"github.com/mpigo/mpigo/internal/introspect"
)

// TestListFindsBlockedGoroutine: the runtime's text is what Parse expects.
func TestListFindsBlockedGoroutine(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	go func() { <-stop }()
	isBlocked := func(g introspect.Goroutine) bool {
		site, ok := goroutines.Site(g.Frames)
		return ok && g.State == "chan receive" && strings.HasSuffix(site.File, "/list_test.go") && site.Line == 19
	}
	require.Eventually(t, func() bool {
		list, isCut := goroutines.List()
		require.False(t, isCut)
		return slices.ContainsFunc(list, isBlocked)
	}, 10*time.Second, time.Millisecond)
}
