package main

import (
	"fmt"
	"os"
	"sync"

	"github.com/mpigo/mpigo/internal/railsim"
)

// railSweep runs seeds of package railsim.
type railSweep struct {
	first, seeds uint64
	keep         bool // go on after a failure
	shows        bool // print each result
	options      railsim.Options

	mu       sync.Mutex
	next     uint64 // guarded by mu, as are all fields below
	sum      railsim.Result
	failures map[string]int // number of seeds, by the invariants that they broke
	failed   error
}

func (s *railSweep) run(workers int) error {
	s.failures = map[string]int{}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for seed, ok := s.take(); ok; seed, ok = s.take() {
				s.put(seed, railsim.Run(seed, s.options))
			}
		})
	}
	wg.Wait()
	fmt.Printf("%d seeds: %v\nfailures %v\n", s.next, &s.sum, s.failures)
	return s.failed
}

func (s *railSweep) take() (seed uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == s.seeds || s.failed != nil && !s.keep {
		return 0, false
	}
	s.next++
	return s.first + s.next - 1, true
}

func (s *railSweep) put(seed uint64, r *railsim.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum.Add(r)
	if s.shows {
		fmt.Println(r)
	}
	known := map[string]bool{}
	for _, f := range r.Failures {
		if !known[f.Invariant] {
			known[f.Invariant] = true
			s.failures[f.Invariant]++
		}
		err := fmt.Errorf("seed %d (%s): %w", seed, r.Plan, f)
		if s.keep || s.shows {
			fmt.Fprintln(os.Stderr, err)
		}
		if s.failed == nil {
			s.failed = err
		}
	}
}
