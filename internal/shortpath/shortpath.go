// Package shortpath gives source files the shortest names that are unique: usually the base name,
// and as many folders as necessary if several files have the same base name.
package shortpath

import (
	"path/filepath"
	"strings"
)

// Names are the short names of files by their paths.
type Names map[string]string

// Of names files. paths may contain duplicates.
func Of(paths []string) Names {
	names := make(Names)
	byBase := make(map[string][]string)
	for _, path := range paths {
		if _, known := names[path]; !known {
			base := filepath.Base(path)
			names[path] = base
			byBase[base] = append(byBase[base], path)
		}
	}
	for _, all := range byBase {
		same := all
		for folders := 1; len(all) > 1 && len(same) > 0; folders++ {
			same = names.lengthen(all, same, folders)
		}
	}
	return names
}

// lengthen gives some of the files with one base name names with the given number of folders. It
// returns the files that need more folders.
func (n Names) lengthen(all, some []string, folders int) (more []string) {
	count := make(map[string]int)
	for _, path := range all {
		count[end(path, folders)]++
	}
	for _, path := range some {
		if n[path] = end(path, folders); count[n[path]] > 1 && n[path] != path {
			more = append(more, path)
		}
	}
	return more
}

// end returns the end of a path with the given number of folders, or the whole path if it has
// fewer.
func end(path string, folders int) string {
	at := len(path)
	for range folders + 1 {
		if at = strings.LastIndexByte(path[:at], '/'); at < 0 {
			return path
		}
	}
	return path[at+1:]
}

// Name returns the short name of a file. For a file that was not passed to Of, it is the base name.
func (n Names) Name(path string) string {
	if name := n[path]; name != "" {
		return name
	}
	return filepath.Base(path)
}
