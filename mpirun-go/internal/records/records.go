// Package records has the names of the files in which ranks record what they do: profiles, CPU
// profiles and traces. A file belongs to a rank of a job, and a directory has those of one job.
package records

import (
	"context"
	"errors"
	"fmt"
	"io"
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
// what the first good file says. It is 0 if there is no file. That there are files of several jobs
// is an error, as far as their names show it.
func (k Kind) JobSize(ctx context.Context, dir string) (int, error) {
	ranks, err := k.ranks(dir)
	if err != nil {
		return 0, err
	}
	var why []string
	for _, rank := range ranks {
		path, last := k.Path(dir, rank), ranks[len(ranks)-1]
		size, err := k.sizeIn(ctx, path)
		switch {
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case err != nil:
			why = append(why, fmt.Sprintf("rank %d: %v", rank, err))
		case last >= size:
			return 0, fmt.Errorf("%s is of a job of size %d, and %s of another job: remove the files of one",
				path, size, k.Path(dir, last))
		default:
			return size, nil
		}
	}
	if len(why) == 0 {
		return 0, nil
	}
	return 0, fmt.Errorf("%s has no %s that can be read%s", dir, k, Reasons(why))
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

// sizeIn is the size of the job in a file.
func (k Kind) sizeIn(ctx context.Context, path string) (int, error) {
	if k == Profile {
		f, err := Read(ctx, path, profile.Read)
		if err != nil {
			return 0, err
		}
		return f.Size, nil
	}
	f, err := Read(ctx, path, trace.Read)
	if err != nil {
		return 0, err
	}
	return f.Size, nil
}

// Reasons is the end of a message, with the first few reasons why files cannot be read.
func Reasons(why []string) string {
	const most = 3
	switch n := len(why); {
	case n == 0:
		return ""
	case n > most:
		return fmt.Sprintf(": %s; and %d more", strings.Join(why[:most], "; "), n-most)
	}
	return ": " + strings.Join(why, "; ")
}

// Read reads the file of a rank, until ctx ends.
func Read[F any](ctx context.Context, path string, read func(io.Reader) (*F, error)) (*F, error) {
	file, _, err := Open(path, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	f, err := read(untilDone{ctx, file})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return f, err
}

// untilDone is a reader that fails once ctx has ended.
type untilDone struct {
	ctx  context.Context
	from io.Reader
}

func (r untilDone) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.from.Read(p)
}

// Open opens the file of a rank, with further flags. Another user may have put a FIFO in its place,
// which would never end.
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
