package remote

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// cache is the user's directory of programs received over a channel. It has a directory for each
// program, named by the SHA-256 of the program's file, which holds the file under its own name.
// Only root and the user can change its content (checkTrusted). The path to dir may contain
// symbolic links; below dir there are none.
type cache struct {
	dir       string // without symbolic links
	user      user   // the owner
	host      string // boot ID of this host
	maxBytes  int64  // evict removes files when all files together are larger
	noTmpfile bool   // do not use O_TMPFILE
}

const (
	maxCacheBytes = 1 << 30 // of the cache on each host: room for the programs of many jobs
	// minUnusedAge is the time since its last use after which a file may be removed. A job that is
	// being started may be about to execute a file that was used more recently.
	minUnusedAge = time.Hour
)

// openCache returns the cache in dir. It removes temporary files of starts that were killed.
func openCache(dir string) (cache, error) {
	c := cache{user: thisUser(), host: bootID(), maxBytes: maxCacheBytes}
	err := checkTrusted(dir, c.user)
	if err == nil {
		c.dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return cache{}, fmt.Errorf("cannot use %s: %w", dir, err)
	}
	c.removeStale()
	return c, nil
}

// find returns the path of an offered file: its own path, or its path in the cache. It returns ""
// if the host does not have the file.
func (c cache) find(o offer) string {
	switch {
	case c.matches(o, o.path):
		return o.path
	case c.has(o):
		c.touch(o.hash)
		return c.path(o)
	}
	return ""
}

// has reports whether the cache has the offered file.
func (c cache) has(o offer) bool {
	path := c.path(o)
	return checkNoLinks(path) == nil && c.matches(o, path)
}

// checkNoLinks returns an error if path contains a symbolic link.
func checkNoLinks(path string) error {
	resolved, err := filepath.EvalSymlinks(path)
	if err == nil && resolved != path {
		err = fmt.Errorf("%s is reached through a symbolic link", path)
	}
	return err
}

// matches reports whether the offered file is at path and may be run from there: it is executable,
// has the right content, and only root and the user can change it.
func (c cache) matches(o offer, path string) bool {
	if checkTrusted(path, c.user) != nil || unix.Access(path, unix.X_OK) != nil {
		return false
	}
	// Without O_NONBLOCK, opening a FIFO blocks.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() != int64(o.size) {
		return false
	}
	hash, _, err := hashOf(file)
	return err == nil && hash == o.hash
}

func (c cache) path(o offer) string {
	name := filepath.Base(o.path)
	if name == "." || name == "/" {
		name = "program"
	}
	return filepath.Join(c.dir, o.hash, name)
}

// touch marks a file as used now.
func (c cache) touch(hash string) {
	now := time.Now()
	_ = os.Chtimes(filepath.Join(c.dir, hash), now, now)
}

// receive receives a file into the cache. The file appears there only when it is complete and its
// hash is right.
func (c cache) receive(o offer, from io.Reader) (string, error) {
	p, err := c.newTempFile()
	if err != nil {
		return "", err
	}
	defer p.discard()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(p.file, sum), io.LimitReader(from, int64(o.size)))
	if err == nil {
		err = p.file.Chmod(0o700)
	}
	switch {
	case err != nil:
		return "", err
	case n != int64(o.size) || hex.EncodeToString(sum.Sum(nil)) != o.hash:
		return "", fmt.Errorf("%s: the received file differs from the sent one", o.path)
	}
	if err := c.publish(o, p); err != nil {
		return "", err
	}
	c.touch(o.hash)
	c.evict()
	return c.path(o), nil
}

// maxPublishTries bounds publish, which competes with other starts that publish or remove the same
// file.
const maxPublishTries = 10

// publish gives a complete temporary file its name in the cache. It keeps a good file that already
// has the name: hosts that share the directory may be running it.
func (c cache) publish(o offer, p *tempFile) error {
	var err error
	path := c.path(o)
	dir := filepath.Dir(path)
	for range maxPublishTries {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := errors.Join(checkNoLinks(dir), checkTrusted(dir, c.user)); err != nil {
			return err
		}
		if err = p.publish(path); err == nil || c.has(o) {
			return nil
		}
		if errors.Is(err, fs.ErrExist) {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return err
}

// evict removes the least recently used files until the cache is within its bound. It keeps files
// used within minUnusedAge. Running programs are not affected.
func (c cache) evict() {
	type kept struct {
		hash string
		size int64
		used time.Time
	}
	entries, _ := os.ReadDir(c.dir)
	var all []kept
	total := int64(0)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() || !isHash(e.Name()) {
			continue
		}
		k := kept{hash: e.Name(), used: info.ModTime()}
		files, _ := os.ReadDir(filepath.Join(c.dir, e.Name()))
		for _, f := range files {
			if info, err := f.Info(); err == nil {
				k.size += info.Size()
			}
		}
		total += k.size
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b kept) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.hash, b.hash)) })
	for _, k := range all {
		if total <= c.maxBytes || time.Since(k.used) < minUnusedAge {
			return
		}
		if os.RemoveAll(filepath.Join(c.dir, k.hash)) == nil {
			total -= k.size
		}
	}
}
