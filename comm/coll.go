package comm

import (
	"fmt"
	"unsafe"

	"github.com/mpigo/mpigo/pml"
)

// collectives is what a communicator keeps for its collectives. Guarded by the engine's
// lock.
type collectives struct {
	// running is the collective that a goroutine is in, or nil.
	running *schedule
	// idle schedules, kept with their memory.
	idle []*schedule
	// tuning, nil for the defaults.
	tuning *collTuning
}

// collTuning says which algorithm a collective takes. Every rank must have the same.
type collTuning struct {
	// bcastTreeBytes: a longer buffer is not sent down a tree whole.
	bcastTreeBytes int
	// reduceTreeBytes: a longer vector is not combined up a tree whole.
	reduceTreeBytes int
	// allreduceDoublingBytes: a longer vector is not exchanged whole.
	allreduceDoublingBytes int
	// flatRanks: among so many ranks, and flatBytes: with no more than that of them all, everything goes
	// to rank 0 and from there.
	flatRanks, flatBytes int
	// scanDoublingBytes: a longer vector goes from rank to rank, in pieces.
	scanDoublingBytes int
	// gatherTreeBytes: a longer piece of one rank goes straight to the root, or from it.
	gatherTreeBytes int
	// gatherTreeRanks: with fewer ranks, all pieces do.
	gatherTreeRanks int
	// allgatherBruckBytes: when all is longer, it goes round a ring.
	allgatherBruckBytes int
	// alltoallBruckBytes: a longer piece for one rank goes straight to it.
	alltoallBruckBytes int
	// alltoallBruckRanks: with fewer ranks, all pieces do.
	alltoallBruckRanks int
	// alltoallFlightBytes: about so much is under way from a rank at one time.
	alltoallFlightBytes int
	// pieceBytes: what is long is combined, or handed on, in pieces of this size.
	pieceBytes int
}

var defaultTuning = collTuning{ // never written
	bcastTreeBytes:         32 << 10,
	reduceTreeBytes:        32 << 10,
	allreduceDoublingBytes: 8 << 10,
	scanDoublingBytes:      32 << 10,
	gatherTreeBytes:        2 << 10,
	gatherTreeRanks:        5,
	allgatherBruckBytes:    16 << 10,
	alltoallBruckBytes:     256,
	alltoallBruckRanks:     8,
	alltoallFlightBytes:    1 << 20,
	pieceBytes:             128 << 10,
}

// crowdedTuning is for ranks that share cores. They take turns, and one that waits has to be given a core
// before it can go on: what counts then is not how many messages follow on each other, but how often
// each rank has to run.
var crowdedTuning = func() collTuning { // never written
	t := defaultTuning
	t.flatRanks, t.flatBytes = 64, 8<<10
	return t
}()

func (s *state) collTuning() *collTuning {
	switch {
	case s.colls.tuning != nil:
		return s.colls.tuning
	case s.job.crowded:
		return &crowdedTuning
	}
	return &defaultTuning
}

// begin opens a collective that has no root: it checks the communicator and gives an empty schedule, with the engine's
// lock held, until leave. err is what was found wrong before. What begin returned goes to either refuse or run. A
// call that is refused here does not count.
func (c *Comm) begin(call string, err error) (*schedule, error) { return c.open(call, none, err) }

// beginRooted is begin of one that has a root, which it checks. A call that is refused because of that counts.
func (c *Comm) beginRooted(call string, root int, err error) (*schedule, error) {
	s, err := c.open(call, root, err)
	if err != nil {
		return nil, err
	}
	if err = c.checkRoot(root); err == nil {
		return s, nil
	}
	if c.collErr != nil {
		err = c.collErr
	}
	defer s.leave()
	return nil, s.refuse(err)
}

func (c *Comm) open(call string, root int, err error) (*schedule, error) {
	if err == nil {
		err = c.enter()
	}
	if err != nil {
		return nil, c.fail(call, root, none, err)
	}
	if c.colls.running != nil {
		c.leave()
		return nil, c.fail(call, root, none,
			fmt.Errorf("%w: another goroutine is in a collective of it", ErrComm))
	}
	s := c.newSchedule(call, root)
	c.colls.running = s
	return s, nil
}

// newSchedule gives an idle schedule the next tag.
func (s *state) newSchedule(call string, root int) *schedule {
	var sched *schedule
	if last := len(s.colls.idle) - 1; last >= 0 {
		sched = s.colls.idle[last]
		s.colls.idle = s.colls.idle[:last]
	} else {
		sched = &schedule{state: s}
	}
	sched.call, sched.root, sched.tag = call, root, s.collTag
	s.collTag = (s.collTag + 1) % pml.CollectiveTags
	return sched
}

