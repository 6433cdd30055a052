package remote

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func newOffer(path, text string) offer {
	sum := sha256.Sum256([]byte(text))
	return offer{path: path, hash: hex.EncodeToString(sum[:]), size: len(text)}
}

// privateDir returns a new directory that only the user can write to, whatever the umask is.
func privateDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	return dir
}

func mustOpenCache(t *testing.T, dir string) cache {
	t.Helper()
	c, err := openCache(dir)
	require.NoError(t, err)
	return c
}

func newTestCache(t *testing.T) cache {
	t.Helper()
	c := mustOpenCache(t, privateDir(t))
	c.maxBytes = 1000
	return c
}

// makeOld sets back the time of a file's last use.
func makeOld(t *testing.T, path string, age time.Duration) {
	t.Helper()
	then := time.Now().Add(-age)
	require.NoError(t, os.Chtimes(path, then, then))
}

func TestReceivedFileIsFound(t *testing.T) {
	c := newTestCache(t)
	o := newOffer("/nowhere/solver", "program")
	assert.Empty(t, c.find(o))
	path, err := c.receive(o, strings.NewReader("program and more"))
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(c.dir, o.hash, "solver"), path)
	assert.Equal(t, path, c.find(o))
	for _, name := range []string{path, filepath.Dir(path)} {
		info, err := os.Stat(name)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o700), info.Mode()&^os.ModeDir, name)
	}

	for _, bad := range []string{"progra", "programs", ""} {
		other := newOffer("/nowhere/other", "programm")
		_, err := c.receive(other, strings.NewReader(bad))
		require.Error(t, err)
		assert.Empty(t, c.find(other))
	}
	require.NoError(t, os.WriteFile(path, []byte("PROGRAM"), 0o700))
	assert.Empty(t, c.find(o), "a changed file must not be used")
}

func TestFindReturnsExecutableAtOwnPath(t *testing.T) {
	c := newTestCache(t)
	o := newOffer(filepath.Join(privateDir(t), "prog"), "text")
	require.NoError(t, os.WriteFile(o.path, []byte("text"), 0o600))
	assert.Empty(t, c.find(o), "the file is not executable")
	require.NoError(t, os.Chmod(o.path, 0o700))
	assert.Equal(t, o.path, c.find(o))
}

// A file with the right content is not run if another user could change it. The launcher sends it
// instead.
func TestFindRejectsFileThatOthersControl(t *testing.T) {
	for name, expose := range map[string]func(c *cache, path string) error{
		"world-writable directory": func(_ *cache, path string) error { return os.Chmod(filepath.Dir(path), 0o777) },
		"group-writable directory": func(c *cache, path string) (err error) {
			c.user, err = shareWithGroup(filepath.Dir(path), 0o770)
			return err
		},
		"world-writable parent": func(_ *cache, path string) error { return os.Chmod(filepath.Dir(filepath.Dir(path)), 0o777) },
		"world-writable file":   func(_ *cache, path string) error { return os.Chmod(path, 0o702) },
		"group-writable file":   func(c *cache, path string) (err error) { c.user, err = shareWithGroup(path, 0o720); return err },
		"file of another user":  func(c *cache, path string) (err error) { c.user, err = giveAway(path); return err },
		"directory of another user": func(c *cache, path string) (err error) {
			c.user, err = giveAway(filepath.Dir(path))
			return err
		},
		"not a regular file": func(_ *cache, path string) error {
			return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o700))
		},
	} {
		c := newTestCache(t)
		dir := filepath.Join(privateDir(t), "bin")
		require.NoError(t, os.Mkdir(dir, 0o700))
		o := newOffer(filepath.Join(dir, "prog"), "text")
		require.NoError(t, os.WriteFile(o.path, []byte("text"), 0o700))
		require.Equal(t, o.path, c.find(o), name)
		before := c.user
		require.NoError(t, expose(&c, o.path), name)
		assert.Empty(t, c.find(o), name)

		c.user = before
		path, err := c.receive(o, strings.NewReader("text"))
		require.NoError(t, err, name)
		assert.Equal(t, filepath.Join(c.dir, o.hash, "prog"), path)
		assert.NotEqual(t, "", c.find(o), name)
	}
}

