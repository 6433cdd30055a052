// Package records has the names of the files in which ranks record what they do: profiles, CPU
// profiles and traces. A file belongs to a rank of a job, and a directory has those of one job.
package records

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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

// maxCPUProfileBytes bounds a CPU profile, which has usually less than a mebibyte.
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

// Clear removes the files of an earlier job from a directory, if there is one, and those that its
// ranks had begun to write when they were killed.
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

// JobSize returns the number of ranks of the job of which a directory has profiles or traces, by
// what the first good file says. It is 0 if there is none.
func (k Kind) JobSize(dir string) (int, error) {
	paths, err := filepath.Glob(filepath.Join(dir, k.pattern()))
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, path := range paths {
		size, err := k.sizeIn(path)
		if err == nil {
			return size, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", path, err))
	}
	return 0, errors.Join(errs...)
}

// sizeIn is the size of the job in a file.
func (k Kind) sizeIn(path string) (int, error) {
	in, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	if k == Profile {
		f, err := profile.Read(in)
		if err != nil {
			return 0, err
		}
		return f.Size, nil
	}
	f, err := trace.Read(in)
	if err != nil {
		return 0, err
	}
	return f.Size, nil
}

func (k Kind) has(name string) bool {
	for _, pattern := range []string{k.pattern(), atomicfile.TempPattern(k.pattern())} {
		if matches, _ := filepath.Match(pattern, name); matches {
			return true
		}
	}
	return false
}
