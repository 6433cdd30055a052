package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"
)

// results is everything that was measured.
type results struct {
	Begun      time.Time   `json:"begun"`
	Ended      time.Time   `json:"ended"`
	Rounds     int         `json:"rounds"` // whole ones
	Bind       string      `json:"bind"`
	Machine    machine     `json:"machine"`
	Contenders []described `json:"contenders"`
	Problems   []string    `json:"problems,omitempty"`
	Series     []series    `json:"series"`
}

// described says how a contender is run.
type described struct {
	Name    string `json:"name"`
	Example string `json:"example"` // a command line
}

// point is what contenders are compared at.
type point struct {
	Experiment string `json:"experiment"`
	Ranks      int    `json:"ranks"`
	Size       int    `json:"size"`
	Unit       string `json:"unit"`
}

// series is what a contender has reached at a point, one value from each round.
type series struct {
	point
	Contender string    `json:"contender"`
	Values    []float64 `json:"values"`
}

// higherIsBetter: it is a rate, not a time.
func (p point) higherIsBetter() bool { return p.Unit == "MB/s" || p.Unit == "msg/s" }

func (r *results) add(p point, contender string, value float64) {
	for i := range r.Series {
		if s := &r.Series[i]; s.point == p && s.Contender == contender {
			s.Values = append(s.Values, value)
			return
		}
	}
	r.Series = append(r.Series, series{p, contender, []float64{value}})
}

// at gives the values of a contender at a point.
func (r *results) at(p point, contender string) (summary, bool) {
	v := r.values(p, contender)
	if len(v) == 0 {
		return summary{}, false
	}
	return summarize(series{point: p, Values: v}), true
}

// paired is the median of the ratios, round by round, of what two contenders have reached; 0 if one of them lacks a round.
func (r *results) paired(p point, contender string, q point, other string) float64 {
	ratios := series{point: p}
	a, b := r.values(p, contender), r.values(q, other)
	if len(a) != len(b) || len(a) == 0 {
		return 0
	}
	for i := range a {
		ratios.Values = append(ratios.Values, a[i]/b[i])
	}
	return summarize(ratios).median
}

func (r *results) values(p point, contender string) []float64 {
	for _, s := range r.Series {
		if s.point == p && s.Contender == contender {
			return s.Values
		}
	}
	return nil
}

// points are those of an experiment, in order.
func (r *results) points(experiment string, ranks int) []point {
	var all []point
	for _, s := range r.Series {
		if s.Experiment == experiment && (ranks == 0 || s.Ranks == ranks) && !slices.Contains(all, s.point) {
			all = append(all, s.point)
		}
	}
	slices.SortStableFunc(all, func(a, b point) int {
		if a.Ranks != b.Ranks {
			return a.Ranks - b.Ranks
		}
		return a.Size - b.Size
	})
	return all
}

// summary is a series in short. The best of a time is the least, of a rate the most.
type summary struct{ median, best float64 }

func summarize(s series) summary {
	v := slices.Sorted(slices.Values(s.Values))
	n := len(v)
	sum := summary{median: (v[(n-1)/2] + v[n/2]) / 2, best: v[0]}
	if s.higherIsBetter() {
		sum.best = v[n-1]
	}
	return sum
}

// best is the best of some contenders at a point: of their medians, and, maybe another one's,
// of their best values.
type best struct {
	summary
	who string // by median
}

func (r *results) bestOf(p point, contenders []string) (best, bool) {
	var b best
	better := func(x, y float64) bool { return (x < y) != p.higherIsBetter() }
	for _, name := range contenders {
		s, ok := r.at(p, name)
		if !ok {
			continue
		}
		if b.who == "" {
			b = best{s, name}
			continue
		}
		if better(s.median, b.median) {
			b.median, b.who = s.median, name
		}
		if better(s.best, b.best) {
			b.best = s.best
		}
	}
	return b, b.who != ""
}

func (r *results) write(path string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func readResults(path string) (*results, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &results{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}
