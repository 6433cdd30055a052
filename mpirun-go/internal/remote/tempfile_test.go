package remote

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// receiverArg makes this binary receive a file into the cache in the directory that follows. With
// "named:" before the directory, it does not use O_TMPFILE.
const receiverArg = "--test-receiver"

const endlessSize = 1 << 40

func receiveForever(dir string) {
	dir, named := strings.CutPrefix(dir, "named:")
	c, err := openCache(dir)
	if err == nil {
		c.noTmpfile = named
		_, err = c.receive(offer{path: "/nowhere/solver", hash: strings.Repeat("a0", 32), size: endlessSize}, os.Stdin)
	}
	_, _ = io.WriteString(os.Stderr, err.Error()+"\n")
	os.Exit(1)
}

// startReceiver starts such a process, and returns when it has received data.
func startReceiver(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe, receiverArg, dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	sendMebibyte(t, in)
	return cmd
}

// sendMebibyte writes more than a pipe holds, so the reader has read some of it.
func sendMebibyte(t *testing.T, to io.Writer) {
	t.Helper()
	_, err := io.WriteString(to, strings.Repeat("x", 1<<20))
	require.NoError(t, err)
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	require.NoError(t, cmd.Process.Kill())
	require.ErrorContains(t, cmd.Wait(), "signal: killed")
}

func countEntries(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	return len(entries)
}

func TestKilledReceiverLeavesNothing(t *testing.T) {
	dir := privateDir(t)
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o700)
	hasNameless := err == nil // whether the tests' file system supports O_TMPFILE
	if hasNameless {
		require.NoError(t, unix.Close(fd))
	}
	kill(t, startReceiver(t, dir))
	if hasNameless {
		assert.Zero(t, countEntries(t, dir))
	}
	mustOpenCache(t, dir)
	assert.Zero(t, countEntries(t, dir))
}

// openCache removes the named file of a receiver that was killed, and no other.
func TestOpenCacheRemovesFilesOfKilledReceivers(t *testing.T) {
	dir := privateDir(t)
	running, killed := startReceiver(t, "named:"+dir), startReceiver(t, "named:"+dir)
	require.Equal(t, 2, countEntries(t, dir))
	mustOpenCache(t, dir)
	assert.Equal(t, 2, countEntries(t, dir), "both receivers are running")
	kill(t, killed)
	assert.Equal(t, 2, countEntries(t, dir))
	mustOpenCache(t, dir)
	assert.Equal(t, 1, countEntries(t, dir), "one receiver is running")
	kill(t, running)
	mustOpenCache(t, dir)
	assert.Zero(t, countEntries(t, dir))
}

// This host may not see the locks of other hosts. So openCache removes the files of other hosts
// only when they are old.
func TestOpenCacheKeepsFreshFilesOfOtherHosts(t *testing.T) {
	c := newTestCache(t)
	require.NotEmpty(t, c.host)
	other := c
	other.host, other.noTmpfile = "11111111-2222-3333-4444-555555555555", true
	p, err := other.newTempFile()
	require.NoError(t, err)
	// Release the lock, as if this host did not see it.
	require.NoError(t, unix.Flock(int(p.file.Fd()), unix.LOCK_UN))
	defer p.discard()
	mustOpenCache(t, c.dir)
	assert.True(t, p.exists(), "another host may be writing the file")
	makeOld(t, p.name, 2*minUnusedAge)
	mustOpenCache(t, c.dir)
	assert.False(t, p.exists())
}

// A script that runs at the same time has created its file, and has not removed the name yet.
func TestOpenCacheKeepsFreshFilesOfScripts(t *testing.T) {
	dir := privateDir(t)
	name := filepath.Join(dir, tempPrefix+"a1b2c3")
	require.NoError(t, os.WriteFile(name, nil, 0o600))
	mustOpenCache(t, dir)
	assert.FileExists(t, name)
	makeOld(t, name, 2*minUnusedAge)
	mustOpenCache(t, dir)
	assert.NoFileExists(t, name)
}

// removeStale neither removes nor waits for other files, and looks at a bounded number of temporary
// files.
func TestRemoveStaleIsBounded(t *testing.T) {
	c := newTestCache(t)
	require.NoError(t, os.WriteFile(c.dir+"/other", nil, 0o600))
	require.NoError(t, unix.Mkfifo(c.dir+"/fifo", 0o600))
	for range maxStaleFiles + 10 {
		file, err := os.CreateTemp(c.dir, tempPrefix+c.host+"-*")
		require.NoError(t, err)
		require.NoError(t, file.Close())
	}
	var removing sync.WaitGroup
	removing.Go(c.removeStale)
	require.True(t, waitTimeout(&removing, time.Minute), "removeStale blocks")
	assert.Equal(t, 2+10, countEntries(t, c.dir))
	c.removeStale()
	assert.Equal(t, 2, countEntries(t, c.dir))
}
