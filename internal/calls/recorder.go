package calls

import (
	"math/bits"
	"math/rand/v2"
)

const (
	// SampleNanos is the time between two samples of a call and length, on average.
	SampleNanos = 2_000_000
	// LongNanos is the shortest wait for which a call is recorded though it is no sample.
	LongNanos = 20_000
	// maxInterval bounds the number of calls that a sample stands for, so that the rate adapts soon
	// when calls become rarer.
	maxInterval = 1 << 14
	// maxIntervalGrowth bounds the growth of the distance from one sample to the next.
	maxIntervalGrowth = 4
	// sizeClasses: class i has the lengths of i bits, so class 0 has empty messages. A power of two
	// makes the index cheap.
	sizeClasses = 64
)

// Sink takes the calls that were timed. The engine's lock is held.
type Sink interface {
	// Ended is called at the end of a call, in its goroutine, so the user's line is on the stack.
	// The call belongs to the recorder.
	Ended(c *Call)
}

// RequestSink is a sink that also takes the operations that calls begin and later ones end.
type RequestSink interface {
	Sink
	// Begun is called when an operation begins in a call, Observed when the user has observed its
	// completion or never will.
	Begun(id uint64, c *Call)
	Observed(id uint64)
}

// Call is a call that is recorded. Times are in nanoseconds.
type Call struct {
	ID               ID
	Receives, Sends  bool   // a wait for requests: what these do
	Peer, Tag, Bytes int    // −1 where there is none
	Comm             string // name of the communicator
	Size             int    // number of its ranks
	// Start is when the call began. It is an estimate unless the call IsTimed.
	Start   int64
	IsTimed bool
	// Weight is the number of calls that this one stands for. Only an IsSample stands for others,
	// perhaps also for some after the last sample.
	Weight   uint64
	IsSample bool
	// Nanos is the duration, without the cost of reading the clock. Waiting is the part of it in
	// which it waited for a partner, and Moving the part in which it waited while bytes moved.
	Nanos, Waiting, Moving int64
	// Track numbers calls that overlap.
	Track int
	// Request numbers the operation that the call has begun; 0: none.
	Request uint64

	bucket     *bucket
	parent     *Call
	since      int64 // when the wait under way became long; 0: it is not
	firstSince int64
	movedSince int64 // Recorder.moved at that time
}

// bucket is what is known of the calls of an ID and size class. The zero value knows of none, and
// has the next one timed.
type bucket struct {
	n        uint64 // calls
	next     uint64 // the number of the next sample
	last     uint64 // the number of the last one
	long     uint64 // calls since the last sample that were recorded for themselves
	interval uint64
	at       int64 // time of the last sample
}

// Recorder counts and times the calls of a rank.
type Recorder struct {
	buckets [maxCalls][sizeClasses]bucket
	current *Call
	all     bool
	sink    Sink
	begins  RequestSink // the sink, if it is one
	request uint64      // number of the last one
	free    []*Call
	tracks  []*Call // calls under way, by track; nil: none
	random  rand.PCG

	clockCost int64 // of one reading
	lead      int64 // usual time from the beginning of a call until its wait is long

	transfers  int   // under way
	movesSince int64 // when the first of them began
	moved      int64 // time in which there were some, until movesSince
}

// New makes a recorder. With all, each call is timed.
func New(sink Sink, all bool) *Recorder {
	r := &Recorder{sink: sink, all: all, clockCost: 1 << 20}
	r.begins, _ = sink.(RequestSink)
	r.random.Seed(uint64(Now()), 0)
	for range 100 {
		from := Now()
		r.clockCost = min(r.clockCost, Now()-from)
	}
	return r
}

func (r *Recorder) bucket(id ID, bytes int) *bucket {
	return &r.buckets[id][bits.Len64(uint64(bytes))%sizeClasses]
}

// Count counts a call, and reports whether it is to be timed: then Begin has to follow.
func (r *Recorder) Count(id ID, bytes int) bool {
	b := r.bucket(id, bytes)
	b.n++
	return b.n >= b.next
}

// IsTimed reports whether the call that was counted last is to be timed.
func (r *Recorder) IsTimed(id ID, bytes int) bool {
	b := r.bucket(id, bytes)
	return b.n >= b.next
}

// IsDue reports whether Count would report that the call is to be timed. It counts nothing.
func (r *Recorder) IsDue(id ID, bytes int) bool {
	b := r.bucket(id, bytes)
	return b.n+1 >= b.next
}

// Begin begins the record of a call that was counted. End ends it.
func (r *Recorder) Begin(id ID, peer, tag, bytes int) *Call {
	var c *Call
	if last := len(r.free) - 1; last >= 0 {
		c = r.free[last]
		r.free = r.free[:last]
	} else {
		c = new(Call)
		c.Track = len(r.tracks)
		r.tracks = append(r.tracks, nil)
	}
	r.tracks[c.Track] = c
	c.ID, c.Peer, c.Tag, c.Bytes = id, peer, tag, bytes
	c.Receives, c.Sends = false, false
	c.Comm, c.Size, c.Request = "", 0, 0
	c.Waiting, c.Moving, c.since, c.firstSince = 0, 0, 0, 0
	b := r.bucket(id, max(bytes, 0))
	c.bucket, c.parent = b, r.current
	r.current = c
	if c.IsTimed = b.n >= b.next; c.IsTimed {
		c.Start = Now()
	}
	return c
}

