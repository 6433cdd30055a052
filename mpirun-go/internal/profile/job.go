// Package profile makes a page and a text of the profiles of a job's ranks.
package profile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/mpigo/mpigo/internal/atomicfile"
	"github.com/mpigo/mpigo/internal/profile"
	"github.com/mpigo/mpigo/internal/shortpath"
	"github.com/mpigo/mpigo/mpirun-go/internal/records"
)

// Job holds the profiles of a job's ranks.
type Job struct {
	Size  int
	Files []*profile.File // of the ranks that have one, by rank
	// Missing lists the ranks without a readable file. Why lists the errors of files that exist.
	Missing []int
	Why     []string
}

// Load reads the profiles of a job, as records.Form.Load does.
func Load(ctx context.Context, dir string, job records.Job) (*Job, error) {
	files, err := form.Load(ctx, dir, job)
	if err != nil {
		return nil, err
	}
	return &Job{Size: files.Job.Size, Files: files.List, Missing: files.Missing, Why: files.Why}, nil
}

var form = records.Form[profile.File]{
	Kind: records.Profile,
	Read: profile.Read,
	Of:   func(f *profile.File) (int, records.Job) { return f.Rank, records.Job{ID: f.Job, Size: f.Size} },
}

// Write writes the page and the text of a job to a directory, and returns the path of the page.
func (j *Job) Write(dir string) (page string, err error) {
	page = filepath.Join(dir, "profile.html")
	return page, errors.Join(
		atomicfile.Write(page, 0o666, j.HTML),
		atomicfile.Write(filepath.Join(dir, "profile.txt"), 0o666, j.Text),
	)
}

// Site sums up the calls of one name at one line, over all ranks.
type Site struct {
	ID             int
	Call, Function string
	File           string
	Name           string // of the file, short
	Line           int
	State          string
	Sends          bool
	ByRank         []RankSite // of the ranks that call it
	Total          profile.Site
	// COV is the coefficient of variation of the ranks' times: the standard deviation divided by
	// the mean.
	COV float64
}

// RankSite sums up the calls of a rank at a line.
type RankSite struct {
	Rank int
	profile.Site
}

// Sites lists the lines of all ranks. They are numbered in the order of files and lines.
func (j *Job) Sites() []*Site {
	type key struct {
		call, file string
		line       int
	}
	byKey := make(map[key]*Site)
	var all []*Site
	for _, f := range j.Files {
		for _, s := range f.Sites {
			k := key{s.Call, s.File, s.Line}
			site := byKey[k]
			if site == nil {
				site = &Site{Call: s.Call, Function: s.Function, File: s.File, Line: s.Line, State: s.State, Sends: s.Sends, Total: profile.Site{Min: math.MaxInt64}}
				byKey[k] = site
				all = append(all, site)
			}
			site.ByRank = append(site.ByRank, RankSite{f.Rank, s})
			t := &site.Total
			t.Calls += s.Calls
			t.Timed += s.Timed
			t.Estimated = t.Estimated || s.Estimated
			t.Nanos += s.Nanos
			t.Waiting += s.Waiting
			t.Moving += s.Moving
			t.Bytes += s.Bytes
			t.Min, t.Max = min(t.Min, s.Min), max(t.Max, s.Max)
		}
	}
	slices.SortFunc(all, func(a, b *Site) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Call, b.Call))
	})
	var files []string
	for _, s := range all {
		files = append(files, s.File)
	}
	names := shortpath.Of(files)
	for i, s := range all {
		s.ID, s.Name = i+1, names.Name(s.File)
		s.COV = variation(s.ByRank)
	}
	return all
}

func variation(ranks []RankSite) float64 {
	sum, squares, n := 0.0, 0.0, float64(len(ranks))
	for _, r := range ranks {
		sum += r.Nanos
	}
	mean := sum / n
	if mean == 0 || n < 2 {
		return 0
	}
	for _, r := range ranks {
		squares += (r.Nanos - mean) * (r.Nanos - mean)
	}
	return math.Sqrt(squares/(n-1)) / mean
}

// Where returns the line as reports print it.
func (s *Site) Where() string {
	if s.File == "" {
		return "unknown"
	}
	return fmt.Sprintf("%s:%d", s.Name, s.Line)
}

// byTime sorts by time, longest first.
func byTime(sites []*Site) []*Site {
	out := slices.Clone(sites)
	slices.SortStableFunc(out, func(a, b *Site) int { return -cmp.Compare(a.Total.Nanos, b.Total.Nanos) })
	return out
}

