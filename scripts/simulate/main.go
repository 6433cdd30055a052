// Command simulate runs simulations of the point-to-point layer (package simulation), seed after
// seed, until one fails or all are done.
//
//	go run ./scripts/simulate -seeds 100000 -first 1
//	go run ./scripts/simulate -seed 4711 -transport verbs -trace
//
// With -rails, it runs jobs over rails whose networks change (package railsim).
//
//	go run ./scripts/simulate -rails -seeds 1000
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/mpigo/mpigo/internal/railsim"
	"github.com/mpigo/mpigo/internal/simulation"
)

func main() {
	// A simulation leaves a few megabytes of garbage and runs for milliseconds. With 800 instead of
	// 100, 1.4 times as many run per second.
	debug.SetGCPercent(800)
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(1)
	}
}

func run() error {
	seeds := flag.Uint64("seeds", 1000, "how many seeds to run over each transport")
	first := flag.Uint64("first", 1, "the first seed")
	workers := flag.Int("j", runtime.NumCPU(), "how many simulations to run at a time")
	only := flag.Uint64("seed", 0, "run only this seed")
	trace := flag.Bool("trace", false, "with -seed: print every event")
	shrink := flag.Bool("shrink", true, "after a failure, find the smallest part of the seed's program that fails")
	combinations := flag.Bool("combinations", false, "list the fragments that arrived, each with the states of both sides")
	keep := flag.Bool("keep-going", false, "go on after a failure, and count the failures")
	on := flag.String("transport", "all", "`TRANSPORT`: loop, verbs, tcp or all")
	rails := flag.Bool("rails", false, "run jobs over rails whose networks change")
	carriesOn := flag.Bool("carries-on", false, "with -rails: check that a slow rail is not failed, and what a failure costs")
	flag.Parse()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	case *seeds == 0:
		return errors.New("-seeds is 0: it must be at least 1")
	case *workers < 1:
		return fmt.Errorf("-j is %d: it must be at least 1", *workers)
	case *trace && !given["seed"]:
		return errors.New("-trace prints one seed's events: choose it by -seed")
	}
	if *rails {
		s := &railSweep{first: *first, seeds: *seeds, keep: *keep, options: railsim.Options{CarriesOn: *carriesOn}}
		if given["seed"] {
			s.first, s.seeds, s.shows = *only, 1, true
		}
		return s.run(*workers)
	}
	var transports []simulation.Transport
	for t := range simulation.Transports {
		if *on == "all" || *on == t.String() {
			transports = append(transports, t)
		}
	}
	if len(transports) == 0 {
		return fmt.Errorf("-transport is %q: it must be loop, verbs, tcp or all", *on)
	}
	if given["seed"] {
		return replay(*only, transports, *trace, *shrink)
	}
	s := &sweep{first: *first, seeds: *seeds, transports: transports, keep: *keep, start: time.Now(), listed: map[simulation.Combination]bool{}, failures: map[string]int{}, unlisted: map[simulation.Combination]string{}}
	for _, m := range slices.Concat(simulation.Possible(), simulation.Rare()) {
		s.listed[m] = true
	}
	s.run(*workers)
	s.report(os.Stdout, *combinations)
	if s.failed == nil {
		return nil
	}
	if *shrink {
		simulation.Shrink(s.failed.seed, s.failed.on).Write(os.Stdout)
	}
	return fmt.Errorf("seed %d over %v: %w", s.failed.seed, s.failed.on, s.failed.why)
}

// replay runs one seed over some transports.
func replay(seed uint64, transports []simulation.Transport, trace, shrink bool) error {
	var to io.Writer
	if trace {
		to = os.Stdout
	}
	var failure error
	for _, t := range transports {
		r := simulation.RunTraced(seed, t, to)
		if r.Failure == nil {
			fmt.Printf("seed %d over %v: %d events, %d messages, trace %016x\n", seed, t, r.Events, r.Messages, r.Trace)
			continue
		}
		failure = fmt.Errorf("seed %d over %v: %w", seed, t, r.Failure)
		if shrink {
			simulation.Shrink(seed, t).Write(os.Stdout)
		}
	}
	return failure
}

type failure struct {
	seed uint64
	on   simulation.Transport
	why  *simulation.Failure
}

// sweep is a run of many seeds.
type sweep struct {
	first, seeds uint64
	transports   []simulation.Transport
	keep         bool // go on after a failure
	start        time.Time
	listed       map[simulation.Combination]bool

	mu       sync.Mutex
	next     uint64 // guarded by mu, as are all fields below
	done     uint64
	shown    time.Time
	sum      simulation.Result
	failed   *failure // the failure with the lowest seed
	failures map[string]int
	// unlisted has, for each combination that is on neither list, a run that reached it.
	unlisted map[simulation.Combination]string
}