// CountAndBegin is Count and Begin of a call that has no faster path.
func (r *Recorder) CountAndBegin(id ID, peer, tag, bytes int) *Call {
	r.bucket(id, max(bytes, 0)).n++
	return r.Begin(id, peer, tag, bytes)
}

// End ends a call.
func (r *Recorder) End(c *Call) {
	if c.since != 0 {
		r.current = c
		r.Waited()
	}
	r.current = c.parent
	if c.IsTimed || c.Waiting+c.Moving >= LongNanos {
		r.finish(c)
	}
	c.parent, c.bucket = nil, nil
	r.tracks[c.Track] = nil
	r.free = append(r.free, c)
}

func (r *Recorder) finish(c *Call) {
	now, b := Now(), c.bucket
	isLong := c.Waiting+c.Moving >= LongNanos
	if !c.IsTimed {
		c.Start = c.firstSince - r.lead
		c.Waiting += r.lead
		c.Nanos = now - c.Start
		c.Weight, c.IsSample = 1, false
		b.long++
		r.sink.Ended(c)
		return
	}
	c.Nanos = max(now-c.Start-r.clockCost, 1)
	if c.firstSince != 0 {
		lead := c.firstSince - c.Start
		c.Waiting += lead
		r.lead += (min(lead, LongNanos) - r.lead) / 8
	}
	// A long call stands for itself. The next sample stands for the others since the last one.
	c.IsSample = !isLong
	if isLong {
		c.Weight = 1
		b.long++
	} else {
		c.Weight = uint64(max(int64(b.n-b.last-b.long), 1))
		b.last, b.long = b.n, 0
	}
	r.schedule(b, now)
	r.sink.Ended(c)
}

// schedule chooses the next sample of a bucket.
func (r *Recorder) schedule(b *bucket, now int64) {
	if r.all {
		b.next = b.n + 1
		return
	}
	interval := uint64(1)
	if elapsed := now - b.at; b.at != 0 && elapsed > 0 {
		interval = uint64(float64(b.interval) * SampleNanos / float64(elapsed))
	}
	b.interval = max(1, min(interval, maxIntervalGrowth*b.interval, maxInterval))
	b.at = now
	b.next = b.n + 1
	if b.interval > 1 { // from 1 to twice the interval less 1
		b.next += r.random.Uint64() % (2*b.interval - 1)
	}
}

// BeginRequest says that an operation begins in the current call. It returns the operation's
// number, for EndRequest; 0 if the operation is not traced: a nonblocking call begins one of the
// user's, and what else it begins are parts of it.
func (r *Recorder) BeginRequest() uint64 {
	c := r.current
	if r.begins == nil || c == nil || c.Request != 0 || !c.ID.Begins() {
		return 0
	}
	r.request++
	c.Request = r.request
	r.begins.Begun(c.Request, c)
	return c.Request
}

// EndRequest says that the user has observed the completion of an operation, or never will.
func (r *Recorder) EndRequest(id uint64) { r.begins.Observed(id) }

// Current is the call of the goroutine that holds the lock, nil if it is in none.
func (r *Recorder) Current() *Call { return r.current }

// Resume makes c the current call, because its goroutine has taken the lock back.
func (r *Recorder) Resume(c *Call) { r.current = c }

// UnderWay calls f for each call under way that is timed.
func (r *Recorder) UnderWay(f func(c *Call)) {
	for _, c := range r.tracks {
		if c != nil && c.IsTimed {
			f(c)
		}
	}
}

// Waits says that the current call has polled in vain for a while, and waits on.
func (r *Recorder) Waits() {
	c := r.current
	if c == nil || c.since != 0 {
		return
	}
	c.since = Now()
	c.movedSince = r.movedUntil(c.since)
	if c.firstSince == 0 {
		c.firstSince = c.since
	}
}

// Waited says that the wait of the current call is over.
func (r *Recorder) Waited() {
	c := r.current
	if c == nil || c.since == 0 {
		return
	}
	now := Now()
	moving := r.movedUntil(now) - c.movedSince
	c.Moving += moving
	c.Waiting += now - c.since - moving
	c.since = 0
}

// movedUntil is the time, until now, in which transfers were under way.
func (r *Recorder) movedUntil(now int64) int64 {
	if r.transfers > 0 {
		return r.moved + now - r.movesSince
	}
	return r.moved
}

// Transfer says that the bytes of a long message begin to move, or that they have ended to.
func (r *Recorder) Transfer(begins bool) {
	switch {
	case begins:
		if r.transfers++; r.transfers == 1 {
			r.movesSince = Now()
		}
	case r.transfers > 0:
		if r.transfers--; r.transfers == 0 {
			r.moved += Now() - r.movesSince
		}
	}
}

// Count of calls of an ID by length.
type Count struct {
	ID    ID
	Class int // number of bits of the length
	Calls uint64
}

// Counts lists how many calls there were.
func (r *Recorder) Counts() (list []Count) {
	for id := range r.buckets {
		for class := range sizeClasses {
			if n := r.buckets[id][class].n; n > 0 {
				list = append(list, Count{ID(id), class, n})
			}
		}
	}
	return list
}
