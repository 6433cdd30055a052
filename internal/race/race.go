// Package race has tests do less where the race detector makes them about ten times slower. What
// they leave out there runs without the detector. If MPIGO_TEST_RACE_ALL is set, what Brief and
// Some leave out runs with it too. What a test leaves out by Enabled never does.
package race

import "os"

// Brief reports whether a test is to leave out what hardly shows another race.
func Brief() bool { return Enabled && os.Getenv("MPIGO_TEST_RACE_ALL") == "" }

// Some is n, or a quarter of it if tests are brief, but at least 1: a number of random programs,
// or of repetitions.
func Some[N int | uint64](n N) N {
	if Brief() {
		return max(n/4, 1)
	}
	return n
}
