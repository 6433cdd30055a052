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

// cache is the user's directory of programs that came over a channel: in it a directory for each, called by its SHA-256,
// and in that the file with its own name.
type cache struct {
	dir   string
	bound int64 // bytes of all files, beyond which the ones that were not used for longest are removed, and not for unusedFor
}

const (
	cacheBytes = 1 << 30   // bounds the cache on each host
	unusedFor  = time.Hour // what was used since is kept beyond that: a job that is being started may be about to execute it
)

func userCache() (cache, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return cache{}, err
	}
	return cache{dir: filepath.Join(dir, "mpigo"), bound: cacheBytes}, nil
}

// find looks for a file under its own path and in the cache. "" says that it has to be sent.
func (c cache) find(o offer) string {
	inCache := c.path(o)
	for _, path := range []string{o.path, inCache} {
		if !o.isAt(path) {
			continue
		}
		if path == inCache {
			c.use(o.hash)
		}
		return path
	}
	return ""
}

// isAt is whether a file is what is offered.
func (o offer) isAt(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() != int64(o.size) || unix.Access(path, unix.X_OK) != nil {
		return false
	}
	hash, _, err := hashFile(path)
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
func (c cache) use(hash string) {
	now := time.Now()
	_ = os.Chtimes(filepath.Join(c.dir, hash), now, now)
}

// receive takes a file from the channel into the cache. It is there as a whole, and is what it was said to be, or not at all.
func (c cache) receive(o offer, from io.Reader) (string, error) {
	path := c.path(o)
	for _, dir := range []string{c.dir, filepath.Dir(path)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", err
		}
		if err := checkOwn(dir); err != nil {
			return "", err
		}
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), ".coming-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(temporary.Name())
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(temporary, sum), io.LimitReader(from, int64(o.size)))
	if err == nil {
		err = temporary.Chmod(0o700)
	}
	err = errors.Join(err, temporary.Close())
	switch {
	case err != nil:
		return "", err
	case n != int64(o.size) || hex.EncodeToString(sum.Sum(nil)) != o.hash:
		return "", fmt.Errorf("%s: what arrived is not what was sent", o.path)
	}
	// A good file that is there by now stays: other hosts may run it, if they have the same home.
	if os.Link(temporary.Name(), path) != nil && !o.isAt(path) {
		if err := os.Rename(temporary.Name(), path); err != nil {
			return "", err
		}
	}
	_ = os.Remove(temporary.Name()) // not to be counted twice
	c.use(o.hash)
	c.evict()
	return path, nil
}

// checkOwn refuses a directory that somebody else could put programs into.
func checkOwn(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	var stat unix.Stat_t
	if err := unix.Lstat(dir, &stat); err != nil {
		return &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	if !info.IsDir() || int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a directory of the user's own", dir)
	}
	return os.Chmod(dir, 0o700)
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
		if total <= c.bound || time.Since(k.used) < unusedFor {
			return
		}
		if os.RemoveAll(filepath.Join(c.dir, k.hash)) == nil {
			total -= k.size
		}
	}
}
