package remote

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// disown makes path belong to another user, and returns the user id to check it as. Only root can give files away, so
// anybody else checks as a different user.
func disown(path string) (uid uint32, err error) {
	if os.Geteuid() == 0 {
		return 0, os.Lchown(path, 65534, 65534)
	}
	return uint32(os.Geteuid()) + 1, nil
}

// The script and checkTrusted decide alike whether a directory can be the cache.
func TestScriptAndCacheTrustTheSameDirectories(t *testing.T) {
	mkdir := func(mode os.FileMode, path string) {
		require.NoError(t, os.MkdirAll(path, 0o700))
		require.NoError(t, os.Chmod(path, mode))
	}
	me := uint32(os.Geteuid())
	for name, c := range map[string]struct {
		arrange func(home, elsewhere string) (uid uint32)
		why     string // "": it can
	}{
		"a new one":              {func(string, string) uint32 { return me }, ""},
		"one for others to read": {func(home, _ string) uint32 { mkdir(0o755, home+"/mpigo"); return me }, ""},
		"one for others to write": {
			func(home, _ string) uint32 { mkdir(0o777, home+"/mpigo"); return me }, "others may write to HOME/mpigo"},
		"one for its group to write": {
			func(home, _ string) uint32 { mkdir(0o770, home+"/mpigo"); return me }, "others may write to HOME/mpigo"},
		"a parent for others to write":                   {func(home, _ string) uint32 { mkdir(0o777, home); return me }, "others may write to HOME"},
		"a sticky parent":                                {func(home, _ string) uint32 { mkdir(0o777|os.ModeSticky, home); return me }, ""},
		"a sticky parent that is not searched by others": {func(home, _ string) uint32 { mkdir(0o776|os.ModeSticky, home); return me }, ""},
		"another user's": {func(home, _ string) uint32 {
			mkdir(0o700, home+"/mpigo")
			uid, err := disown(home + "/mpigo")
			require.NoError(t, err)
			return uid
		}, "HOME/mpigo belongs to another user"},
		"a symbolic link": {func(home, elsewhere string) uint32 {
			require.NoError(t, os.Symlink(elsewhere, home+"/mpigo"))
			return me
		}, ""},
		"a symbolic link to what others may write": {func(home, elsewhere string) uint32 {
			mkdir(0o777, elsewhere+"/open")
			require.NoError(t, os.Symlink(elsewhere+"/open", home+"/mpigo"))
			return me
		}, "others may write to ELSEWHERE/open"},
		"a symbolic link to what another can replace": {func(home, elsewhere string) uint32 {
			mkdir(0o777, elsewhere)
			mkdir(0o700, elsewhere+"/shut")
			require.NoError(t, os.Symlink(elsewhere+"/shut", home+"/mpigo"))
			return me
		}, "others may write to ELSEWHERE"},
	} {
		home, elsewhere := ownDir(t), ownDir(t)
		uid := c.arrange(home, elsewhere)
		why := strings.NewReplacer("HOME", home, "ELSEWHERE", elsewhere).Replace(c.why)

		fake := ownDir(t) // has an id(1) that prints the user to check as
		require.NoError(t, os.WriteFile(fake+"/id", fmt.Appendf(nil, "#!/bin/sh\necho %d\n", uid), 0o700))
		cmd := exec.Command("/bin/sh", "-c", (&Self{hash: strings.Repeat("a0", 32), size: 100}).script())
		cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+home, "PATH="+fake+":"+os.Getenv("PATH"))
		said, err := cmd.CombinedOutput()
		require.Error(t, err, name)
		checked := checkTrusted(home+"/mpigo", uid)
		if why == "" {
			assert.Equal(t, statusNoCopy, cmd.ProcessState.ExitCode(), "%s: %s", name, said) // it goes on, and nothing is sent
			assert.NoError(t, checked, name)
			continue
		}
		assert.Equal(t, statusNoCache, cmd.ProcessState.ExitCode(), "%s: %s", name, said)
		if uid == me {
			assert.Equal(t, "cannot use "+home+"/mpigo: "+why+"\n", string(said), name)
			assert.EqualError(t, checked, why, name)
		} else { // it looks from the other end, at what is all another user's
			assert.Contains(t, string(said), "belongs to another user", name)
			assert.ErrorContains(t, checked, "belongs to another user", name)
		}
	}
}

func TestCheckTrusted(t *testing.T) {
	me := uint32(os.Geteuid())
	dir := ownDir(t)
	require.NoError(t, os.Mkdir(dir+"/sub", 0o700))
	require.NoError(t, os.WriteFile(dir+"/sub/file", nil, 0o755))
	for link, target := range map[string]string{"file": "sub/../sub/./file", "up": "..", "abs": dir + "/sub", "loop": "loop", "nowhere": "none"} {
		require.NoError(t, os.Symlink(target, filepath.Join(dir, link)))
	}
	for _, path := range []string{"/", dir, dir + "/sub/file", dir + "/file", dir + "/abs/file", dir + "//sub/./file", dir + "/up"} {
		assert.NoError(t, checkTrusted(path, me), path)
	}
	assert.ErrorIs(t, checkTrusted(dir+"/loop", me), unix.ELOOP)
	assert.ErrorIs(t, checkTrusted(dir+"/nowhere", me), unix.ENOENT)
	assert.ErrorIs(t, checkTrusted(dir+"/sub/file/more", me), unix.ENOTDIR)
	assert.ErrorContains(t, checkTrusted("relative", me), "is not an absolute path")

	// Where a link is, and not only where it leads, others may not put another.
	require.NoError(t, os.Mkdir(dir+"/open", 0o700))
	require.NoError(t, os.Symlink(dir+"/sub/file", dir+"/open/link"))
	require.NoError(t, checkTrusted(dir+"/open/link", me))
	require.NoError(t, os.Chmod(dir+"/open", 0o777))
	assert.EqualError(t, checkTrusted(dir+"/open/link", me), "others may write to "+dir+"/open")
	require.NoError(t, os.Chmod(dir+"/open", 0o777|os.ModeSticky))
	require.NoError(t, checkTrusted(dir+"/open/link", me))
	uid, err := disown(dir + "/open/link")
	require.NoError(t, err)
	assert.ErrorContains(t, checkTrusted(dir+"/open/link", uid), "belongs to another user")
}
