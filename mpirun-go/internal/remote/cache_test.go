package remote

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func offerOf(path, text string) offer {
	sum := sha256.Sum256([]byte(text))
	return offer{path: path, hash: hex.EncodeToString(sum[:]), size: len(text)}
}

func TestCache(t *testing.T) {
	c := cache{dir: filepath.Join(t.TempDir(), "cache"), bound: 1000}
	o := offerOf("/nowhere/solver", "program")
	assert.Empty(t, c.find(o))
	path, err := c.receive(o, strings.NewReader("program and more"))
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(c.dir, o.hash, "solver"), path)
	assert.Equal(t, path, c.find(o))
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode())
	info, err = os.Stat(c.dir)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())

	for _, bad := range []string{"progra", "programs", ""} {
		other := offerOf("/nowhere/other", "programm")
		_, err := c.receive(other, strings.NewReader(bad))
		require.Error(t, err)
		assert.Empty(t, c.find(other))
	}
	require.NoError(t, os.WriteFile(path, []byte("PROGRAM"), 0o700))
	assert.Empty(t, c.find(o), "what was changed is not used")
}

func TestFileThatIsThere(t *testing.T) {
	c := cache{dir: filepath.Join(t.TempDir(), "cache"), bound: 1000}
	o := offerOf(filepath.Join(t.TempDir(), "prog"), "text")
	require.NoError(t, os.WriteFile(o.path, []byte("text"), 0o600))
	assert.Empty(t, c.find(o), "not executable")
	require.NoError(t, os.Chmod(o.path, 0o700))
	assert.Equal(t, o.path, c.find(o))
}

func TestEviction(t *testing.T) {
	c := cache{dir: t.TempDir(), bound: 250}
	paths := map[string]string{}
	unused := func(name string, hours int) {
		then := time.Now().Add(-time.Duration(hours) * time.Hour)
		require.NoError(t, os.Chtimes(filepath.Dir(paths[name]), then, then))
	}
	receive := func(name string) {
		o := offerOf("/nowhere/"+name, strings.Repeat(name, 100))
		path, err := c.receive(o, strings.NewReader(strings.Repeat(name, 100)))
		require.NoError(t, err)
		paths[name] = path
	}
	receive("a")
	receive("b")
	unused("a", 2)
	unused("b", 10)
	receive("c")
	assert.FileExists(t, paths["a"], "used after b")
	assert.NoFileExists(t, paths["b"])
	assert.FileExists(t, paths["c"])
	require.NoError(t, os.Mkdir(filepath.Join(c.dir, "not ours"), 0o700))
	old := time.Now().Add(-2 * time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(c.dir, "not ours"), old, old))
	c.bound = 0
	c.evict()
	assert.DirExists(t, filepath.Join(c.dir, "not ours"))
	assert.NoFileExists(t, paths["a"])

	// The programs of one job do not drive each other out, however large they are.
	receive("d")
	assert.FileExists(t, paths["c"])
	assert.FileExists(t, paths["d"])
}

// A file that has come there meanwhile and is good stays as it is; one that is not is replaced.
func TestReceiveWhatIsThere(t *testing.T) {
	c := cache{dir: t.TempDir(), bound: 1000}
	o := offerOf("/nowhere/solver", "program")
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
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, left, 1)
}

func TestCacheOfSomebodyElse(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Symlink(t.TempDir(), filepath.Join(dir, "cache")))
	c := cache{dir: filepath.Join(dir, "cache"), bound: 1000}
	_, err := c.receive(offerOf("/nowhere/x", "x"), strings.NewReader("x"))
	assert.ErrorContains(t, err, "is not a directory of the user's own")
}

func TestHostBound(t *testing.T) {
	assert.Equal(t, []string{"PATH=/bin", "HOSTNAMES=x"}, Environ([]string{"PATH=/bin", "SSH_TTY=/dev/pts/1", "HOSTNAME=a", "HOSTNAMES=x", "DISPLAY=:0"}))
	dir := t.TempDir()
	here := []string{"PATH=/other", "HOSTNAME=b", "SSH_CLIENT=c", "TMPDIR=" + dir}
	assert.Equal(t, []string{"PATH=/bin", "HOSTNAME=b", "SSH_CLIENT=c", "TMPDIR=" + dir}, hereBound([]string{"PATH=/bin", "TMPDIR=/no/such/dir"}, here))
	assert.Equal(t, []string{"HOSTNAME=mine", "TMPDIR=/", "SSH_CLIENT=c"}, hereBound([]string{"HOSTNAME=mine", "TMPDIR=/"}, here), "as the user said")
}

