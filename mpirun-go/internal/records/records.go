// Package records has the names of the files in which ranks record what they do: profiles, CPU
// profiles and traces. A file belongs to a rank of a job. A directory has the files of one job.
package records

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/internal/atomicfile"
	"github.com/mpigo/mpigo/internal/profile"
	"github.com/mpigo/mpigo/internal/trace"
)

// Kind is a kind of records. Its text is the name of the flag and of the setting.
type Kind string

const (
	Profile    Kind = "profile"
	CPUProfile Kind = "cpuprofile"
	Trace      Kind = "trace"
)

// maxCPUProfileBytes bounds a CPU profile, which is usually smaller than one mebibyte.
const maxCPUProfileBytes = 64 << 20

// IsValid reports whether there is such a kind.
func (k Kind) IsValid() bool { return k == Profile || k == CPUProfile || k == Trace }

// Path is the file of a rank in a directory.
func (k Kind) Path(dir string, rank int) string {
	switch k {
	case Profile:
		return profile.Path(dir, rank)
	case Trace:
		return trace.Path(dir, rank)
	}
	return filepath.Join(dir, fmt.Sprintf("cpu.%d.pprof", rank))
}

// MaxBytes is the largest size of a file.
func (k Kind) MaxBytes() int64 {
	switch k {
	case Profile:
		return profile.MaxBytes
	case Trace:
		return trace.MaxBytes
	}
	return maxCPUProfileBytes
}

// pattern matches the names of the files of all ranks.
func (k Kind) pattern() string {
	switch k {
	case Profile:
		return "profile.*.json"
	case Trace:
		return "trace.*.json"
	}
	return "cpu.*.pprof"
}

// Clear removes the files of an earlier job from a directory, and the incomplete files of its ranks
// that were killed while writing. The directory need not exist.
func (k Kind) Clear(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if !e.IsDir() && k.has(e.Name()) {
			if e := os.Remove(filepath.Join(dir, e.Name())); !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
	}
	return err
}

// ranks lists the ranks that have a file in a directory, in order.
func (k Kind) ranks(dir string) (ranks []int, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		parts := strings.Split(e.Name(), ".")
		if len(parts) != 3 {
			continue
		}
		rank, err := strconv.Atoi(parts[1])
		if err == nil && rank >= 0 && k.Path(dir, rank) == filepath.Join(dir, e.Name()) {
			ranks = append(ranks, rank)
		}
	}
	slices.Sort(ranks)
	return ranks, err
}

// Open opens the file of a rank, with further flags. It does not block if another user has put a
// FIFO in its place.
func Open(path string, flags int) (*os.File, fs.FileInfo, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|flags, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err != nil {
		_ = file.Close()
		return nil, nil, err
	}
	return file, info, nil
}

func (k Kind) has(name string) bool {
	for _, pattern := range []string{k.pattern(), atomicfile.TempPattern(k.pattern())} {
		if matches, _ := filepath.Match(pattern, name); matches {
			return true
		}
	}
	return false
}
