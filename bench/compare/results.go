package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// results holds everything that was measured.
type results struct {
	session
	Series []series
}

// session describes a measurement.
type session struct {
	Begun      time.Time   `json:"begun"`
	Ended      time.Time   `json:"ended"`
	Rounds     int         `json:"rounds"` // complete ones
	Bind       string      `json:"bind"`
	Machine    machine     `json:"machine"`
	Contenders []described `json:"contenders"`
	Problems   []string    `json:"problems,omitempty"`
}

// described shows how a contender is run.
type described struct {
	Name    string `json:"name"`
	Example string `json:"example"` // a command line
}

// point is a measuring point at which contenders are compared.
type point struct {
	Experiment string
	Ranks      int
	Size       int // bytes
	Unit       string
}

// series holds the values of a contender at a point, one from each round.
type series struct {
	point
	Contender string
	Values    []float64
}

// toNonblocking is the unit of a persistent call's ratio to the nonblocking one.
const toNonblocking = "of nonblocking"

// higherIsBetter reports whether the point is a rate or an overlap rather than a time.
func (p point) higherIsBetter() bool { return p.Unit == "MB/s" || p.Unit == "msg/s" || p.Unit == "%" }

// digits is the number of significant digits of a value, as many as the programs print.
const digits = 6

// add adds the value of a round.
func (r *results) add(p point, contender string, value float64) {
	value, _ = strconv.ParseFloat(format(value), 64)
	for i := range r.Series {
		if s := &r.Series[i]; s.point == p && s.Contender == contender {
			s.Values = append(s.Values, value)
			return
		}
	}
	r.Series = append(r.Series, series{p, contender, []float64{value}})
}

func format(value float64) string { return strconv.FormatFloat(value, 'g', digits, 64) }

// hasContender reports whether a value of a contender was measured, and not only the machine's
// limits.
func (r *results) hasContender() bool {
	return slices.ContainsFunc(r.Series, func(s series) bool {
		return slices.ContainsFunc(r.Contenders, func(c described) bool { return c.Name == s.Contender })
	})
}

// at returns the median and the best value of a contender at a point.
func (r *results) at(p point, contender string) (summary, bool) {
	v := r.values(p, contender)
	if len(v) == 0 {
		return summary{}, false
	}
	return summarize(series{point: p, Values: v}), true
}

// paired returns the median of the ratios, round by round, of two contenders' values; 0 if one of
// them lacks a round.
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

// points returns the points of an experiment, by ranks and size. With ranks 0 it returns those of
// any number of ranks.
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

// summary sums up a series. The best time is the least, the best rate is the highest.
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

// best is the best result of several contenders at a point: the best median, and the best value,
// which may come from another contender.
type best struct {
	summary
	contender string // has the best median
}

func (r *results) bestOf(p point, contenders []string) (best, bool) {
	var b best
	better := func(x, y float64) bool { return (x < y) != p.higherIsBetter() }
	for _, name := range contenders {
		s, ok := r.at(p, name)
		if !ok {
			continue
		}
		if b.contender == "" {
			b = best{s, name}
			continue
		}
		if better(s.median, b.median) {
			b.median, b.contender = s.median, name
		}
		if better(s.best, b.best) {
			b.best = s.best
		}
	}
	return b, b.contender != ""
}

// The file of results is a CSV file with a row for each point and a column for each contender. A
// cell has the value of each round. The first line is a comment with the session as JSON.
const (
	comment = '#'
	columns = "benchmark,ranks,size,unit" // and the contenders
)

func (r *results) write(path string) error {
	head, err := json.Marshal(r.session)
	if err != nil {
		return err
	}
	var points []point
	var names []string
	for _, s := range r.Series {
		if !slices.Contains(points, s.point) {
			points = append(points, s.point)
		}
		if !slices.Contains(names, s.Contender) {
			names = append(names, s.Contender)
		}
	}
	b := bytes.NewBufferString(fmt.Sprintf("%c %s\n", comment, head))
	out := csv.NewWriter(b)
	_ = out.Write(append(strings.Split(columns, ","), names...)) // a bytes.Buffer takes everything
	for _, p := range points {
		row := []string{p.Experiment, strconv.Itoa(p.Ranks), strconv.Itoa(p.Size), p.Unit}
		for _, name := range names {
			var rounds []string
			for _, v := range r.values(p, name) {
				rounds = append(rounds, format(v))
			}
			row = append(row, strings.Join(rounds, " "))
		}
		_ = out.Write(row)
	}
	out.Flush()
	return os.WriteFile(path, b.Bytes(), 0o644)
}

func readResults(path string) (*results, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r, err := parseResults(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s is not a file of results: %w", path, err)
	}
	return r, nil
}

func parseResults(text string) (*results, error) {
	head, _, _ := strings.Cut(strings.TrimPrefix(text, string(comment)), "\n")
	r := &results{}
	if err := json.Unmarshal([]byte(head), &r.session); err != nil {
		return nil, err
	}
	in := csv.NewReader(strings.NewReader(text))
	in.Comment = comment
	rows, err := in.ReadAll()
	if err != nil {
		return nil, err
	}
	keys := strings.Split(columns, ",")
	if len(rows) == 0 || !slices.Equal(rows[0][:min(len(keys), len(rows[0]))], keys) {
		return nil, fmt.Errorf("the first columns are not %s", columns)
	}
	for _, row := range rows[1:] {
		p := point{Experiment: row[0], Unit: row[3]}
		if p.Ranks, err = strconv.Atoi(row[1]); err != nil {
			return nil, err
		}
		if p.Size, err = strconv.Atoi(row[2]); err != nil {
			return nil, err
		}
		for i := len(keys); i < len(row); i++ {
			for field := range strings.FieldsSeq(row[i]) {
				v, err := strconv.ParseFloat(field, 64)
				if err != nil {
					return nil, err
				}
				r.add(p, rows[0][i], v)
			}
		}
	}
	return r, nil
}
