// Package atomicfile makes files in directories that other users may write to. No function follows
// a symbolic link at the path of the file, or opens an existing file there: a new file replaces it.
// The umask applies to the permissions.
package atomicfile

import (
	"bufio"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Write creates the file at path, with the output of write, in one step: a reader sees either the
// old file or the complete new one, and a writer that is killed leaves the old one. The permissions
// are mode without the umask. If write fails, nothing changes.
func Write(path string, mode os.FileMode, write func(w io.Writer) error) error {
	f, temp, err := createTemp(path, mode)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(f)
	err = write(out)
	if err == nil {
		err = out.Flush()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(temp)
		return err
	}
	return rename(temp, path)
}

// Create makes an empty file at path and opens it for writing. The permissions are mode without the
// umask.
func Create(path string, mode os.FileMode) (*os.File, error) {
	f, temp, err := createTemp(path, mode)
	if err != nil {
		return nil, err
	}
	if err := rename(temp, path); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// rename gives a temporary file its name, and removes it if that fails.
func rename(temp, path string) error {
	err := os.Rename(temp, path)
	if err != nil {
		_ = os.Remove(temp)
	}
	return creating(path, err)
}

// creating returns err, if not nil, as the error of creating path, because the user does not know
// the name of the temporary file.
func creating(path string, err error) error {
	var ofPath *fs.PathError
	var ofLink *os.LinkError
	switch {
	case errors.As(err, &ofPath):
		err = ofPath.Err
	case errors.As(err, &ofLink):
		err = ofLink.Err
	}
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: "create", Path: path, Err: err}
}

// createTemp creates a file with a new name in the directory of path. f reports path as its name,
// for its errors.
func createTemp(path string, mode os.FileMode) (f *os.File, temp string, err error) {
	const flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL | syscall.O_NOFOLLOW
	var made *os.File
	for {
		temp = filepath.Join(filepath.Dir(path), tempPrefix+filepath.Base(path)+"."+rand.Text())
		if made, err = os.OpenFile(temp, flags, mode); !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	if err != nil {
		return nil, "", creating(path, err)
	}
	defer made.Close()
	fd, err := unix.FcntlInt(made.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		_ = os.Remove(temp)
		return nil, "", creating(path, err)
	}
	return os.NewFile(uintptr(fd), path), temp, nil
}

// tempPrefix begins the names of files that are being written.
const tempPrefix = ".new-"

// TempPattern returns a pattern for filepath.Match. It matches the temporary files that a killed
// writer leaves, if the names of the final files match pattern.
func TempPattern(pattern string) string { return tempPrefix + pattern + ".*" }
