package progress

import "time"

// quickYields decides when a driver sleeps because its yields give the core to nobody. It has no
// clock and calls nobody.
//
// A yield of under switchNanos has let nobody run. Either no other process is ready on this core,
// or the kernel chooses among groups of processes first (sessions, cgroups): a process that is
// alone in its group yields to nobody while the group has time left, and keeps those that it waits
// for from running. In the second case the process waits for the core itself, whenever others have
// it, although its yields do not give it away: yields are futile.
type quickYields struct {
	limit int // Config.QuickYields
	quick int // consecutive yields under switchNanos, without an event in between
	skip  int // so many times the driver sleeps without yielding first
	// futile says that yields give the core to nobody, although others want it.
	futile bool

	// Since the last measurement.
	made, switched int
	// The last measurement: the time, and Processor.Delay.
	at, delay int64
	measured  bool
}

const (
	switchNanos = int64(2 * time.Microsecond)
	// skipFutile is how often a driver sleeps at once while yields are futile.
	skipFutile = 64
	// Yields are futile once the process waits for a core a futileShare of the time, and until it
	// waits less than a stillFutileShare: where it sleeps at once, it waits 3 to 10 % of the time
	// (eight ranks in sessions of their own beside a process that computes, two cores).
	futileShare, stillFutileShare = 10, 40
	// measureNanos is how often Processor.Delay is called at most, so that it takes thousandths of
	// the time. A process that shares its core waits for it several times meanwhile.
	measureNanos = int64(20 * time.Millisecond)
)

// begins notes that the driver begins to yield.
func (q *quickYields) begins() { q.quick = 0 }

// took notes how long a yield took.
func (q *quickYields) took(nanos int64) {
	q.made++
	q.quick++
	if nanos >= switchNanos {
		q.switched++
		q.quick = 0
	}
}

// isOver reports whether the driver has yielded to nobody so often that it sleeps. Then measure is
// called if it is time for that, and rest.
func (q *quickYields) isOver() bool { return q.limit > 0 && q.quick >= q.limit }

// isDue reports whether it is time to measure.
func (q *quickYields) isDue(now int64) bool { return !q.measured || now-q.at >= measureNanos }

// measure finds out whether yields are futile.
func (q *quickYields) measure(now, delay int64, ok bool) {
	share := int64(futileShare)
	if q.futile {
		share = stillFutileShare
	}
	q.futile = ok && q.measured && q.switched*8 <= q.made && (delay-q.delay)*share >= now-q.at
	q.at, q.delay, q.measured = now, delay, ok
	q.made, q.switched = 0, 0
}

// rest has the driver sleep now, and the next times too if yields are futile.
func (q *quickYields) rest() {
	q.quick, q.skip = 0, 1
	if q.futile {
		q.skip = skipFutile
	}
}

// sleepsAtOnce reports whether the driver sleeps now.
func (q *quickYields) sleepsAtOnce() bool {
	if q.skip == 0 {
		return false
	}
	q.skip--
	return true
}
