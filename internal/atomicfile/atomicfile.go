// Package atomicfile replaces files in one step: a reader sees either the old file or the whole new
// one, and a writer that is killed leaves the old one.
package atomicfile

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
)

// Write makes the file at path of what write writes, with the given permissions. A symbolic link at
// path is replaced, not followed. If write fails, nothing changes.
func Write(path string, mode os.FileMode, write func(w io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), tempPrefix+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	out := bufio.NewWriter(f)
	err = write(out)
	if err == nil {
		err = out.Flush()
	}
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// tempPrefix begins the names of files that are being written.
const tempPrefix = ".new-"

// TempPattern matches, as filepath.Match does, the names of what a writer of files that match
// pattern leaves if it is killed.
func TempPattern(pattern string) string { return tempPrefix + pattern + ".*" }
