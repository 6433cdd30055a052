package remote

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A tempFile is a file of the cache that is being written. It has no name (O_TMPFILE), so the
// kernel removes it however its writer ends. A file system without such files (NFS) gives it a
// name, and its writer holds a lock on it. The kernel releases the lock when the writer ends, and
// the next start on the host removes the file.
//
// Hosts may share the file system without seeing each other's locks (NFS with nolock). So the name
// contains the boot ID of the writer's host, and a start removes another host's temporary file only
// when it is old.
type tempFile struct {
	file *os.File
	name string // "": it has no name
}

// tempPrefix begins the names of temporary files. They are in the cache's own directory.
const tempPrefix = ".coming-"

// bootID returns the kernel's random ID of this boot, or "" if it is unknown. All containers of a
// host have the same ID.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// maxTempTries bounds the attempts to create and lock a temporary file before another start removes
// it as stale.
const maxTempTries = 10

func (c cache) newTempFile() (*tempFile, error) {
	if !c.noTmpfile {
		if fd, err := unix.Open(c.dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o700); err == nil {
			return &tempFile{file: os.NewFile(uintptr(fd), filepath.Join(c.dir, tempPrefix))}, nil
		}
	}
	for range maxTempTries {
		file, err := os.CreateTemp(c.dir, tempPrefix+c.host+"-*")
		if err != nil {
			return nil, err
		}
		p := &tempFile{file: file, name: file.Name()}
		// On a file system without locks, no start can lock the file, so none removes it.
		if err := lockFile(file); !errors.Is(err, unix.EWOULDBLOCK) && p.exists() {
			return p, nil
		}
		p.discard() // another start has locked the file in order to remove it
	}
	return nil, fmt.Errorf("%s: other starts keep removing the new temporary file", c.dir)
}

func lockFile(file *os.File) error {
	return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// exists reports whether the file still has its name.
func (p *tempFile) exists() bool {
	named, err := os.Lstat(p.name)
	if err != nil {
		return false
	}
	own, err := p.file.Stat()
	return err == nil && os.SameFile(own, named)
}

// publish gives the file its final name, on the same file system. It fails if path exists.
func (p *tempFile) publish(path string) error {
	if p.name == "" {
		own := fmt.Sprintf("/proc/self/fd/%d", p.file.Fd())
		return os.NewSyscallError("linkat", unix.Linkat(unix.AT_FDCWD, own, unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW))
	}
	err := os.Link(p.name, path)
	if err == nil || errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(p.name, path) // for file systems without hard links
}

// discard closes the file, and removes its temporary name.
func (p *tempFile) discard() {
	if p.name != "" {
		_ = os.Remove(p.name)
	}
	_ = p.file.Close()
}

// Bounds on the number of stale files that one start handles, so that it is not slow.
const (
	maxStaleEntries = 10_000 // entries read of the cache's directory
	maxStaleFiles   = 100    // temporary files
)

// removeStale removes temporary files of writers that were killed. A live writer on this host holds
// a lock on its file. Other files are removed only when they are old: files of other hosts, whose
// locks may be invisible, and files of the script, which have no host in their names and no lock.
// The script removes the name of its file at once, but needs the name until then.
func (c cache) removeStale() {
	dir, err := os.Open(c.dir)
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(maxStaleEntries)
	looked := 0
	for _, name := range names {
		if !strings.HasPrefix(name, tempPrefix) || looked == maxStaleFiles {
			continue
		}
		looked++
		path := filepath.Join(c.dir, name)
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		file := os.NewFile(uintptr(fd), path)
		own := strings.HasPrefix(name, tempPrefix+c.host+"-")
		if info, err := file.Stat(); err == nil && (own || time.Since(info.ModTime()) >= minUnusedAge) && lockFile(file) == nil {
			_ = os.Remove(path)
		}
		_ = file.Close()
	}
}
