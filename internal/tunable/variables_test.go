package tunable

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPageListsOtherVariables: the page of tunables lists the variables that the launcher and the
// library set, too.
func TestPageListsOtherVariables(t *testing.T) {
	page, err := os.ReadFile("../../docs/tunables.md")
	require.NoError(t, err)
	for _, name := range otherVariables {
		require.Contains(t, string(page), "`"+name+"`")
	}
}