// A cached file that another user could change is sent again and replaced.
func TestFindRejectsCachedFileThatOthersControl(t *testing.T) {
	for name, expose := range map[string]func(path string) error{
		"world-writable": func(path string) error { return os.Chmod(path, 0o777) },
		"a symbolic link": func(path string) error {
			elsewhere := filepath.Join(privateDir(t), "solver")
			return errors.Join(os.Rename(path, elsewhere), os.Symlink(elsewhere, path))
		},
	} {
		c := newTestCache(t)
		o := newOffer("/nowhere/solver", "program")
		path, err := c.receive(o, strings.NewReader("program"))
		require.NoError(t, err)
		require.NoError(t, expose(path), name)
		assert.Empty(t, c.find(o), name)
		again, err := c.receive(o, strings.NewReader("program"))
		require.NoError(t, err, name)
		assert.Equal(t, path, again)
		assert.Equal(t, path, c.find(o), name)
	}
}

// A directory in the cache that others may write to, or that is a symbolic link, is not used.
func TestReceiveIntoSharedDirectoryFails(t *testing.T) {
	c := newTestCache(t)
	o := newOffer("/nowhere/solver", "program")
	dir := filepath.Dir(c.path(o))
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.Chmod(dir, 0o777))
	_, err := c.receive(o, strings.NewReader("program"))
	assert.EqualError(t, err, "others may write to "+dir)
	assert.Empty(t, c.find(o))

	require.NoError(t, os.Remove(dir))
	require.NoError(t, os.Symlink(privateDir(t), dir))
	_, err = c.receive(o, strings.NewReader("program"))
	assert.EqualError(t, err, dir+" is reached through a symbolic link")
}

func TestEvictRemovesLeastRecentlyUsed(t *testing.T) {
	c := newTestCache(t)
	c.maxBytes = 250
	paths := map[string]string{}
	offerOf := func(name string) offer { return newOffer("/nowhere/"+name, strings.Repeat(name, 100)) }
	receive := func(name string) {
		path, err := c.receive(offerOf(name), strings.NewReader(strings.Repeat(name, 100)))
		require.NoError(t, err)
		paths[name] = path
	}
	receive("a")
	receive("b")
	makeOld(t, filepath.Dir(paths["a"]), 20*time.Hour)
	makeOld(t, filepath.Dir(paths["b"]), 10*time.Hour)
	require.Equal(t, paths["a"], c.find(offerOf("a")))
	receive("c")
	assert.FileExists(t, paths["a"], "a was used after b")
	assert.NoFileExists(t, paths["b"])
	assert.FileExists(t, paths["c"])
	require.NoError(t, os.Mkdir(filepath.Join(c.dir, "unrelated"), 0o700))
	makeOld(t, filepath.Join(c.dir, "unrelated"), 2*time.Hour)
	makeOld(t, filepath.Dir(paths["a"]), 2*time.Hour)
	c.maxBytes = 0
	c.evict()
	assert.DirExists(t, filepath.Join(c.dir, "unrelated"))
	assert.NoFileExists(t, paths["a"])

	// The programs of one job do not evict each other, however large they are.
	receive("d")
	assert.FileExists(t, paths["c"])
	assert.FileExists(t, paths["d"])
}

// A good file that another start has published in the meantime stays. A bad one is replaced.
func TestReceiveKeepsGoodFileAndReplacesBad(t *testing.T) {
	for _, named := range []bool{false, true} {
		c := newTestCache(t)
		c.noTmpfile = named
		o := newOffer("/nowhere/solver", "program")
		path, err := c.receive(o, strings.NewReader("program"))
		require.NoError(t, err)
		first, err := os.Stat(path)
		require.NoError(t, err)
		_, err = c.receive(o, strings.NewReader("program"))
		require.NoError(t, err)
		second, err := os.Stat(path)
		require.NoError(t, err)
		assert.True(t, os.SameFile(first, second))
		require.NoError(t, os.WriteFile(path, []byte("PROGRAM"), 0o700))
		_, err = c.receive(o, strings.NewReader("program"))
		require.NoError(t, err)
		assert.Equal(t, path, c.find(o))
		assert.Equal(t, 1, countEntries(t, filepath.Dir(path)))
		assert.Equal(t, 1, countEntries(t, c.dir))
	}
}

