package jobsocket

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxPathBytes is the length of a Unix socket's path (unix(7)), without the zero byte at its end.
const maxPathBytes = 107

// suffix ends the name of a job's socket.
const suffix = ".sock"

// directories returns the directories that sockets may be in, the best one first.
func directories() []string {
	shared := "/tmp/mpigo-" + strconv.Itoa(os.Getuid())
	if runtime := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(runtime) {
		return []string{filepath.Join(runtime, "mpigo"), shared}
	}
	return []string{shared}
}

// makeDirectory makes a directory that only the user can enter, unless it exists.
func makeDirectory(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return checkDirectory(dir)
}

// checkDirectory returns an error unless dir is a directory of the user that no other user can
// enter. Another user may have created a directory with that name.
func checkDirectory(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return &fs.PathError{Op: "lstat", Path: dir, Err: err}
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("%s is not a directory", dir)
	case int(st.Uid) != os.Getuid():
		return fmt.Errorf("%s belongs to user %d: remove it, or set XDG_RUNTIME_DIR", dir, st.Uid)
	case st.Mode&0o077 != 0:
		return fmt.Errorf("%s is open to other users: run chmod 700 %s", dir, dir)
	}
	return nil
}

// pathOf returns the path of a job's socket in dir.
func pathOf(dir, job string) (string, error) {
	if job == "" || strings.ContainsAny(job, "/\x00") || strings.HasPrefix(job, ".") {
		return "", fmt.Errorf("%q cannot be the name of a job", job)
	}
	path := filepath.Join(dir, job+suffix)
	if len(path) > maxPathBytes {
		return "", fmt.Errorf("the path of the job's socket is too long: %s", path)
	}
	return path, nil
}

// sockets returns the paths of the sockets in the directories. It skips directories that do not
// exist or that fail checkDirectory.
func sockets() (paths []string) {
	for _, dir := range directories() {
		if checkDirectory(dir) != nil {
			continue
		}
		found, _ := filepath.Glob(filepath.Join(dir, "*"+suffix)) // a bad pattern finds nothing
		paths = append(paths, found...)
	}
	return paths
}

// jobOf returns the name of the job that listens at path.
func jobOf(path string) string { return strings.TrimSuffix(filepath.Base(path), suffix) }
