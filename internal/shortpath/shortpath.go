// Package shortpath names source files as briefly as tells them apart: by the base name as a rule,
// and with as many folders as are needed if files have the same.
package shortpath

import (
	"path/filepath"
	"strings"
)

// Names are the short names of files by their paths.
type Names map[string]string

// Of names files. Paths may come several times.
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

// lengthen gives some of all files with a base name names with so many folders, and returns those
// of them that need more.
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

// end is the end of a path, with so many folders; the path if it has no more.
func end(path string, folders int) string {
	at := len(path)
	for range folders + 1 {
		if at = strings.LastIndexByte(path[:at], '/'); at < 0 {
			return path
		}
	}
	return path[at+1:]
}

// Name is the short name of a file. A file that Of was not told has its base name.
func (n Names) Name(path string) string {
	if name := n[path]; name != "" {
		return name
	}
	return filepath.Base(path)
}