// refuse ends a collective that has bad arguments: no message was sent. The collective counts all the
// same, so that the next one meets the next one of the other ranks, who are told.
func (s *schedule) refuse(err error) error {
	s.job.pml.Spoil(s.coll, pml.Refused)
	return s.Describe(s.call, s.root, none, err)
}

// run does the schedule.
func (s *schedule) run(c *Comm) error {
	p := s.job.pml
	if s.collErr != nil {
		p.Spoil(s.coll, pml.Unfit)
		return s.Describe(s.call, s.root, none, s.collErr)
	}
	if err := c.contextErr(); err != nil {
		// As if the call had not been made.
		s.collTag = s.tag
		return s.Describe(s.call, s.root, none, err)
	}
	err := p.Enter(s.coll)
	for waiting := true; err == nil && waiting; {
		if waiting, err = s.post(); waiting {
			err = s.await(c)
		}
	}
	if err == nil {
		err = p.Spoiled(s.coll) // while this rank had only to send
	}
	if err != nil {
		err = s.explain(err)
		s.giveUp(err)
	}
	return err
}

// leave ends the collective, and makes the schedule idle. It is deferred, so that not
// even a panic leaves the lock held.
func (s *schedule) leave() {
	defer s.job.eng.Unlock()
	// Nothing of the user's buffers is kept.
	clear(s.steps)
	clear(s.parts)
	s.steps, s.next, s.waits = s.steps[:0], 0, false
	s.reduction = reduction{}
	if s.want > len(s.words) && s.want <= tempKeepBytes/wordBytes {
		s.words = make([]uint64, s.want)
	}
	s.used, s.want = 0, 0
	s.agreed, s.inPlace, s.bare = 0, false, false
	s.job.pml.Pass(s.coll, s.collTag)
	s.colls.running = nil
	if s.freed {
		s.job.pml.RemoveContext(s.coll)
	}
	s.colls.idle = append(s.colls.idle, s)
}

// Checks of buffers. Lengths are in bytes here, and in elements in the errors.

func lengthError(what string, got, want, elem int) error {
	return fmt.Errorf("%w: %s has %d elements where %d are due", ErrCount, what, perElem(got, elem), perElem(want, elem))
}

// unevenError: the elements cannot be shared out evenly.
func unevenError(what string, got, ranks, elem int) error {
	return fmt.Errorf("%w: %s has %d elements, which is no multiple of the %d ranks", ErrCount, what, perElem(got, elem), ranks)
}

// perElem is the number of elements in so many bytes.
func perElem(bytes, elem int) int {
	if elem == 0 {
		return 0
	}
	return bytes / elem
}

// checkApart checks that two buffers do not overlap.
func checkApart(a, b []byte) error {
	if len(a) == 0 || len(b) == 0 {
		return nil
	}
	at, bt := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	if at < bt+uintptr(len(b)) && bt < at+uintptr(len(a)) {
		return errOverlap
	}
	return nil
}

var (
	errOverlap = fmt.Errorf("%w: the buffers overlap; nil stands for in place", ErrBuffer)
	errNoOp    = fmt.Errorf("%w: it is nil", ErrOp)
)

// Arithmetic of ranks and ranges.

// up and down are the ranks that are d further on, or back, in a ring of n; 0 ≤ d < n.
func up(r, d, n int) int {
	if r += d; r >= n {
		r -= n
	}
	return r
}

func down(r, d, n int) int {
	if r -= d; r < 0 {
		r += n
	}
	return r
}

// powerBelow is the largest power of two that is not over n; n ≥ 1.
func powerBelow(n int) int {
	p := 1
	for p <= n/2 {
		p *= 2
	}
	return p
}

// share is where the part with number i begins, when total bytes, in elements of unit
// bytes, are divided among so many parts; for i = parts it is the end.
func share(total, unit, parts, i int) int {
	if i == parts || unit == 0 {
		return total
	}
	n := total / unit
	// i·n/parts, without going over the range of int.
	return (n/parts*i + n%parts*i/parts) * unit
}

// cut is how a range of bytes is cut into pieces. Both ends of a transfer cut alike.
type cut struct {
	bytes  int // of a piece; the last may be shorter
	pieces int // at least one
}

// maxPieces bounds how many steps a long buffer makes.
const maxPieces = 1024

// cut cuts total bytes, in elements of unit bytes, into pieces that fit the cache.
func (s *schedule) cut(total, unit int) cut {
	unit = max(unit, 1)
	size := max(s.collTuning().pieceBytes, total/maxPieces)
	size = max(size/unit*unit, unit)
	return cut{bytes: size, pieces: max((total+size-1)/size, 1)}
}

// of is the piece of number i of buf; empty if there are not so many.
func (c cut) of(buf []byte, i int) []byte {
	return buf[min(i*c.bytes, len(buf)):min((i+1)*c.bytes, len(buf))]
}
