package main

import (
	"fmt"
	"slices"
	"time"
)

// benchmark is what there is to know of one.
type benchmark struct {
	name    string
	ranks   ranks
	unit    int // every size is a multiple of it; also the smallest size by default
	max     int // largest size by default
	counts  counts
	flags   []string // that it takes besides those of all
	columns []column
	// open makes what a rank does.
	open func(j *job) (exercise, error)
	// report makes what the columns show, from what a rank has measured. Every rank calls it;
	// what it gives to rank 0 counts.
	report func(j *job, m measured) ([]float64, error)
}

// ranks says how many a benchmark takes.
type ranks struct {
	min, max int // no limit if max is 0
	even     bool
}

func (r ranks) String() string {
	if r.min == r.max {
		return fmt.Sprintf("%d ranks", r.min)
	}
	return fmt.Sprintf("at least %d ranks", r.min)
}

// counts are how many iterations are due. The programs for the peers have the same.
type counts struct{ small, smallWarmUp, large, largeWarmUp int }

// largeBytes: sizes over it get fewer iterations.
const largeBytes = 8 << 10

// measured is the outcome of one size at one rank.
type measured struct {
	bytes, iterations int
	elapsed           time.Duration // of all iterations
}

// exercise is what one rank does in a benchmark.
type exercise interface {
	// resize sets the size of what follows, in bytes: at most the largest of the job.
	resize(bytes int) error
	// run does n iterations and gives the time that counts.
	run(n int) (time.Duration, error)
	// fill puts data that depends on seed where the next iteration takes it from, and
	// spoils what it is to overwrite. check looks at what that iteration has brought.
	fill(seed int)
	check(seed int) error
	close() error
}

// Flags of the kinds of benchmark. Never written, as all that follows.
var (
	ofEmpty       = []string{"local"}
	ofBarrier     = []string{"local", "i", "x", "json", "two-comms"}
	ofPersistent  = []string{"local", "i", "x", "json", "m", "alloc", "validate"}
	ofCollectives = append(slices.Clone(ofPersistent), "fresh", "pool", "two-comms")
	ofLatency     = append(slices.Clone(ofCollectives), "unexpected", "isend")
	ofBandwidth   = append(slices.Clone(ofCollectives), "unexpected", "W")
	ofRate        = append(slices.Clone(ofBandwidth), "goroutines")
)

var (
	latencyCounts    = counts{small: 10_000, smallWarmUp: 1_000, large: 1_000, largeWarmUp: 100}
	bandwidthCounts  = counts{small: 1_000, smallWarmUp: 100, large: 100, largeWarmUp: 10}
	collectiveCounts = counts{small: 10_000, smallWarmUp: 1_000, large: 1_000, largeWarmUp: 100}
)

// The largest size by default.
const (
	pairBytes       = 4 << 20
	collectiveBytes = 1 << 20
)

// table is all benchmarks, in the order in which help names them.
func table() []benchmark {
	two, pairs, several := ranks{2, 2, false}, ranks{2, 0, true}, ranks{2, 0, false}
	all := []benchmark{
		{"latency", two, 1, pairBytes, latencyCounts, ofLatency, latencyColumns, openPingPong, reportLatency},
		{"platency", two, 1, pairBytes, latencyCounts, ofPersistent, latencyColumns, openPersistent, reportLatency},
		{"multi_lat", pairs, 1, pairBytes, latencyCounts, ofLatency, latencyColumns, openPingPong, reportPairsLatency},
		{"bw", two, 1, pairBytes, bandwidthCounts, ofBandwidth, bandwidthColumns, openOneWay, reportBandwidth},
		{"bibw", two, 1, pairBytes, bandwidthCounts, ofBandwidth, bandwidthColumns, openBothWays, reportBothWays},
		{"mbw_mr", pairs, 1, pairBytes, bandwidthCounts, ofRate, rateColumns, openTeams, reportRate},
		{"barrier", several, 0, 0, collectiveCounts, ofBarrier, collectiveColumns, openBarrier, reportCollective},
	}
	for _, c := range collectives() {
		all = append(all, benchmark{c.name, several, c.unit, collectiveBytes, collectiveCounts, ofCollectives,
			collectiveColumns, c.open, reportCollective})
	}
	// A job that does nothing: its time is taken from outside.
	return append(all, benchmark{name: "empty", ranks: ranks{min: 1}, flags: ofEmpty})
}

func names() []string {
	var all []string
	for _, b := range table() {
		all = append(all, b.name)
	}
	return all
}

func find(name string) (benchmark, bool) {
	all := table()
	i := slices.IndexFunc(all, func(b benchmark) bool { return b.name == name })
	if i < 0 {
		return benchmark{}, false
	}
	return all[i], true
}

// takers are the benchmarks that take a flag.
func takers(flag string) []string {
	var all []string
	for _, b := range table() {
		if b.takes(flag) {
			all = append(all, b.name)
		}
	}
	return all
}

func (b benchmark) takes(flag string) bool {
	return slices.Contains(b.flags, flag)
}