func TestEnvironDropsHostSpecificVariables(t *testing.T) {
	assert.Equal(t, []string{"PATH=/bin", "HOSTNAMES=x"}, Environ([]string{"PATH=/bin", "SSH_TTY=/dev/pts/1", "HOSTNAME=a", "HOSTNAMES=x", "DISPLAY=:0"}))
	dir := t.TempDir()
	local := []string{"PATH=/other", "HOSTNAME=b", "SSH_CLIENT=c", "TMPDIR=" + dir}
	assert.Equal(t, []string{"PATH=/bin", "HOSTNAME=b", "SSH_CLIENT=c", "TMPDIR=" + dir}, addLocalVariables([]string{"PATH=/bin", "TMPDIR=/no/such/dir"}, local))
	assert.Equal(t, []string{"HOSTNAME=mine", "TMPDIR=/", "SSH_CLIENT=c"}, addLocalVariables([]string{"HOSTNAME=mine", "TMPDIR=/"}, local), "the user's own values must stay")
}

// Every host is in the tree once, and no host has more than fanOut children.
func TestSplitTreeReachesEveryHostOnce(t *testing.T) {
	for _, n := range []int{1, 2, 16, 17, 40, 300, 1000} {
		names, hosts := make([]string, n), make([]int, n)
		for i := range hosts {
			hosts[i] = i
		}
		seen := make([]bool, n)
		var visit func(hosts []int, depth int)
		visit = func(hosts []int, depth int) {
			children := splitTree(hosts, names)
			assert.LessOrEqual(t, len(children), fanOut)
			assert.LessOrEqual(t, depth, 2)
			for _, c := range children {
				assert.False(t, seen[c.host])
				seen[c.host] = true
				if len(c.descendants) > 0 {
					visit(c.descendants, depth+1)
				}
			}
		}
		visit(hosts, 0)
		assert.NotContains(t, seen, false)
	}
}

func TestLineWriterSplitsAndCleansLines(t *testing.T) {
	var lines []string
	w := &lineWriter{line: func(s string) { lines = append(lines, s) }}
	for _, p := range []string{"one\ntw", "o\n\n\x1b[31mred\r\n", strings.Repeat("x", 2*maxLineBytes+1), "\nend\n"} {
		n, err := w.Write([]byte(p))
		require.NoError(t, err)
		assert.Equal(t, len(p), n)
	}
	long := strings.Repeat("x", maxLineBytes)
	assert.Equal(t, []string{"one", "two", "[31mred", long, long, "x", "end"}, lines)
}

// A line that is dropped is dropped as a whole, however long it is and however it arrives.
func TestLineWriterDropsRestOfLine(t *testing.T) {
	dropped := "cat: script " + strings.Repeat("x", 3*maxLineBytes) + ": no such file"
	for _, size := range []int{1, 7, maxLineBytes, maxLineBytes + 1, 10 * maxLineBytes} {
		var lines []string
		w := &lineWriter{
			line: func(s string) { lines = append(lines, s) },
			drop: func(s string) bool { return strings.Contains(s, "script") },
		}
		for text := range slices.Chunk([]byte("before\n"+dropped+"\nafter\n"), size) {
			_, err := w.Write(text)
			require.NoError(t, err)
		}
		assert.Equal(t, []string{"before", "after"}, lines, "in writes of %d bytes", size)
	}
}

func TestSelfSendsOwnFile(t *testing.T) {
	self, err := thisProgram()
	require.NoError(t, err)
	var b bytes.Buffer
	pieces := 0
	require.NoError(t, self.send(progressWriter{&b, func() { pieces++ }}))
	assert.Greater(t, pieces, 1, "progress must be called several times")
	sum := sha256.Sum256(b.Bytes())
	assert.Equal(t, hex.EncodeToString(sum[:]), self.hash)
}

func TestShellWordQuotes(t *testing.T) {
	for word, want := range map[string]string{
		"ssh": "ssh", "BatchMode=yes": "BatchMode=yes", "/a/b.c": "/a/b.c", "me@[::1]": "'me@[::1]'", "": "''",
		"sleep 100": "'sleep 100'", "it's": `'it'\''s'`, "$HOME": "'$HOME'", "ä": "ä",
	} {
		assert.Equal(t, want, shellWord(word))
	}
}
