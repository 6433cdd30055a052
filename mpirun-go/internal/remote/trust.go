package remote

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks bounds the symbolic links on a path. It is the kernel's own bound (MAXSYMLINKS).
const maxLinks = 40

// user is the user who must own the files that are run, unless root does.
type user struct {
	uid, gid uint32 // gid is the primary group
}

// thisUser returns the user of this process.
func thisUser() user { return user{uint32(os.Geteuid()), uint32(os.Getegid())} }

// checkTrusted returns an error unless only root and the user u control what path, a file or a
// directory, names:
//
//   - Root or the user owns everything on the way, including symbolic links.
//   - No other user may write to it. A directory may be sticky instead, as /tmp is: others can add
//     entries to it, but cannot replace those of root and the user.
//
// A group that may write counts as another user, unless it is private (othersMayWrite).
//
// The check proceeds from / downwards. Others cannot change a part of the way after it has passed,
// so the caller can use the path afterwards. Program.script applies the same rule.
func checkTrusted(path string, u user) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%s is not an absolute path", path)
	}
	at, links := "/", 0
	for names := append([]string{""}, strings.Split(path, "/")...); len(names) > 0; {
		name := names[0]
		names = names[1:]
		if name == ".." {
			at = filepath.Dir(at) // it has no symbolic links, and has been checked
			continue
		}
		next := filepath.Join(at, name)
		var stat unix.Stat_t
		if err := unix.Lstat(next, &stat); err != nil {
			return &fs.PathError{Op: "lstat", Path: next, Err: err}
		}
		if stat.Uid != 0 && stat.Uid != u.uid {
			return fmt.Errorf("%s belongs to another user", next)
		}
		kind := stat.Mode & unix.S_IFMT
		switch {
		case kind == unix.S_IFLNK:
			target, err := os.Readlink(next)
			if err != nil {
				return err
			}
			if links++; links > maxLinks {
				return &fs.PathError{Op: "readlink", Path: path, Err: unix.ELOOP}
			}
			if filepath.IsAbs(target) {
				at = "/"
			}
			names = append(strings.Split(target, "/"), names...)
		case (kind != unix.S_IFDIR || stat.Mode&unix.S_ISVTX == 0) && u.othersMayWrite(next, &stat):
			return fmt.Errorf("others may write to %s", next)
		default:
			at = next
		}
	}
	return nil
}

// othersMayWrite reports whether the permissions of path allow users other than root and the user
// to write. A group counts as other users, except the user's private group, whose number equals the
// user's number, and, for files of root, root's group. With an access control list, the group bits
// bound the rights of every entry of the list, so they do not show the rights of the group.
func (u user) othersMayWrite(path string, stat *unix.Stat_t) bool {
	switch {
	case stat.Mode&unix.S_IWOTH != 0:
		return true
	case stat.Mode&unix.S_IWGRP == 0:
		return false
	}
	private := stat.Gid == u.gid && u.gid == u.uid || stat.Gid == 0 && stat.Uid == 0
	return !private || hasACL(path)
}

// hasACL reports whether path, which is not a symbolic link, may have an access control list.
func hasACL(path string) bool {
	for _, name := range [...]string{"system.posix_acl_access", "system.posix_acl_default"} {
		if _, err := unix.Lgetxattr(path, name, nil); err != unix.ENODATA && err != unix.EOPNOTSUPP {
			return true
		}
	}
	return false
}
