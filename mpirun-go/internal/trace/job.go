// Package trace merges the traces of a job's ranks into a page, which needs no other program than a
// browser, and into a file in the JSON format of Chrome's trace viewer, which Perfetto reads. In
// that format:
//
//	process, pid  a rank
//	thread, tid   0: what happens in no call; from 1 on: calls, on further ones those that overlap
//	X             a call
//	s, f          a message, from the call that sends it to the call in which it matches a receive
//	b, e          a nonblocking operation, from its call until the user has observed its completion
//	i             a rail that fails or comes back
package trace

import (
	"context"
	"errors"
	"io"
	"path/filepath"

	"github.com/mpigo/mpigo/internal/atomicfile"
	"github.com/mpigo/mpigo/internal/trace"
	"github.com/mpigo/mpigo/mpirun-go/internal/records"
)

// Job holds the traces of a job's ranks.
type Job struct {
	Size    int
	Files   []*trace.File // of the ranks that have one, by rank
	Missing []int
	Why     []string // reasons other than that there is no file

	isAligned bool // the times of the events are those of one clock
}

// Load reads the traces of a job, as records.Form.Load does.
func Load(ctx context.Context, dir string, job records.Job) (*Job, error) {
	files, err := form.Load(ctx, dir, job)
	if err != nil {
		return nil, err
	}
	return &Job{Size: files.Job.Size, Files: files.List, Missing: files.Missing, Why: files.Why}, nil
}

var form = records.Form[trace.File]{
	Kind: records.Trace,
	Read: trace.Read,
	Of:   func(f *trace.File) (int, records.Job) { return f.Rank, records.Job{ID: f.Job, Size: f.Size} },
}

// Write writes trace.html and trace.json to a directory, and returns the path of the page. It ends
// with ctx. It changes the times of the events.
func (j *Job) Write(ctx context.Context, dir string) (page string, err error) {
	page = filepath.Join(dir, "trace.html")
	return page, errors.Join(
		atomicfile.Write(page, 0o666, func(w io.Writer) error { return j.HTML(untilDone{ctx, w}) }),
		// Chrome has arrows only between calls, and changes events for that: it comes last.
		atomicfile.Write(filepath.Join(dir, "trace.json"), 0o666, func(w io.Writer) error { return j.Chrome(untilDone{ctx, w}) }),
	)
}

// untilDone is a writer that fails once ctx has ended.
type untilDone struct {
	ctx context.Context
	to  io.Writer
}

func (w untilDone) Write(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.to.Write(p)
}
