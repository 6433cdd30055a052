package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func put(text string) func(w io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

func names(t *testing.T, dir string) (list []string) {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestWriteReplacesFileAndLink(t *testing.T) {
	dir := t.TempDir()
	path, victim := filepath.Join(dir, "a"), filepath.Join(t.TempDir(), "victim")
	require.NoError(t, os.WriteFile(victim, []byte("precious"), 0o600))
	require.NoError(t, os.Symlink(victim, path))
	for _, text := range []string{"one", "two"} {
		require.NoError(t, Write(path, 0o640, put(text)))
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, text, string(got))
	}
	info, err := os.Lstat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o640), info.Mode())
	got, err := os.ReadFile(victim)
	require.NoError(t, err)
	assert.Equal(t, "precious", string(got))
	assert.Equal(t, []string{"a"}, names(t, dir))
}

func TestWriteThatFailsChangesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	require.NoError(t, Write(path, 0o600, put("old")))
	broken := errors.New("broken")
	err := Write(path, 0o600, func(w io.Writer) error { return errors.Join(put("new")(w), broken) })
	require.ErrorIs(t, err, broken)
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "old", string(got))
	assert.Equal(t, []string{"a"}, names(t, dir))
	require.Error(t, Write(filepath.Join(dir, "none", "a"), 0o600, put("x")))
}

func TestTempPatternMatchesWhatAWriterLeaves(t *testing.T) {
	dir := t.TempDir()
	var left string
	require.NoError(t, Write(filepath.Join(dir, "trace.3.json"), 0o600, func(io.Writer) error {
		left = names(t, dir)[0]
		return nil
	}))
	matches, err := filepath.Match(TempPattern("trace.*.json"), left)
	require.NoError(t, err)
	assert.True(t, matches, left)
}
