package comm

import (
	"errors"
	"slices"

	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/request"
)

// A collective is a schedule: a list of steps, made by a builder (coll_barrier.go,
// coll_bcast.go, …) that knows the algorithm and nothing of requests. Sends and receives
// are posted as they come, in order; copies and combinations are done on the spot. A step
// may have to wait until everything posted before it has finished; steps between two
// such overlap.
//
// Between two ranks, the sends of one and the receives of the other are in the same
// order, and a receive knows the exact length of its message. All messages of one
// collective have one tag.
//
// What happens when a rank cannot go on is in coll_failure.go.
type schedule struct {
	*state
	call string // the name of the call
	tag  int
	root int // none if the call has none
	// agreed is the length, in bytes, that decides what the schedule is, and that all ranks agree
	// on; 0 if there is none.
	agreed  int
	inPlace bool // the schedule is another one then, and all ranks agree on that too
	bare    bool // the call has no slices: whoever sends other lengths is in another one
	reduction

	steps []step
	next  int  // the first step not done yet
	waits bool // the next step to be added does

	recvs []collRecv // posted since the last wait
	sends []*pml.SendRequest
	lent  []*pml.Detachment // buffers of sends that were given up, while devices read them

	// Temporary memory: words, so that it is aligned for every type.
	words []uint64
	used  int // words handed out
	want  int // the most there were handed out at a time

	// For builders.
	ints  []int
	parts [][]byte
}

// step is one element of a schedule.
type step struct {
	kind  stepKind
	waits bool // for everything posted before
	peer  int32
	a, b  []byte
}

type stepKind uint8

const (
	stepSend    stepKind = iota // a to peer
	stepRecv                    // into a, from peer
	stepCopy                    // b to a
	stepCombine                 // b = a ∘ b
)

type collRecv struct {
	req  *pml.RecvRequest
	peer int
	room int
}

// What the builders use.

func (s *schedule) send(peer int, buf []byte) { s.add(stepSend, peer, buf, nil) }

func (s *schedule) recv(peer int, buf []byte) { s.add(stepRecv, peer, buf, nil) }

// wait lets what was posted finish before the next step. At the end it is implied.
func (s *schedule) wait() { s.waits = true }

// copy copies src to dst, which are equally long.
func (s *schedule) copy(dst, src []byte) {
	if len(src) > 0 {
		s.add(stepCopy, 0, dst, src)
	}
}

// combine is inout = in ∘ inout.
func (s *schedule) combine(in, inout []byte) {
	if len(in) > 0 {
		s.add(stepCombine, 0, in, inout)
	}
}

func (s *schedule) add(kind stepKind, peer int, a, b []byte) {
	n := len(s.steps)
	if n == cap(s.steps) {
		s.steps = slices.Grow(s.steps, 1)
	}
	s.steps = s.steps[:n+1]
	st := &s.steps[n] // filled in place: a step is large
	st.kind, st.waits, st.peer, st.a, st.b = kind, s.waits, int32(peer), a, b
	s.waits = false
}

const (
	wordBytes = 8
	// tempAlign keeps pieces of temporary memory on cache lines of their own.
	tempAlign = 64 / wordBytes
	// tempKeepBytes is the most temporary memory that a communicator keeps for the next
	// collective.
	tempKeepBytes = 1 << 20
)

// temp gives temporary memory of n bytes, until it is given back with untemp or the
// schedule ends.
func (s *schedule) temp(n int) []byte {
	words := (n + wordBytes - 1) / wordBytes
	words = (words + tempAlign - 1) / tempAlign * tempAlign
	from := s.used
	s.used += words
	s.want = max(s.want, s.used)
	if s.used > len(s.words) {
		return bytesOf(make([]uint64, words))[:n:n]
	}
	return bytesOf(s.words[from:s.used])[:n:n]
}

// untemp gives back what temp gave since s.used was as given. The steps that use it must
// have been done by the time of any further step.
func (s *schedule) untemp(used int) { s.used = used }

// What runs a schedule. All of it with the engine's lock held.

// post does steps until one has to wait, and reports whether there is one.
func (s *schedule) post() (waiting bool, err error) {
	p := s.job.pml
	for s.next < len(s.steps) {
		st := &s.steps[s.next]
		if st.waits && s.outstanding() {
			return true, nil
		}
		s.next++
		peer := int(st.peer)
		switch st.kind {
		case stepSend:
			if r := p.Send(s.coll, st.a, peer, s.tag, pml.Standard, s.call); r != nil {
				s.sends = append(s.sends, r)
			}
		case stepRecv:
			if len(s.recvs) > 0 || s.next < len(s.steps) && !s.steps[s.next].waits {
				r := p.Irecv(s.coll, st.a, 1, peer, s.tag, s.call)
				s.recvs = append(s.recvs, collRecv{r, peer, len(st.a)})
				break
			}
			// The only one, and nothing to do before it is here.
			var got request.Status
			r := p.Recv(&got, s.coll, st.a, 1, peer, s.tag, s.call)
			if recv := (collRecv{r, peer, len(st.a)}); r != nil {
				s.recvs = append(s.recvs, recv)
			} else if got.Bytes != int64(len(st.a)) {
				return false, s.badMessage(recv, got, nil)
			}
		case stepCopy:
			s.doCopy(st.a, st.b)
		case stepCombine:
			s.doCombine(st.a, st.b)
		}
	}
	return s.outstanding(), nil
}

// outstanding reports whether something is posted and not known to be finished.
func (s *schedule) outstanding() bool { return len(s.recvs) > 0 || len(s.sends) > 0 }

// unlockBytes: a copy of this size or more is done without the engine's lock.
const unlockBytes = 32 << 10

func (s *schedule) doCopy(dst, src []byte) {
	if len(src) < unlockBytes {
		copy(dst, src)
		return
	}
	s.job.eng.Unlock()
	copy(dst, src)
	s.job.eng.Lock()
}

// doCombine runs the user's operation, without the lock: it may take long, or panic. A
// panic goes on to the user, after the schedule has been given up.
func (s *schedule) doCombine(in, inout []byte) {
	s.job.eng.Unlock()
	returned := false
	defer func() {
		s.job.eng.Lock()
		if !returned {
			s.giveUp(errors.New("the operation panicked"))
		}
	}()
	s.op.combine(in, inout)
	returned = true
}

// await waits for everything posted.
func (s *schedule) await(c *Comm) error {
	ctx := c.ctx
	if c.done == nil {
		ctx = nil
	}
	for len(s.recvs) > 0 {
		last := len(s.recvs) - 1
		r := s.recvs[last]
		if err := r.req.Await(ctx); err != nil {
			return err
		}
		s.recvs = s.recvs[:last]
		st, err := r.req.Take()
		if err != nil || st.Bytes != int64(r.room) {
			return s.badMessage(r, st, err)
		}
	}
	for len(s.sends) > 0 {
		last := len(s.sends) - 1
		r := s.sends[last]
		if err := r.Await(ctx); err != nil {
			return err
		}
		if len(s.sends) == 0 {
			break // all were given up meanwhile
		}
		s.sends = s.sends[:last]
		if _, err := r.Take(); err != nil {
			return err
		}
	}
	return nil
}
