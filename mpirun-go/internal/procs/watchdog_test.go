package procs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// startWatching starts a watchdog in this process. killed ends its pipe, as the kernel does when
// the launcher is killed, and waits until the watchdog has cleaned up.
func startWatching(t *testing.T) (w *watchdog, killed func()) {
	reader, launcher, err := os.Pipe()
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		watchLauncher(reader)
		close(done)
	}()
	return &watchdog{pipe: launcher}, func() {
		require.NoError(t, launcher.Close())
		<-done
		require.NoError(t, reader.Close())
	}
}

func TestWatchdogKillsOnlyAfterLauncherExit(t *testing.T) {
	dir := t.TempDir()
	remove := filepath.Join(dir, "removed")
	require.NoError(t, os.MkdirAll(filepath.Join(remove, "sub"), 0o777))
	jobID := fmt.Sprintf("watched-%d", os.Getpid())

	inGroup := exec.Command("sleep", "1000")
	inGroup.Env = []string{}
	inGroup.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	ofJob := exec.Command("sleep", "1000")
	ofJob.Env = []string{"A=1", "PMI_JOBID=" + jobID}
	other := exec.Command("sleep", "1000")
	other.Env = []string{"PMI_JOBID=" + jobID + "0", "X=PMI_JOBID=" + jobID}
	for _, cmd := range []*exec.Cmd{inGroup, ofJob, other} {
		require.NoError(t, cmd.Start())
	}
	defer func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	}()

	w, killed := startWatching(t)
	for _, command := range []string{"job " + jobID, "group x", "group -1", "group 1", "what else", "remove", "remove x y"} {
		verb, argument, _ := strings.Cut(command, " ")
		w.send(verb, argument)
	}
	w.send("group", fmt.Sprint(inGroup.Process.Pid))
	w.removeIfKilled(remove)
	for _, cmd := range []*exec.Cmd{inGroup, ofJob, other} {
		assert.False(t, isGone(cmd.Process.Pid))
	}
	killed()
	for _, cmd := range []*exec.Cmd{inGroup, ofJob} {
		assert.ErrorContains(t, cmd.Wait(), "signal: killed")
	}
	assert.False(t, isGone(other.Process.Pid), "a process of another job was killed")
	assert.NoDirExists(t, remove)
}

// tree makes a directory with a file, and returns its path.
func tree(t *testing.T, path string) string {
	require.NoError(t, os.MkdirAll(path, 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(path, "file"), []byte("x"), 0o666))
	return path
}

func TestWatchdogRemovesPathsOfAnyName(t *testing.T) {
	t.Chdir(t.TempDir())
	var paths []string
	for _, name := range []string{"data\nrest", "-rf", " a  b ", "\n", "remove x\nremove data", "relative"} {
		paths = append(paths, tree(t, name))
	}
	socket := filepath.Join(paths[0], "socket")
	others := []string{tree(t, "data"), tree(t, "rest"), tree(t, "a")}
	require.NoError(t, os.WriteFile(socket, nil, 0o600))
	w, killed := startWatching(t)
	for _, path := range append(paths, socket, "does not exist") {
		w.removeIfKilled(path)
	}
	killed()
	for _, path := range paths {
		assert.NoDirExists(t, path, "%q", path)
	}
	for _, path := range others {
		assert.FileExists(t, filepath.Join(path, "file"))
	}
}

func TestWatchdogRemovesNoFileThatTookThePlaceOfTheJobs(t *testing.T) {
	dir := t.TempDir()
	victim := tree(t, filepath.Join(dir, "victim"))
	path := func(name string) string { return filepath.Join(dir, name) }
	w, killed := startWatching(t)
	for _, name := range []string{"link", "other directory", "file", "below/own"} {
		w.removeIfKilled(tree(t, path(name)))
		require.NoError(t, os.Rename(path(name), path(name)+" (moved)"))
	}
	require.NoError(t, os.Symlink(victim, path("link")))
	tree(t, path("other directory"))
	require.NoError(t, os.WriteFile(path("file"), nil, 0o666))
	require.NoError(t, os.Rename(path("below"), path("was below")))
	require.NoError(t, os.Symlink(victim, path("below")))
	tree(t, path("victim/own"))
	// A link that the job has left in its own directory is removed, and not what it leads to.
	w.removeIfKilled(tree(t, path("own")))
	require.NoError(t, os.Symlink(victim, path("own/link")))
	killed()
	for _, name := range []string{"victim/file", "victim/own/file", "other directory/file", "file"} {
		assert.FileExists(t, path(name))
	}
	_, err := os.Lstat(path("link"))
	assert.NoError(t, err)
	assert.NoDirExists(t, path("own"))
}

// A launcher that is killed while it writes leaves the beginning of a command.
func TestWatchdogIgnoresUnfinishedCommand(t *testing.T) {
	other := exec.Command("sleep", "1000")
	other.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, other.Start())
	w, killed := startWatching(t)
	_, err := fmt.Fprintf(w.pipe, "group %d", other.Process.Pid)
	require.NoError(t, err)
	killed()
	require.NoError(t, other.Process.Signal(syscall.SIGTERM))
	assert.ErrorContains(t, other.Wait(), "signal: terminated")
}
