package remote

import (
	"encoding/binary"
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

// giveAway makes path belong to another user than the returned one. Only root can give files away,
// so for other users the path stays theirs, and the returned user is a different one.
func giveAway(path string) (user, error) {
	if os.Geteuid() == 0 {
		return thisUser(), os.Lchown(path, 65534, 65534)
	}
	return user{uint32(os.Geteuid()) + 1, uint32(os.Getegid())}, nil
}

// shareWithGroup sets the mode of path, and returns a user for whom the group of path is not
// private.
func shareWithGroup(path string, mode os.FileMode) (user, error) {
	u := thisUser()
	if u.uid == 0 {
		if err := os.Lchown(path, -1, 65534); err != nil {
			return u, err
		}
	} else {
		u.gid++
	}
	return u, os.Chmod(path, mode)
}

// grantByACL gives another user the right to write to path by an access control list. The list
// leaves the owner, the group and the mode 0770. It returns false if the file system has no such
// lists.
func grantByACL(t *testing.T, path string) bool {
	t.Helper()
	require.NoError(t, os.Chmod(path, 0o770))
	const all = 7
	list := binary.LittleEndian.AppendUint32(nil, 2) // version
	for _, e := range []struct {
		tag, permissions uint16
		id               uint32
	}{{0x01, all, ^uint32(0)}, {0x02, all, 65534}, {0x04, all, ^uint32(0)}, {0x10, all, ^uint32(0)}, {0x20, 0, ^uint32(0)}} {
		list = binary.LittleEndian.AppendUint16(list, e.tag)
		list = binary.LittleEndian.AppendUint16(list, e.permissions)
		list = binary.LittleEndian.AppendUint32(list, e.id)
	}
	err := unix.Setxattr(path, "system.posix_acl_access", list, 0)
	if err == unix.EOPNOTSUPP {
		return false
	}
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o770), info.Mode().Perm())
	return true
}

// runScriptAs runs the script with an id(1) that prints the numbers of u, and without input.
func runScriptAs(t *testing.T, u user, home, path string) (output string, status int) {
	t.Helper()
	fake := privateDir(t)
	id := fmt.Sprintf("#!/bin/sh\ncase $1 in -u) echo %d;; -g) echo %d;; esac\n", u.uid, u.gid)
	require.NoError(t, os.WriteFile(fake+"/id", []byte(id), 0o700))
	cmd := exec.Command("/bin/sh", "-c", (Program{hash: strings.Repeat("a0", 32), size: 100}).script())
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+home, "PATH="+fake+":"+path)
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	return string(out), cmd.ProcessState.ExitCode()
}

