// Package race has tests do less where the race detector makes them about ten times slower. What
// they leave out there runs without the detector.
package race

// Some is n, or a quarter of it with the race detector, but at least 1: a number of random
// programs, or of repetitions.
func Some[N int | uint64](n N) N {
	if Enabled {
		return max(n/4, 1)
	}
	return n
}
