package remote

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks bounds the symbolic links that a path leads over, as the kernel does.
const maxLinks = 40

// writableByOthers are the permissions that let somebody other than the owner write. With an access control list, the
// group's bits bound what any entry of the list grants.
const writableByOthers = unix.S_IWGRP | unix.S_IWOTH

// checkTrusted returns an error unless root and the user uid alone control what path, a file or a directory, names:
//
//   - Everything on the way, symbolic links included, belongs to root or to the user.
//   - Nobody else may write to it. A directory may be sticky instead, as /tmp is: others can add entries to it, but
//     cannot replace those of root and the user.
//
// The check goes from / downwards. Others cannot change a part of the way after it has passed, so the caller
// can use the path afterwards. Self.script applies the same rule to directories.
func checkTrusted(path string, uid uint32) error {
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
		if stat.Uid != 0 && stat.Uid != uid {
			return fmt.Errorf("%s belongs to another user", next)
		}
		kind, openToAll := stat.Mode&unix.S_IFMT, stat.Mode&writableByOthers != 0
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
		case openToAll && (kind != unix.S_IFDIR || stat.Mode&unix.S_ISVTX == 0):
			return fmt.Errorf("others may write to %s", next)
		default:
			at = next
		}
	}
	return nil
}
