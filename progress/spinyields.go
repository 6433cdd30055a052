package progress

const (
	// firstSpinYield is the number of empty turns, some microseconds, after which a wait that spins
	// yields first. It yields again each time that the number has doubled.
	firstSpinYield = 32
	// sliceNanos is less than a time slice of Linux, and longer than the turns of ranks that wait.
	sliceNanos = 1_000_000
	// skippedSpinYields is how many yields of waits that spin are left out after one that took a
	// time slice: a process that computes has the core then.
	skippedSpinYields = 256
)

// spinYields decides when a wait that spins yields the core. It has no clock and calls nobody.
type spinYields struct{ skip int }

// isDue reports whether a wait yields after so many empty turns.
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

// took notes how long a yield took.
func (s *spinYields) took(nanos int64) {
	if nanos >= sliceNanos {
		s.skip = skippedSpinYields
	}
}
