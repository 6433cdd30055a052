package progress

import "time"

// quickYields decides when a driver sleeps because its yields give the core to no other process. It
// has no clock and makes no calls.
//
// A yield of less than switchNanos has let no other process run. Either no other process is ready
// on this core, or the kernel first chooses among groups of processes (sessions, cgroups). In the
// second case, a process that is alone in its group yields to no process while the group has time
// left, and keeps the processes that it waits for from running. Such a process also has to wait for
// the core itself whenever others have it, although its yields do not give the core away. Then
// yields are futile.
type quickYields struct {
	limit int // Config.QuickYields
	quick int // consecutive yields under switchNanos, without an event in between
	skip  int // number of further times that the driver sleeps without yielding first
	// futile says that yields give the core to no process, although others want it.
	futile bool

	// Since the last measurement.
	made, switched int
	// The last measurement: the time, and Processor.Delay.
	at, delay int64
	measured  bool
}

const (
	switchNanos = int64(2 * time.Microsecond)
	// skipFutile is how many times a driver sleeps at once while yields are futile.
	skipFutile = 64
	// Yields are futile once the process waits for a core for 1/futileShare of the time, and until
	// it waits for less than 1/stillFutileShare. A process that sleeps at once waits for 3 to 10 %
	// of the time (eight ranks in sessions of their own beside a process that computes, two cores).
	futileShare, stillFutileShare = 10, 40
	// measureNanos is the minimum time between two calls of Processor.Delay, so that they take only
	// thousandths of the time. A process that shares its core waits for it several times meanwhile.
	measureNanos = int64(20 * time.Millisecond)
)

// begins records that the driver begins to yield.
func (q *quickYields) begins() { q.quick = 0 }

// took records how long a yield took.
func (q *quickYields) took(nanos int64) {
	q.made++
	q.quick++
	if nanos >= switchNanos {
		q.switched++
		q.quick = 0
	}
}

// isOver reports whether the driver must sleep, because too many yields in a row gave the core to
// no process. The caller then calls measure, if it is due, and rest.
func (q *quickYields) isOver() bool { return q.limit > 0 && q.quick >= q.limit }

// isDue reports whether it is time to measure.
func (q *quickYields) isDue(now int64) bool { return !q.measured || now-q.at >= measureNanos }

// measure determines whether yields are futile.
func (q *quickYields) measure(now, delay int64, ok bool) {
	share := int64(futileShare)
	if q.futile {
		share = stillFutileShare
	}
	q.futile = ok && q.measured && q.switched*8 <= q.made && (delay-q.delay)*share >= now-q.at
	q.at, q.delay, q.measured = now, delay, ok
	q.made, q.switched = 0, 0
}

// rest records that the driver sleeps now. If yields are futile, it will also sleep at once the
// next times.
func (q *quickYields) rest() {
	q.quick, q.skip = 0, 1
	if q.futile {
		q.skip = skipFutile
	}
}

// sleepsAtOnce reports whether the driver sleeps now, without yielding first.
func (q *quickYields) sleepsAtOnce() bool {
	if q.skip == 0 {
		return false
	}
	q.skip--
	return true
}
