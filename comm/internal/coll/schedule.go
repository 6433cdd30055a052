package coll

import (
	"slices"
	"unsafe"

	"github.com/mpigo/mpigo/comm/internal/area"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
	"github.com/mpigo/mpigo/request"
)

// Schedule is a collective at one rank: a list of steps. A builder (Barrier in barrier.go, Bcast in
// bcast.go, …) knows the algorithm and makes the steps, without requests. The code in steps.go
// posts sends and receives in the order of the steps, and copies and combines at once.
//
// A step may wait until all earlier operations have finished. Steps between two such steps overlap.
// Blocking, nonblocking and persistent calls run the same steps.
//
// Between two ranks, the sends of one and the receives of the other are in the same order, and a
// receive knows the exact length of its message. All messages of a collective have the same tag.
type Schedule struct {
	request.Object // of a nonblocking or persistent call

	team       *Team
	rank, size int     // of the team
	tuning     *Tuning // of this collective
	how        How
	id         calls.ID // the call, in its form
	root       int      // NoRoot if the call has none
	seq        int      // its sequence number
	count      uint64   // its number among all calls of the team, from 1
	tag        int      // of its messages
	phase      phase
	failure    failure // at some rank
	failedPeer int     // the rank whose message has failed, or none
	isInline   bool    // the goroutine of the call runs the steps, and waits
	isActive   bool    // it counts in Hub.active
	setUp      bool    // it sets up the team's area
	isChecked  bool    // it has begun with a check, see Check
	// cause is why a nonblocking collective ends with an error, once it is failing.
	cause error
	// wakes makes a nonblocking collective go on when its posted operations have ended.
	wakes progress.Waiter
	// For mismatch probes: the probed ranks of the job, and how far the collective was when this
	// rank was idle, with the engine's time.
	probed    []int
	wasIdle   bool
	idleSince int64
	idleAt    advancement
	awaitedBy []int // ranks that have probed for a start of this persistent collective

	ours   Signature // of an Init call while it runs other steps, see aside; else zero
	starts uint64    // of a persistent collective, so far
	origin []uintptr // of its Init call

	// agreed is the length, in bytes, that chooses the schedule and that all ranks agree on; 0 if
	// there is none.
	agreed    int
	inPlace   bool // the schedule is the one for in place, and all ranks agree on that
	noBuffers bool // the call has no slices, so a message of another length is of another call

	// Reduction is set before the builder of a reduction is called.
	Reduction

	steps []step
	next  int  // the first step that is not done yet
	waits bool // the next step to be added waits

	area        *area.Area   // that a blocking or persistent call may use; nil if there is none
	meets       []meet       // of the steps that go through it
	meeting     meeting      // the present one
	hook        func()       // of stepCall
	check       checking     // in checked mode
	atEnd       func() error // see AtEnd
	making      *pml.Making  // see Makes
	afterMaking func()       // see Makes

	recvs []postedRecv // since the last step that waited
	sends []*pml.SendRequest
	lent  []*pml.Detachment // buffers of sends that were given up, while devices still read them

	// Temporary memory consists of words, so it is aligned for every type.
	words []uint64
	used  int // words that are in use
	want  int // the most words that were in use at a time

	// Ints and Parts are memory for the lengths and parts of the call's arguments. Builders of
	// calls without such arguments use them.
	Ints  []int
	Parts [][]byte
}

// Combiner is a reduction operation on memory, for elements of any type.
type Combiner interface {
	// Combine is inout[i] = in[i] ∘ inout[i]. The memory is aligned for the elements.
	Combine(in, inout []byte)
}

// Reduction is an operation with the properties that choose its schedule.
type Reduction struct {
	Op       Combiner // nil if the collective does not reduce
	Elem     int      // size of an element, in bytes
	Commutes bool     // operands may change places
	Returns  bool     // Op is known to return: it neither panics nor ends its goroutine
}

// step is one element of a schedule.
type step struct {
	kind  stepKind
	waits bool // for everything that was posted before
	peer  int32
	a, b  []byte
}

type stepKind uint8

const (
	stepSend    stepKind = iota // a to peer
	stepRecv                    // into a, from peer
	stepCopy                    // b to a
	stepCombine                 // b = a ∘ b
	stepCall                    // Schedule.hook
	stepMeet                    // Schedule.meets, of which peer is the index
	stepCheck                   // part number peer of Schedule.check
)

// postedRecv is a receive that a step has posted.
type postedRecv struct {
	req  *pml.RecvRequest
	peer int
	room int // bytes, which is the length of the message that is due
}

// NoBuffers says that the call has no user slices.
func (s *Schedule) NoBuffers() {
	s.noBuffers = true
	s.tag |= ownForm
}

// How is the form of the call.
func (s *Schedule) How() How { return s.how }

// ID is the call in its form. The request of a persistent collective, and its starts, have another
// one than the Init call.
func (s *Schedule) ID() calls.ID { return s.id }

