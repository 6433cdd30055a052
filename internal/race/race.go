// Package race makes tests shorter, above all under the race detector, which makes them about ten
// times slower. If MPIGO_TEST_ALL is set, the parts that tests leave out by All, Brief and Some run
// too. .ci/run sets it without the detector, and scripts/nightly.sh with it. The parts that a test
// leaves out by Enabled run only without the detector.
package race

import "os"

// All reports whether MPIGO_TEST_ALL is set.
func All() bool { return os.Getenv("MPIGO_TEST_ALL") != "" }

// Brief reports whether a test should leave out parts that are unlikely to find another race.
func Brief() bool { return Enabled && !All() }

// Some returns a number of random programs or repetitions: a quarter of n, but at least 1, or n if
// tests run completely.
func Some[N int | uint64](n N) N {
	if All() {
		return n
	}
	return max(n/4, 1)
}