// Times of a rank, in nanoseconds.
type Times struct {
	Rank                     int
	Host                     string
	App, Calls               float64 // Calls is part of App
	Waiting, Moving, Working float64 // parts of Calls
	Estimated                bool    // all but App are estimates
}

// Times lists the times of the ranks.
func (j *Job) Times() []Times {
	var all []Times
	for _, f := range j.Files {
		t := Times{Rank: f.Rank, Host: f.Host, App: float64(f.AppNanos)}
		for _, s := range f.Sites {
			t.Calls += s.Nanos
			t.Waiting += s.Waiting
			t.Moving += s.Moving
			t.Estimated = t.Estimated || s.Estimated
		}
		t.Working = max(t.Calls-t.Waiting-t.Moving, 0)
		all = append(all, t)
	}
	return all
}

// sumOf adds up the times of all ranks.
func sumOf(times []Times) (sum Times) {
	for _, t := range times {
		sum.App += t.App
		sum.Calls += t.Calls
		sum.Waiting += t.Waiting
		sum.Moving += t.Moving
		sum.Working += t.Working
		sum.Estimated = sum.Estimated || t.Estimated
	}
	return sum
}

// share returns a part of a whole, in percent.
func share(part, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return 100 * part / whole
}

// state is the time in a wait state, and the line where most of it is.
type state struct {
	Name    string
	Nanos   float64
	Worst   *Site
	Rank    int // with the most
	ofWorst float64
	// Estimated says that Nanos is an estimate.
	Estimated bool
}

// States lists the wait states by time.
func (j *Job) States(sites []*Site) []*state {
	byName := make(map[string]*state)
	var all []*state
	for _, s := range sites {
		if s.Total.Waiting == 0 {
			continue
		}
		st := byName[s.State]
		if st == nil {
			st = &state{Name: s.State}
			byName[s.State] = st
			all = append(all, st)
		}
		st.Nanos += s.Total.Waiting
		st.Estimated = st.Estimated || s.Total.Estimated
		if s.Total.Waiting > st.ofWorst {
			st.Worst, st.ofWorst = s, s.Total.Waiting
			most := slices.MaxFunc(s.ByRank, func(a, b RankSite) int { return cmp.Compare(a.Waiting, b.Waiting) })
			st.Rank = most.Rank
		}
	}
	slices.SortFunc(all, func(a, b *state) int { return -cmp.Compare(a.Nanos, b.Nanos) })
	return all
}

// named is a counter over all ranks.
type named struct {
	Name  string
	Count uint64
}

// Protocols adds up the counters of the protocols.
func (j *Job) Protocols() []named {
	var all []named
	for _, f := range j.Files {
		for _, p := range f.Protocols {
			i := slices.IndexFunc(all, func(n named) bool { return n.Name == p.Name })
			if i < 0 {
				i = len(all)
				all = append(all, named{Name: p.Name})
			}
			all[i].Count += p.Count
		}
	}
	return all
}

// kind sums up the calls of one name, over all ranks.
type kind struct {
	Name  string
	Calls uint64
	Sizes []uint64 // by the number of bits of the length
	Nanos float64
	// Estimated says that Nanos is an estimate. The counts are exact.
	Estimated bool
}

// Kinds lists the calls by name, with the most time first.
func (j *Job) Kinds() []*kind {
	byName := make(map[string]*kind)
	var all []*kind
	of := func(name string) *kind {
		if byName[name] == nil {
			byName[name] = &kind{Name: name}
			all = append(all, byName[name])
		}
		return byName[name]
	}
	for _, f := range j.Files {
		for _, k := range f.Kinds {
			sum := of(k.Name)
			sum.Calls += k.Calls
			for i, n := range k.Sizes {
				for len(sum.Sizes) <= i {
					sum.Sizes = append(sum.Sizes, 0)
				}
				sum.Sizes[i] += n
			}
		}
		for _, s := range f.Sites {
			k := of(s.Call)
			k.Nanos += s.Nanos
			k.Estimated = k.Estimated || s.Estimated
		}
	}
	slices.SortStableFunc(all, func(a, b *kind) int { return -cmp.Compare(a.Nanos, b.Nanos) })
	return all
}

// Working returns the time in the calls that is neither waiting nor moving.
func (s *Site) Working() float64 { return max(s.Total.Nanos-s.Total.Waiting-s.Total.Moving, 0) }
