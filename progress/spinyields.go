package progress

const (
	// firstSpinYield is the number of empty turns, some microseconds, after which a spinning wait
	// first yields. It yields again each time the number has doubled.
	firstSpinYield = 32
	// sliceNanos is shorter than a time slice of Linux, and longer than the turns of waiting ranks.
	sliceNanos = 1_000_000
	// skippedSpinYields is the number of yields that spinning waits skip after a yield that took a
	// time slice, because a computing process then uses the core.
	skippedSpinYields = 256
)

// spinYields decides when a spinning wait yields the core. It has no clock and makes no calls.
type spinYields struct{ skip int }

// isDue reports whether a wait yields after the given number of empty turns.
func (s *spinYields) isDue(empty int) bool {
	if empty < firstSpinYield || empty&(empty-1) != 0 {
		return false
	}
	if s.skip > 0 {
		s.skip--
		return false
	}
	return true
}

// took records how long a yield took.
func (s *spinYields) took(nanos int64) {
	if nanos >= sliceNanos {
		s.skip = skippedSpinYields
	}
}