// The script and checkTrusted agree on which directories can be the cache.
func TestScriptAndCheckTrustedAgree(t *testing.T) {
	mkdir := func(mode os.FileMode, path string) {
		require.NoError(t, os.MkdirAll(path, 0o700))
		require.NoError(t, os.Chmod(path, mode))
	}
	me := thisUser()
	// arrangeGroup returns a function that creates a cache that its group may write to, and returns
	// the user u to check it as.
	arrangeGroup := func(mode os.FileMode, owner, group int, u user) func(home, _ string) user {
		return func(home, _ string) user {
			mkdir(0o700, home+"/mpigo")
			require.NoError(t, os.Chown(home+"/mpigo", owner, group))
			require.NoError(t, os.Chmod(home+"/mpigo", mode))
			return u
		}
	}
	type testCase struct {
		arrange func(home, elsewhere string) user
		why     string // "": the directory can be the cache
	}
	cases := map[string]testCase{
		"a new one":              {func(string, string) user { return me }, ""},
		"one for others to read": {func(home, _ string) user { mkdir(0o755, home+"/mpigo"); return me }, ""},
		"one for others to write": {
			func(home, _ string) user { mkdir(0o777, home+"/mpigo"); return me }, "others may write to HOME/mpigo"},
		"one for its group to write": {
			func(home, _ string) user {
				mkdir(0o700, home+"/mpigo")
				u, err := shareWithGroup(home+"/mpigo", 0o770)
				require.NoError(t, err)
				return u
			}, "others may write to HOME/mpigo"},
		"a parent for others to write":                   {func(home, _ string) user { mkdir(0o777, home); return me }, "others may write to HOME"},
		"a sticky parent":                                {func(home, _ string) user { mkdir(0o777|os.ModeSticky, home); return me }, ""},
		"a sticky parent that is not searched by others": {func(home, _ string) user { mkdir(0o776|os.ModeSticky, home); return me }, ""},
		"another user's": {func(home, _ string) user {
			mkdir(0o700, home+"/mpigo")
			u, err := giveAway(home + "/mpigo")
			require.NoError(t, err)
			return u
		}, "HOME/mpigo belongs to another user"},
		"a symbolic link": {func(home, elsewhere string) user {
			require.NoError(t, os.Symlink(elsewhere, home+"/mpigo"))
			return me
		}, ""},
		"a symbolic link to what others may write": {func(home, elsewhere string) user {
			mkdir(0o777, elsewhere+"/open")
			require.NoError(t, os.Symlink(elsewhere+"/open", home+"/mpigo"))
			return me
		}, "others may write to ELSEWHERE/open"},
		"a symbolic link to what another can replace": {func(home, elsewhere string) user {
			mkdir(0o777, elsewhere)
			mkdir(0o700, elsewhere+"/shut")
			require.NoError(t, os.Symlink(elsewhere+"/shut", home+"/mpigo"))
			return me
		}, "others may write to ELSEWHERE"},
	}
	version, _ := exec.Command("ls", "--version").Output()
	// With another ls the script trusts no group.
	if me.uid == 0 && strings.Contains(string(version), "coreutils") {
		const other = "others may write to HOME/mpigo"
		for name, c := range map[string]testCase{
			"one for root's group to write":                   {arrangeGroup(0o770, 0, 0, me), ""},
			"one for the user's private group to write":       {arrangeGroup(0o775, 1000, 1000, user{1000, 1000}), ""},
			"one of root's for the private group to write":    {arrangeGroup(0o770, 0, 1000, user{1000, 1000}), ""},
			"one of the user's for root's group to write":     {arrangeGroup(0o770, 1000, 0, user{1000, 1000}), other},
			"one for another user's private group to write":   {arrangeGroup(0o770, 1000, 1001, user{1000, 1000}), other},
			"one for a primary group that is not private":     {arrangeGroup(0o770, 1000, 100, user{1000, 100}), other},
			"one for a group with the number of the user":     {arrangeGroup(0o770, 1000, 1000, user{1000, 100}), other},
			"one for the private group and others to write":   {arrangeGroup(0o777, 1000, 1000, user{1000, 1000}), other},
			"a set-group-id one for the private group":        {arrangeGroup(0o770|os.ModeSetgid, 1000, 1000, user{1000, 1000}), ""},
			"a sticky one for a group that is not the user's": {arrangeGroup(0o770|os.ModeSticky, 1000, 100, user{1000, 1000}), ""},
		} {
			cases[name] = c
		}
	}
	if me.gid == me.uid && grantByACL(t, privateDir(t)) {
		cases["one that a list lets another user write"] = testCase{func(home, _ string) user {
			mkdir(0o700, home+"/mpigo")
			grantByACL(t, home+"/mpigo")
			return me
		}, "others may write to HOME/mpigo"}
	}
	for name, c := range cases {
		home, elsewhere := privateDir(t), privateDir(t)
		u := c.arrange(home, elsewhere)
		why := strings.NewReplacer("HOME", home, "ELSEWHERE", elsewhere).Replace(c.why)
		output, status := runScriptAs(t, u, home, os.Getenv("PATH"))
		checked := checkTrusted(home+"/mpigo", u)
		if why == "" {
			// The script continues, and gets no program.
			assert.Equal(t, statusNoCopy, status, "%s: %s", name, output)
			assert.NoError(t, checked, name)
			continue
		}
		assert.Equal(t, statusNoCache, status, "%s: %s", name, output)
		if u.uid == me.uid || !strings.Contains(why, "belongs") {
			assert.Equal(t, "cannot use "+home+"/mpigo: "+why+"\n", output, name)
			assert.EqualError(t, checked, why, name)
		} else { // the script checks upwards, so it names another directory
			assert.Contains(t, output, "belongs to another user", name)
			assert.ErrorContains(t, checked, "belongs to another user", name)
		}
	}
}

// An ls that does not show access control lists says nothing about who may write through a private
// group.
func TestScriptTrustsNoGroupWithoutGNUls(t *testing.T) {
	fake := privateDir(t)
	ls, err := exec.LookPath("ls")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(fake+"/ls", []byte("#!/bin/sh\n[ \"$1\" = --version ] && exit 1; exec "+ls+" \"$@\"\n"), 0o700))
	home := privateDir(t)
	require.NoError(t, os.Mkdir(home+"/mpigo", 0o700))
	u := thisUser()
	_, status := runScriptAs(t, u, home, fake+":"+os.Getenv("PATH"))
	require.Equal(t, statusNoCopy, status)
	require.NoError(t, os.Chmod(home+"/mpigo", 0o770))
	output, status := runScriptAs(t, u, home, fake+":"+os.Getenv("PATH"))
	require.Equal(t, statusNoCache, status)
	assert.Equal(t, "cannot use "+home+"/mpigo: others may write to "+home+"/mpigo\n", output)
}

func TestCheckTrustedFollowsLinks(t *testing.T) {
	me := thisUser()
	dir := privateDir(t)
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

	// Others may not replace a link on the way, so its directory counts, and not only its target.
	require.NoError(t, os.Mkdir(dir+"/open", 0o700))
	require.NoError(t, os.Symlink(dir+"/sub/file", dir+"/open/link"))
	require.NoError(t, checkTrusted(dir+"/open/link", me))
	require.NoError(t, os.Chmod(dir+"/open", 0o777))
	assert.EqualError(t, checkTrusted(dir+"/open/link", me), "others may write to "+dir+"/open")
	require.NoError(t, os.Chmod(dir+"/open", 0o777|os.ModeSticky))
	require.NoError(t, checkTrusted(dir+"/open/link", me))
	u, err := giveAway(dir + "/open/link")
	require.NoError(t, err)
	assert.ErrorContains(t, checkTrusted(dir+"/open/link", u), "belongs to another user")
}
