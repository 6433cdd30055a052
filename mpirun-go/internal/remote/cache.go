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

// cache is the user's directory of programs that came over a channel: in it a directory for each,
// called by its SHA-256, and in that the file with its own name. Nobody but root and the user can
// change what is in it (checkTrusted). Dir may be reached over symbolic links; below it there are
// none.
type cache struct {
	dir       string // without symbolic links
	user      user   // it is the cache of
	host      string // boot id
	maxBytes  int64  // bytes of all files, beyond which evict removes some
	noTmpfile bool   // never use O_TMPFILE
}

const (
	maxCacheBytes = 1 << 30 // bounds the cache on each host
	// unusedFor is how long files are kept whatever the bound: a job that is being started may be
	// about to execute them.
	minUnusedAge = time.Hour
)

// openCache returns the cache in dir, and removes what killed starts have left there.
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

// find looks for a file under its own path and in the cache. "" says that it has to be sent.
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

// checkNoLinks returns an error if path leads over a symbolic link.
func checkNoLinks(path string) error {
	resolved, err := filepath.EvalSymlinks(path)
	if err == nil && resolved != path {
		err = fmt.Errorf("%s is reached over a symbolic link", path)
	}
	return err
}

// isAt reports whether the offered file is at path and may be run there: only root and the user can
// change it afterwards.
func (c cache) matches(o offer, path string) bool {
	if checkTrusted(path, c.user) != nil || unix.Access(path, unix.X_OK) != nil {
		return false
	}
	// To open a FIFO blocks without O_NONBLOCK.
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

// use notes that a file is in use, so that others are removed before it.
func (c cache) touch(hash string) {
	now := time.Now()
	_ = os.Chtimes(filepath.Join(c.dir, hash), now, now)
}

// receive takes a file from the channel into the cache. It is there as a whole, and is what it was said to be, or not at all.
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
		return "", fmt.Errorf("%s: what arrived is not what was sent", o.path)
	}
	if err := c.publish(o, p); err != nil {
		return "", err
	}
	c.touch(o.hash)
	c.evict()
	return c.path(o), nil
}

// placeTries bounds the attempts to place a file that other starts place or remove at the same
// time.
const maxPublishTries = 10

// place gives a complete part its name in the cache. It keeps a good file that is already there:
// hosts that share the home may be running it.
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

// evict removes what was not used for longest, until the rest is within the bound or was used of late. What runs goes on.
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
