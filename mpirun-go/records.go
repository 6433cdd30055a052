package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mpigo/mpigo/internal/atomicfile"
	"github.com/mpigo/mpigo/internal/hangreport"
	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/mpirun-go/internal/cli"
	"github.com/mpigo/mpigo/mpirun-go/internal/diagnose"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
	"github.com/mpigo/mpigo/mpirun-go/internal/profile"
	"github.com/mpigo/mpigo/mpirun-go/internal/records"
	"github.com/mpigo/mpigo/mpirun-go/internal/remote"
	"github.com/mpigo/mpigo/mpirun-go/internal/trace"
)

// recorder collects the records of a job's ranks in the directories of --profile, --cpuprofile and
// --trace.
type recorder struct {
	con   *console
	dirs  []remote.RecordDir
	job   records.Job
	hosts []recordHost

	mu      sync.Mutex      // held while files are collected; guards fetched
	fetched map[string]bool // files that were copied from another host
}

// recordHost is another host, which does not share some of the directories with the launcher.
type recordHost struct {
	*remote.Host
	own   []remote.RecordDir
	ranks []int
}

// newRecorder creates the directories, removes the records of earlier jobs, and adds the settings
// that tell ranks the directories. Ranks may have another working directory, so paths are absolute.
func newRecorder(con *console, cmd *cli.Command) (*recorder, error) {
	r := &recorder{con: con, fetched: make(map[string]bool)}
	for _, flag := range []struct {
		kind records.Kind
		dir  *string
	}{{records.Profile, &cmd.Profile}, {records.CPUProfile, &cmd.CPUProfile}, {records.Trace, &cmd.Trace}} {
		if *flag.dir == "" {
			continue
		}
		dir, err := filepath.Abs(*flag.dir)
		if err == nil {
			err = makeWritable(dir)
		}
		if err == nil {
			err = flag.kind.Clear(dir)
		}
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag.kind, err)
		}
		*flag.dir = dir
		r.dirs = append(r.dirs, remote.RecordDir{Kind: flag.kind, Path: dir})
		cmd.Settings = append(cmd.Settings, cli.Setting{Key: string(flag.kind), Value: dir})
	}
	return r, nil
}

// makeWritable creates a directory unless it exists, and checks that files can be written there, so
// that a job does not fail to write its records after hours.
func makeWritable(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".mpirun-go-*")
	if pathError := (*fs.PathError)(nil); errors.As(err, &pathError) {
		return fmt.Errorf("no file can be made in %s: %w", dir, pathError.Err)
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// dirOf returns the directory of a kind, if the job has one.
func (r *recorder) dirOf(kind records.Kind) (remote.RecordDir, bool) {
	for _, d := range r.dirs {
		if d.Kind == kind {
			return d, true
		}
	}
	return remote.RecordDir{}, false
}

// Time limits for the work with records on other hosts.
const (
	ownDirsTimeout = 10 * time.Second
	fetchTimeout   = time.Minute
)

var (
	errNoAnswer = fmt.Errorf("no answer within %v", ownDirsTimeout)
	errFetch    = fmt.Errorf("not all files have come within %v", fetchTimeout)
)

// withLooks is like context.WithTimeoutCause, but counts ticks instead of time, so that a launcher
// that was stopped for a while does not consider the hosts slow.
func withLooks(ctx context.Context, limit time.Duration, cause error) (context.Context, context.CancelFunc) {
	const looks = 20
	ctx, cancel := context.WithCancelCause(ctx)
	ticker := time.NewTicker(limit / looks)
	go func() {
		defer ticker.Stop()
		cancel(endAfter(ctx, looks, ticker.C, cause))
	}()
	return ctx, func() { cancel(nil) }
}

// endAfter returns cause after the given number of ticks, or nil when ctx has ended.
func endAfter(ctx context.Context, looks int, look <-chan time.Time, cause error) error {
	for range looks {
		select {
		case <-look:
		case <-ctx.Done():
			return nil
		}
	}
	return cause
}

// findHosts determines, before ranks start, which hosts have local directories. A host that shares
// a directory with the launcher sees the marker there.
func (r *recorder) findHosts(ctx context.Context, hs *hostSet, specs []procs.Spec, jobID string) {
	r.job = records.Job{ID: jobID, Size: len(specs)}
	if len(r.dirs) == 0 || hs.cluster == nil {
		return
	}
	marker := ".job-" + jobID
	for _, d := range r.dirs {
		path := filepath.Join(d.Path, marker)
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			r.con.logf("warning: --%s: the files of other hosts stay there: %v", d.Kind, err)
			return
		}
		defer os.Remove(path)
	}
	ranks := make(map[int][]int)
	for _, spec := range specs {
		if hs.remotes[spec.Host] != nil {
			ranks[spec.Host] = append(ranks[spec.Host], spec.Rank)
		}
	}
	ctx, cancel := withLooks(ctx, ownDirsTimeout, errNoAnswer)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex // guards r.hosts
	for i, list := range ranks {
		host := hs.remotes[i]
		all.Go(func() {
			own, err := host.OwnDirs(ctx, marker, r.dirs)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				r.con.logf("warning: %s: the files of --%s stay there: %v", host.Name(), r.flags(), err)
			case len(own) > 0:
				r.hosts = append(r.hosts, recordHost{host, own, list})
			}
		})
	}
	all.Wait()
}

