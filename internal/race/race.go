// Package race has tests do less, most of all where the race detector makes them about ten times
// slower. If MPIGO_TEST_ALL is set, what tests leave out by All, Brief and Some runs too. .ci/run
// sets it without the detector, and scripts/nightly.sh with it. What a test leaves out by Enabled
// runs only without the detector.
package race

import "os"

// All reports whether MPIGO_TEST_ALL is set.
func All() bool { return os.Getenv("MPIGO_TEST_ALL") != "" }

// Brief reports whether a test is to leave out what hardly shows another race.
func Brief() bool { return Enabled && !All() }

// Some is a quarter of n, but at least 1, or n if tests are to leave out nothing: a number of
// random programs, or of repetitions.
func Some[N int | uint64](n N) N {
	if All() {
		return n
	}
	return max(n/4, 1)
}
