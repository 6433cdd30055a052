package records

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestClearRemovesFilesOfItsKindAlone(t *testing.T) {
	for kind, own := range map[Kind][]string{
		Profile:    {"profile.0.json", ".new-profile.12.json.77"},
		Trace:      {"trace.0.json", "trace.12.json"},
		CPUProfile: {"cpu.3.pprof"},
	} {
		dir := filepath.Join(t.TempDir(), "a[b]*") // no pattern
		require.NoError(t, kind.Clear(dir), "it does not exist")
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "trace.d.json"), 0o777))
		others := []string{"cpu.txt", "notes.json", "profile.html", "trace.json"}
		for _, name := range append(own, others...) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o666))
		}
		require.NoError(t, kind.Clear(dir))
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		var left []string
		for _, e := range entries {
			left = append(left, e.Name())
		}
		assert.ElementsMatch(t, append(others, "trace.d.json"), left, kind)
	}
}

func TestClearMatchesPath(t *testing.T) {
	for _, kind := range []Kind{Profile, CPUProfile, Trace} {
		assert.True(t, kind.IsValid())
		assert.True(t, kind.has(filepath.Base(kind.Path("x", 7))), kind)
		assert.Positive(t, kind.MaxBytes())
	}
	assert.False(t, Kind("../x").IsValid())
}