func (r *recorder) flags() string {
	var names []string
	for _, d := range r.dirs {
		names = append(names, string(d.Kind))
	}
	return strings.Join(names, ", --")
}

// fetch copies the files of some kinds from the hosts that have local directories. The caller holds
// mu.
func (r *recorder) fetch(ctx context.Context, kinds ...records.Kind) {
	ctx, cancel := withLooks(ctx, fetchTimeout, errFetch)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex // guards r.fetched
	for _, h := range r.hosts {
		all.Go(func() {
			for _, dir := range h.own {
				for _, kind := range kinds {
					if dir.Kind != kind {
						continue
					}
					if err := h.fetchAll(ctx, dir, r.fetched, &mu); err != nil {
						r.con.logf("--%s: %s: %v", kind, h.Name(), err)
					}
				}
			}
		})
	}
	all.Wait()
}

// fetchAll copies the files of the host's ranks. It keeps a file that already exists, unless an
// earlier call has copied it. mu guards fetched.
func (h recordHost) fetchAll(ctx context.Context, dir remote.RecordDir, fetched map[string]bool, mu *sync.Mutex) error {
	for _, rank := range h.ranks {
		path := dir.Kind.Path(dir.Path, rank)
		mu.Lock()
		isOurs := fetched[path]
		mu.Unlock()
		if _, err := os.Lstat(path); err == nil && !isOurs {
			continue
		}
		err := atomicfile.Write(path, 0o666, func(w io.Writer) error { return h.Fetch(ctx, dir, rank, w) })
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // the rank has written none
		case err != nil:
			return fmt.Errorf("rank %d: %w", rank, err)
		}
		mu.Lock()
		fetched[path] = true
		mu.Unlock()
	}
	return nil
}

// fetchLast copies the files of the ranks from other hosts, after the ranks have ended.
func (r *recorder) fetchLast(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.hosts) > 0 {
		r.fetch(ctx, records.Profile, records.CPUProfile, records.Trace)
	}
}

// finish merges the files of the ranks for the user, after the ranks have ended.
func (r *recorder) finish(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, kind := range []records.Kind{records.Profile, records.Trace} {
		if d, isSet := r.dirOf(kind); isSet {
			line, err := merge(ctx, kind, d.Path, r.job)
			switch {
			case ctx.Err() != nil && err != nil:
				line = fmt.Sprintf("--%s: %v; mpirun-go merge %s makes what is missing", kind, oneLine(err), d.Path)
			case err != nil:
				line = fmt.Sprintf("--%s: %v", kind, oneLine(err))
			}
			r.con.logf("%s", line)
		}
	}
}