func (s *sweep) run(workers int) {
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				seed, t, ok := s.take()
				if !ok {
					return
				}
				s.put(seed, t, simulation.Run(seed, t))
			}
		})
	}
	wg.Wait()
	s.show(true)
}

func (s *sweep) total() uint64 { return s.seeds * uint64(len(s.transports)) }

func (s *sweep) take() (seed uint64, t simulation.Transport, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == s.total() || s.failed != nil && !s.keep {
		return 0, 0, false
	}
	n := uint64(len(s.transports))
	seed, t = s.first+s.next/n, s.transports[s.next%n]
	s.next++
	return seed, t, true
}

func (s *sweep) put(seed uint64, t simulation.Transport, r *simulation.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done++
	s.sum.Add(r)
	for m := range r.Combinations {
		if !s.listed[m] && simulation.IsOfFailover(m.Name) && s.unlisted[m] == "" {
			s.unlisted[m] = fmt.Sprintf("seed %d over %v", seed, t)
		}
	}
	if r.Failure != nil {
		s.failures[r.Failure.Invariant]++
		if s.keep {
			fmt.Fprintf(os.Stderr, "\r\x1b[Kseed %d over %v: %.200v\n", seed, t, r.Failure)
		}
		if s.failed == nil || seed < s.failed.seed {
			s.failed = &failure{seed, t, r.Failure}
		}
	}
	if now := time.Now(); now.Sub(s.shown) > 200*time.Millisecond {
		s.shown = now
		s.show(false)
	}
}

func (s *sweep) show(last bool) {
	seconds := time.Since(s.start).Seconds()
	fmt.Fprintf(os.Stderr, "\r%d of %d simulations, %.0f a second, %d messages, "+
		"%d rails failed or returned, %d restarts, %d invariants broken ",
		s.done, s.total(), float64(s.done)/seconds, s.sum.Messages, s.sum.Rails, s.sum.Stats.Restarts, len(s.failures))
	if last {
		fmt.Fprintln(os.Stderr)
	}
}

// report prints a summary of the simulations.
func (s *sweep) report(to io.Writer, combinations bool) {
	st := s.sum.Stats
	fmt.Fprintf(to, "events %d, messages %d, pairs lost %d, faults that had an effect %d\n", s.sum.Events, s.sum.Messages, s.sum.Lost, s.sum.Fired)
	fmt.Fprintf(to, "failed %d, returned %d, alternates %d, resent %d, restarts %d, duplicates %d, stale fragments %d, early %d\n",
		st.RailsFailed, st.RailsReturned, s.sum.Alternates, st.Resent, st.Restarts, st.Duplicates, st.StaleFragments, st.Early)
	fmt.Fprintln(to, "endings", s.sum.Endings, "failures", s.failures)
	fmt.Fprintln(to, "fault actions", s.sum.FaultActions)
	hits := slices.SortedFunc(maps.Keys(s.sum.Hits), func(a, b simulation.Hit) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Fault, b.Fault))
	})
	for _, h := range hits {
		fmt.Fprintf(to, "aimed fault %-20s %-16s %d\n", h.Name, h.Fault, s.sum.Hits[h])
	}
	s.reportCombinations(to, combinations)
}

// reportCombinations compares the combinations that were reached with the lists of possible ones.
func (s *sweep) reportCombinations(to io.Writer, all bool) {
	for i, list := range [][]simulation.Combination{simulation.Possible(), simulation.Rare()} {
		seen := 0
		for _, m := range list {
			if s.sum.Combinations[m] > 0 {
				seen++
			} else if i == 0 {
				fmt.Fprintf(to, "not reached: %v\n", m)
			}
		}
		fmt.Fprintf(to, "%d of %d %s combinations of a failover fragment and the states of both sides were reached\n",
			seen, len(list), [...]string{"frequent", "rare"}[i])
	}
	sorted := slices.SortedFunc(maps.Keys(s.sum.Combinations), func(a, b simulation.Combination) int { return cmp.Compare(a.String(), b.String()) })
	for _, m := range sorted {
		switch {
		case all:
			fmt.Fprintf(to, "%9d %v\n", s.sum.Combinations[m], m)
		case s.unlisted[m] != "":
			fmt.Fprintf(to, "%9d %v, which is on neither list: %s\n", s.sum.Combinations[m], m, s.unlisted[m])
		}
	}
}