// Every host is in the tree once, and none reaches more than it should.
func TestGrow(t *testing.T) {
	for _, n := range []int{1, 2, 16, 17, 40, 300, 1000} {
		names, hosts := make([]string, n), make([]int, n)
		for i := range hosts {
			hosts[i] = i
		}
		seen := make([]bool, n)
		var visit func(hosts []int, depth int)
		visit = func(hosts []int, depth int) {
			children := grow(hosts, names)
			assert.LessOrEqual(t, len(children), fanOut)
			assert.LessOrEqual(t, depth, 2)
			for _, c := range children {
				assert.False(t, seen[c.host])
				seen[c.host] = true
				if len(c.through) > 0 {
					visit(c.through, depth+1)
				}
			}
		}
		visit(hosts, 0)
		assert.NotContains(t, seen, false)
	}
}

func TestScript(t *testing.T) {
	script := (&Self{hash: strings.Repeat("a0", 32), size: 12345}).script()
	assert.NotContains(t, script, "'", "it is quoted so")
	assert.NotContains(t, script, "\n")
	for _, placeholder := range []string{"HASH", "SIZE", "WANT", "DAEMON", "NO_"} {
		assert.NotContains(t, script, placeholder)
	}
}

// Two starts put the program into the cache at the same time: the second finds that of the first, which may run by then, and leaves it.
func TestScriptLeavesAGoodCopy(t *testing.T) {
	program := "#!/bin/sh\necho runs $1\n"
	sum := sha256.Sum256([]byte(program))
	self := &Self{hash: hex.EncodeToString(sum[:]), size: int64(len(program))}
	home := t.TempDir()
	file := filepath.Join(home, "mpigo", self.hash, "mpirun-go")
	type start struct {
		cmd *exec.Cmd
		in  io.WriteCloser
		out *bufio.Reader
	}
	var starts []start
	for range 2 {
		cmd := exec.Command("/bin/sh", "-c", self.script())
		cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+home)
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		s := start{cmd, in, bufio.NewReader(out)}
		for _, want := range []string{"\n", wantLine + self.hash + "\n"} {
			line, err := s.out.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, want, line)
		}
		starts = append(starts, s)
	}
	var first os.FileInfo
	for _, s := range starts {
		_, err := io.WriteString(s.in, program)
		require.NoError(t, err)
		line, err := s.out.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, "runs "+DaemonArg+"\n", line)
		require.NoError(t, s.cmd.Wait())
		info, err := os.Stat(file)
		require.NoError(t, err)
		if first == nil {
			first = info
		}
		assert.True(t, os.SameFile(first, info), "it is the first one still")
	}
	left, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	assert.Len(t, left, 1)
}

func TestLineWriter(t *testing.T) {
	var lines []string
	w := &lineWriter{line: func(s string) { lines = append(lines, s) }}
	for _, p := range []string{"one\ntw", "o\n\n\x1b[31mred\r\n", strings.Repeat("x", 2*maxSaidLine+1), "\nend\n"} {
		n, err := w.Write([]byte(p))
		require.NoError(t, err)
		assert.Equal(t, len(p), n)
	}
	long := strings.Repeat("x", maxSaidLine)
	assert.Equal(t, []string{"one", "two", "[31mred", long, long, "x", "end"}, lines)
}

func TestNewSelf(t *testing.T) {
	self, err := NewSelf()
	require.NoError(t, err)
	var b bytes.Buffer
	pieces := 0
	require.NoError(t, self.send(movingWriter{&b, func() { pieces++ }}))
	assert.Greater(t, pieces, 1, "it is told of its progress")
	sum := sha256.Sum256(b.Bytes())
	assert.Equal(t, hex.EncodeToString(sum[:]), self.hash)
}

func TestShellWord(t *testing.T) {
	for word, want := range map[string]string{
		"ssh": "ssh", "BatchMode=yes": "BatchMode=yes", "/a/b.c": "/a/b.c", "me@[::1]": "'me@[::1]'", "": "''",
		"sleep 100": "'sleep 100'", "it's": `'it'\''s'`, "$HOME": "'$HOME'", "ä": "ä",
	} {
		assert.Equal(t, want, shellWord(word))
	}
}