// merge merges the ranks' profiles or traces of a job into one, and returns a line with its path.
// If job is zero, the files in the directory determine the job.
func merge(ctx context.Context, kind records.Kind, dir string, job records.Job) (line string, err error) {
	if kind == records.Trace {
		j, path, err := makeTrace(ctx, dir, job)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%s: %s%s", kind, path, without(j.Missing, j.Why)), nil
	}
	j, err := profile.Load(ctx, dir, job)
	if err != nil {
		return "", err
	}
	path, err := j.Write(dir)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s: %s%s", kind, path, without(j.Missing, j.Why)), nil
}

// makeTrace merges the traces of the ranks into the trace of the job. It returns soon after ctx
// ends.
func makeTrace(ctx context.Context, dir string, job records.Job) (j *trace.Job, path string, err error) {
	if j, err = trace.Load(ctx, dir, job); err == nil {
		path, err = j.Write(ctx, dir)
	}
	return j, path, err
}

// without returns a text about the ranks without a file, and about files that cannot be read.
func without(missing []int, why []string) string {
	switch {
	case len(missing) == 0:
		return ""
	case len(why) == 0:
		return fmt.Sprintf(" (without %s, which wrote none)", rankList(missing))
	}
	return fmt.Sprintf(" (without %s; %s)", rankList(missing), strings.Join(why[:min(len(why), 3)], "; "))
}

// dumpTrace makes a trace of the running job from the files that the ranks have just written, and
// returns the result in one line. members are the ranks' answers.
func (r *recorder) dumpTrace(ctx context.Context, members []introspect.Member) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, _ := r.dirOf(records.Trace)
	if len(r.hosts) > 0 {
		r.fetch(ctx, records.Trace)
	}
	return traceUntilNow(ctx, d.Path, r.job, members)
}

// traceUntilNow merges the traces that the ranks of a job have just written, and returns the result
// in one line. members are the ranks' answers.
func traceUntilNow(ctx context.Context, dir string, job records.Job, members []introspect.Member) string {
	j, path, err := makeTrace(ctx, dir, job)
	if err != nil {
		return "trace: " + err.Error()
	}
	isMissing := make(map[int]bool)
	for _, rank := range j.Missing {
		isMissing[rank] = true
	}
	return "trace until now: " + path + notWritten(members, isMissing)
}

// notWritten names the ranks that have not written their traces just now, and why. Ranks that have
// ended wrote theirs before, unless they are missing.
func notWritten(members []introspect.Member, isMissing map[int]bool) string {
	var order []string
	by := make(map[string][]int)
	for _, m := range members {
		why := ""
		switch hasEnded := m.State == introspect.StateFinalized || m.State == introspect.StateExited || m.State == introspect.StateLeaving; {
		case hasEnded && isMissing[m.Rank]:
			why = string(m.State)
		case hasEnded:
		case m.State == introspect.StateSilent && m.Process != diagnose.Stopped:
			why = "no answer"
		case m.State != introspect.StateAnswered:
			if why = m.Process; why == "" {
				why = string(m.State)
			}
		case m.Error != "":
			why = fmt.Sprintf("%.100q", m.Error)
		case isMissing[m.Rank]:
			why = "its file did not arrive"
		}
		if why == "" {
			continue
		}
		if by[why] == nil {
			order = append(order, why)
		}
		by[why] = append(by[why], m.Rank)
	}
	var parts []string
	for _, why := range order {
		parts = append(parts, fmt.Sprintf("%s: %s", rankList(by[why]), why))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (not written by " + strings.Join(parts, "; ") + ")"
}

// rankList returns a list of ranks as text.
func rankList(ranks []int) string {
	if len(ranks) == 1 {
		return "rank " + hangreport.Ranks(ranks)
	}
	return "ranks " + hangreport.Ranks(ranks)
}
