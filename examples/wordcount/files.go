package main

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/comm"
)

// file is a file to count.
type file struct {
	path  string
	bytes int64
}

// span is a run of files in the list: First ≤ index < End. Ranks send spans to each other.
type span struct {
	First, End int64
}

// spanBytes is about the number of bytes that a rank gets at a time. It is small enough that all
// ranks finish at about the same time, and large enough that the requests cost almost nothing.
const spanBytes = 256 << 10

// list returns the regular files under root with one of the endings, in lexical order.
func list(root string, exts []string) ([]file, error) {
	if root == "" {
		var err error
		if root, err = goSource(); err != nil {
			return nil, err
		}
	}
	root, err := filepath.EvalSymlinks(root) // WalkDir follows no symbolic link, not even root
	if err != nil {
		return nil, err
	}
	var files []file
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.Type().IsRegular() || !slices.ContainsFunc(exts, func(ext string) bool { return strings.HasSuffix(path, ext) }):
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files = append(files, file{path, info.Size()})
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no file under %s ends in %s", root, strings.Join(exts, " or "))
	}
	return files, err
}

// cut cuts the list into spans.
func cut(files []file) []span {
	var spans []span
	first, bytes := 0, int64(0)
	for i, f := range files {
		bytes += f.bytes
		if bytes >= spanBytes || i == len(files)-1 {
			spans = append(spans, span{int64(first), int64(i + 1)})
			first, bytes = i+1, 0
		}
	}
	return spans
}

// sharePaths sends the paths of rank 0's list to every rank. After that a span identifies files.
func sharePaths(world *comm.Comm, files []file) ([]string, error) {
	// A path may hold any byte except zero.
	var joined []byte
	for _, f := range files {
		joined = append(append(joined, f.path...), 0)
	}
	size := []int{len(joined)}
	if err := comm.Bcast(world, size, 0); err != nil {
		return nil, err
	}
	if world.Rank() != 0 {
		joined = make([]byte, size[0])
	}
	if err := comm.Bcast(world, joined, 0); err != nil {
		return nil, err
	}
	paths := strings.Split(string(joined), "\x00")
	return paths[:len(paths)-1], nil
}
