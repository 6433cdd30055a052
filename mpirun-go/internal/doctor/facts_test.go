package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/tunable"
)

// files makes files below a new directory.
func files(t *testing.T, contents map[string]string) string {
	root := t.TempDir()
	for name, text := range contents {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
	}
	return root
}

func TestHasCapability(t *testing.T) {
	root := files(t, map[string]string{"proc/self/status": "Name:\tx\nCapPrm:\t0\nCapEff:\t0000000000004000\nCapBnd:\t0\n"})
	assert.True(t, hasCapability(root, capIPCLock))
	assert.False(t, hasCapability(root, capIPCLock+1))
	assert.False(t, hasCapability(t.TempDir(), capIPCLock))
}

func TestCollectOfThisMachine(t *testing.T) {
	f := collect("/", tunable.Set{})
	assert.NotEmpty(t, f.Kernel)
	assert.NotEmpty(t, f.Build)
	assert.Positive(t, f.CPUs)
	assert.Positive(t, f.Files)
	assert.Positive(t, f.ClockNanos)
	assert.NotEmpty(t, f.Interfaces)
}

func TestChosenWord(t *testing.T) {
	assert.Equal(t, "advise", chosenWord("always within_size [advise] never deny force"))
	assert.Empty(t, chosenWord(""))
}

func TestReachOfNoMemoryFails(t *testing.T) {
	assert.Error(t, reach("/proc/self/fd/9999"))
	name := filepath.Join(t.TempDir(), "other")
	require.NoError(t, os.WriteFile(name, make([]byte, sharedBytes), 0o666))
	assert.ErrorContains(t, reach(name), "is not the memory of the rank")
}
