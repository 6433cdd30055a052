package diagnose

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/jobsocket"
)

func TestWriteDirOpensNoFileThatExists(t *testing.T) {
	dir, victim := t.TempDir(), filepath.Join(t.TempDir(), "victim")
	require.NoError(t, os.WriteFile(victim, []byte("precious"), 0o600))
	require.NoError(t, os.Symlink(victim, filepath.Join(dir, "report.txt")))
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "rank.0.txt"), 0o666)) // nobody reads it
	report := New(jobsocket.Info{Name: "a"}, []introspect.Member{{State: introspect.StateFinalized}})
	for range 2 {
		require.NoError(t, report.WriteDir(dir))
	}
	text, err := os.ReadFile(victim)
	require.NoError(t, err)
	assert.Equal(t, "precious", string(text))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
		info, err := e.Info()
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode(), e.Name())
	}
	assert.Equal(t, []string{"rank.0.txt", "report.json", "report.txt"}, names)
}
