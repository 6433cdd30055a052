package records

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Job identifies the job of a file.
type Job struct {
	ID   string // unique to the job
	Size int    // number of ranks
}

// Files holds the files that the ranks of a job have left in a directory.
type Files[F any] struct {
	Job  Job
	List []*F // by rank
	// Missing lists the ranks without a good file. Why lists the errors of files that exist.
	Missing []int
	Why     []string
}

// Form says how to read files of one kind.
type Form[F any] struct {
	Kind Kind
	Read func(io.Reader) (*F, error)
	// Of returns the rank and the job of a file.
	Of func(*F) (rank int, job Job)
}

// NoneError means that no rank has left a file.
type NoneError struct {
	Dir  string
	Kind Kind
}

func (e *NoneError) Error() string { return fmt.Sprintf("%s has no %s of a rank", e.Dir, e.Kind) }

// Load reads the files of a job, and ends with ctx. It ignores files of other jobs. If job is zero,
// the job is the one of the first good file, and a file of another job is an error, because the
// choice would be ambiguous.
func (f Form[F]) Load(ctx context.Context, dir string, job Job) (*Files[F], error) {
	ranks, err := f.Kind.ranks(dir)
	if err = cmp.Or(context.Cause(ctx), err); err != nil {
		return nil, err
	}
	isKnown := job.Size > 0
	all := &Files[F]{Job: job}
	isGood, first := make(map[int]bool), ""
	for _, rank := range ranks {
		if isKnown && rank >= job.Size {
			break
		}
		path := f.Kind.Path(dir, rank)
		file, of, err := f.read(ctx, path, rank)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err == nil && all.Job.Size == 0 {
			all.Job, first = of, path
		}
		isOther := err == nil && of != all.Job || all.Job.Size > 0 && rank >= all.Job.Size
		switch {
		case isOther && !isKnown:
			return nil, fmt.Errorf("%s is of job %.80q with %s, and %s of another job: remove the files of one",
				first, all.Job.ID, plural(all.Job.Size), path)
		case isOther:
			err = errors.New("its file is of another job")
		}
		if err != nil {
			all.Why = append(all.Why, fmt.Sprintf("rank %d: %v", rank, err))
			continue
		}
		isGood[rank] = true
		all.List = append(all.List, file)
	}
	for rank := range all.Job.Size {
		if !isGood[rank] {
			all.Missing = append(all.Missing, rank)
		}
	}
	switch {
	case len(all.List) > 0:
		return all, nil
	case len(all.Why) > 0:
		return nil, fmt.Errorf("%s has no %s that can be read%s", dir, f.Kind, reasons(all.Why))
	}
	return nil, &NoneError{dir, f.Kind}
}

// read reads the file of a rank.
func (f Form[F]) read(ctx context.Context, path string, rank int) (*F, Job, error) {
	from, _, err := Open(path, 0)
	if err != nil {
		return nil, Job{}, err
	}
	defer from.Close()
	file, err := f.Read(untilDone{ctx, from})
	if err != nil {
		return nil, Job{}, err
	}
	of, job := f.Of(file)
	if of != rank {
		return nil, Job{}, fmt.Errorf("its file is of rank %d", of)
	}
	return file, job, nil
}

func plural(ranks int) string {
	if ranks == 1 {
		return "1 rank"
	}
	return fmt.Sprintf("%d ranks", ranks)
}

// reasons returns the end of a message: the first few reasons why files cannot be read.
func reasons(why []string) string {
	const most = 3
	if n := len(why); n > most {
		return fmt.Sprintf(": %s; and %d more", strings.Join(why[:most], "; "), n-most)
	}
	return ": " + strings.Join(why, "; ")
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
