package bench

import (
	"fmt"
	"slices"
	"time"

	"github.com/mpigo/mpigo/internal/calls"
)

// benchmark describes a benchmark.
type benchmark struct {
	name    string
	ranks   ranks
	unit    int // bytes; every size is a multiple of it, and it is the smallest size by default
	max     int // bytes; the largest size by default
	counts  counts
	flags   []string // that the benchmark takes
	columns []column
	// open prepares one rank.
	open func(j *job) (exercise, error)
	// report turns what a rank has measured into the columns' values. Every rank calls it; the
	// values at rank 0 count.
	report func(j *job, m measured) ([]float64, error)
}

// ranks is a range of numbers of ranks.
type ranks struct {
	min, max int // max 0: no limit
	even     bool
}

func (r ranks) String() string {
	if r.min == r.max {
		return fmt.Sprintf("%d ranks", r.min)
	}
	return fmt.Sprintf("at least %d ranks", r.min)
}

// counts holds the default numbers of measured iterations, and of warm-up iterations.
type counts struct{ small, smallWarmUp, large, largeWarmUp int }

// largeBytes is the largest size of a small message. Larger ones get fewer iterations.
const largeBytes = 8 << 10

// measured is the result of one size at one rank.
type measured struct {
	bytes, iterations int
	elapsed           time.Duration // of all iterations
	parts                           // of a benchmark that measures several times
}

// exercise is a benchmark at one rank.
type exercise interface {
	// resize sets the size of the messages that follow, in bytes: at most the largest of the job.
	resize(bytes int) error
	// run does n iterations and returns the time that counts.
	run(n int) (time.Duration, error)
	// fill puts data that depends on seed into the buffers that the next iteration sends, and wrong
	// data into the buffers that it overwrites. check compares the received data of that iteration.
	fill(seed int)
	check(seed int) error
	close() error
}

// The flags that each kind of benchmark takes. Never written.
var (
	ofEmpty       = []string{"local"}
	ofBarrier     = []string{"local", "i", "x", "json", "two-comms"}
	ofIbarrier    = append(slices.Clone(ofBarrier), "t")
	ofStarted     = []string{"local", "i", "x", "json"}
	ofPersistent  = []string{"local", "i", "x", "json", "m", "alloc", "validate"}
	ofCollectives = append(slices.Clone(ofPersistent), "fresh", "pool", "two-comms")
	ofNonblocking = append(slices.Clone(ofCollectives), "t")
	ofLatency     = append(slices.Clone(ofCollectives), "unexpected", "isend")
	ofBandwidth   = append(slices.Clone(ofCollectives), "unexpected", "W")
	ofRate        = append(slices.Clone(ofBandwidth), "goroutines")
)

// The iteration counts of the OSU micro-benchmarks (osu_util.h: LAT_LOOP_SMALL and similar).
// bench/peers/peer.c has the same. Never written.
var (
	latencyCounts    = counts{small: 10_000, smallWarmUp: 100, large: 1_000, largeWarmUp: 10}
	bandwidthCounts  = counts{small: 100, smallWarmUp: 10, large: 20, largeWarmUp: 2}
	collectiveCounts = counts{small: 1_000, smallWarmUp: 100, large: 100, largeWarmUp: 10}
)

// The default largest sizes, which are those of the OSU benchmarks.
const (
	pairBytes       = 4 << 20
	collectiveBytes = 1 << 20
)

// table lists all benchmarks, in the order in which the help text names them.
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
		if c.open != nil {
			all = append(all, benchmark{c.id.String(), several, c.unit, collectiveBytes, collectiveCounts, ofCollectives,
				collectiveColumns, c.open, reportCollective})
		}
	}
	for _, c := range collectives() {
		flags := ofNonblocking
		if c.unit == 0 {
			flags = ofIbarrier
		}
		all = append(all, benchmark{c.id.In(calls.Nonblocking).String(), several, c.unit, collectiveBytes, collectiveCounts, flags,
			overlapColumns, c.openNonblocking, reportOverlap})
	}
	for _, c := range collectives() {
		flags := ofPersistent
		if c.unit == 0 {
			flags = ofStarted
		}
		all = append(all, benchmark{c.id.String() + "_persistent", several, c.unit, collectiveBytes, collectiveCounts, flags,
			persistentColumns, c.openPersistent, reportPersistent})
	}
	// A job that does nothing: bench/compare measures how long it takes.
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

// takers returns the names of the benchmarks that take a flag.
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