// Root is the root of the call, a rank of the communicator, or NoRoot.
func (s *Schedule) Root() int { return s.root }

// Bytes is the length that all ranks agree on; 0 if there is none.
func (s *Schedule) Bytes() int { return s.agreed }

// Number is the sequence number of the call.
func (s *Schedule) Number() int { return s.seq }

// Posts reports whether the receives and sends of the collective have a tag.
func (s *Schedule) Posts(tag int) bool { return tag&^watchTag == s.tag }

// InSharedMemory reports whether the collective waits for a change of shared memory now. Its
// receives then only watch the ranks that may make the change.
func (s *Schedule) InSharedMemory() bool { return s.meeting.word != nil }

// IsBlocking reports whether a goroutine is in the call.
func (s *Schedule) IsBlocking() bool { return s.isInline }

// AtEnd makes the schedule call f after all steps, before the collective is over and its messages
// are discarded. The error of f is that of the call. The engine's lock is held from the last step
// until the collective is over.
func (s *Schedule) AtEnd(f func() error) { s.atEnd = f }

// Makes says that the collective makes communicators. At its end it ends m, and then calls over:
// this rank can get no more communicators from it.
func (s *Schedule) Makes(m *pml.Making, over func()) { s.making, s.afterMaking = m, over }

// Take takes the proposal that the collective has chosen: see pml.Making.
func (s *Schedule) Take(of pml.Proposal, maker int) error { return s.making.Take(of, maker) }

// NeedsAll reports whether no rank can return from the collective before all ranks have called it,
// with any schedule: the result depends on each rank's contribution. For a start of a persistent
// collective, it is about that start.
func (s *Schedule) NeedsAll() bool {
	if s.isChecked && !s.isKept() {
		return true
	}
	return s.noBuffers || s.agreed > 0 && s.id.NeedsAll()
}

// isRunning reports whether the collective uses its buffers now.
func (s *Schedule) isRunning() bool { return s.phase != phaseReady && s.phase != phaseOpen }

// HasFailed reports whether the collective was revoked.
func (s *Schedule) HasFailed() bool { return s.team.errorOf(s.tag) != nil }

// What follows is for builders.

// send adds a step that sends buf to peer.
func (s *Schedule) send(peer int, buf []byte) { s.add(stepSend, peer, buf, nil) }

// recv adds a step that receives a message of exactly the length of buf from peer.
func (s *Schedule) recv(peer int, buf []byte) { s.add(stepRecv, peer, buf, nil) }

// wait makes the next step wait until all earlier ones have finished. The end of a schedule implies
// it.
func (s *Schedule) wait() { s.waits = true }

// copy adds a step that copies src to dst, which are equally long.
func (s *Schedule) copy(dst, src []byte) {
	if len(src) > 0 {
		s.add(stepCopy, 0, dst, src)
	}
}

// combine adds the step inout = in ∘ inout.
func (s *Schedule) combine(in, inout []byte) {
	if len(in) > 0 {
		s.add(stepCombine, 0, in, inout)
	}
}

// callHook adds the step that calls f. A schedule has at most one.
func (s *Schedule) callHook(f func()) {
	s.hook = f
	s.add(stepCall, 0, nil, nil)
}

func (s *Schedule) add(kind stepKind, peer int, a, b []byte) {
	n := len(s.steps)
	if n == cap(s.steps) {
		s.steps = slices.Grow(s.steps, 1)
	}
	s.steps = s.steps[:n+1]
	st := &s.steps[n] // filled in place, because a step is large
	st.kind, st.waits, st.peer, st.a, st.b = kind, s.waits, int32(peer), a, b
	s.waits = false
}

const (
	wordBytes = 8
	// tempAlignWords keeps pieces of temporary memory on cache lines of their own.
	tempAlignWords = 64 / wordBytes
	// tempKeepBytes is the most temporary memory that a schedule keeps for the next collective.
	tempKeepBytes = 1 << 20
)

// temp returns temporary memory of n bytes. It is in use until untemp gives it back or the schedule
// ends.
func (s *Schedule) temp(n int) []byte {
	words := (n + wordBytes - 1) / wordBytes
	words = (words + tempAlignWords - 1) / tempAlignWords * tempAlignWords
	from := s.used
	s.used += words
	s.want = max(s.want, s.used)
	if s.used > len(s.words) {
		return bytesOfWords(make([]uint64, words))[:n:n]
	}
	return bytesOfWords(s.words[from:s.used])[:n:n]
}

// untemp releases the memory from temp since s.used was the given number. The steps that use it
// must end before any later step runs.
func (s *Schedule) untemp(used int) { s.used = used }

// keepTemp enlarges the kept temporary memory if the last collective would have needed more.
// Earlier steps keep their memory.
func (s *Schedule) keepTemp() {
	if s.want > len(s.words) && s.want <= tempKeepBytes/wordBytes {
		s.words = make([]uint64, s.want)
	}
}

func bytesOfWords(words []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*wordBytes)
}
