// Package atomicfile makes files in directories that other users may write to. No function follows
// a symbolic link at the path of the file, or opens what is there: a new file takes its place. A
// file has the permissions that the umask leaves.
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
)

// Write makes the file at path of what write writes, in one step: a reader sees either the old file
// or the whole new one, and a writer that is killed leaves the old one. The permissions are those
// of mode that the umask leaves. If write fails, nothing changes.
func Write(path string, mode os.FileMode, write func(w io.Writer) error) error {
	f, err := createTemp(path, mode)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(f)
	err = write(out)
	if err == nil {
		err = out.Flush()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	return rename(f.Name(), path)
}

// Create makes an empty file at path and opens it for writing. The permissions are those of mode
// that the umask leaves.
func Create(path string, mode os.FileMode) (*os.File, error) {
	f, err := createTemp(path, mode)
	if err != nil {
		return nil, err
	}
	if err := rename(f.Name(), path); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// rename gives a temporary file its name, or else removes it.
func rename(temp, path string) error {
	err := os.Rename(temp, path)
	if err != nil {
		_ = os.Remove(temp)
	}
	return creating(path, err)
}

// creating returns err, if there is one, as the error of creating path: the name of the temporary
// file would mean nothing to the user.
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

// createTemp makes a file of a name that does not exist, in the directory of path.
func createTemp(path string, mode os.FileMode) (*os.File, error) {
	const flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL | syscall.O_NOFOLLOW
	for {
		f, err := os.OpenFile(filepath.Join(filepath.Dir(path), tempPrefix+filepath.Base(path)+"."+rand.Text()), flags, mode)
		if !errors.Is(err, fs.ErrExist) {
			return f, creating(path, err)
		}
	}
}

// tempPrefix begins the names of files that are being written.
const tempPrefix = ".new-"

// TempPattern matches, as filepath.Match does, the names of what a writer of files that match
// pattern leaves if it is killed.
func TempPattern(pattern string) string { return tempPrefix + pattern + ".*" }
