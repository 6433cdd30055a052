package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
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
	setUmask(t, 0o027)
	for _, text := range []string{"one", "two"} {
		require.NoError(t, Write(path, 0o666, put(text)))
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

// setUmask sets the umask of the process, and restores it when the test ends.
func setUmask(t *testing.T, mask int) {
	old := syscall.Umask(mask)
	t.Cleanup(func() { syscall.Umask(old) })
}

func TestFilesHonourUmask(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		mask       int
		mode, want os.FileMode
	}{{0o077, 0o666, 0o600}, {0o022, 0o666, 0o644}, {0o002, 0o666, 0o664}, {0, 0o666, 0o666}, {0, 0o600, 0o600}} {
		setUmask(t, c.mask)
		written, created := filepath.Join(dir, "written"), filepath.Join(dir, "created")
		require.NoError(t, Write(written, c.mode, put("x")))
		f, err := Create(created, c.mode)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		for _, path := range []string{written, created} {
			info, err := os.Lstat(path)
			require.NoError(t, err)
			assert.Equal(t, c.want, info.Mode(), path)
		}
	}
}

func TestCreateReplacesFileAndLink(t *testing.T) {
	dir := t.TempDir()
	path, victim := filepath.Join(dir, "a"), filepath.Join(t.TempDir(), "victim")
	require.NoError(t, os.WriteFile(victim, []byte("precious"), 0o600))
	require.NoError(t, os.Symlink(victim, path))
	for _, text := range []string{"one", "two"} {
		f, err := Create(path, 0o666)
		require.NoError(t, err)
		assert.Equal(t, path, f.Name(), "for its errors")
		_, err = f.WriteString(text)
		require.NoError(t, errors.Join(err, f.Close()))
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, text, string(got))
	}
	got, err := os.ReadFile(victim)
	require.NoError(t, err)
	assert.Equal(t, "precious", string(got))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "d"), 0o777))
	_, err = Create(filepath.Join(dir, "d"), 0o666)
	assert.EqualError(t, err, "create "+dir+"/d: file exists")
	_, err = Create(filepath.Join(dir, "none", "b"), 0o666)
	assert.EqualError(t, err, "create "+dir+"/none/b: no such file or directory")
	assert.Equal(t, []string{"a", "d"}, names(t, dir))
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
