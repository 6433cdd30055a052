package coll

import (
	"context"
	"runtime"

	"github.com/mpigo/mpigo/request"
)

// A persistent collective keeps its steps, its temporary memory and its tag from Init to Free. The
// Init call is a collective in which the ranks compare their calls. So all starts have the same
// steps at all ranks, and a mismatch probe for a start has to find only that a rank has freed the
// request.
//
// If a start fails, messages of it may be left over, which a later start would take for its own. So
// all later starts fail as well, at all ranks.

// Keep ends an Init call: it waits for the Init calls of the other ranks, and returns an inactive
// request. ctx is as for Run.
func (s *Schedule) Keep(ctx context.Context) (request.Request, error) {
	if err := s.admit(ctx); err != nil {
		return request.Request{}, err
	}
	if err := s.compareInits(ctx); err != nil {
		return request.Request{}, err
	}
	t := s.team
	t.pass(s, true)
	s.tag = s.seq + startForm
	pcs := make([]uintptr, originFrames)
	s.origin = pcs[:runtime.Callers(1, pcs)]
	if t.kept == nil {
		t.kept = make(map[int]*Schedule)
	}
	t.kept[s.seq] = s
	s.move(phaseReady)
	s.InitPersistent()
	return s.Handle(), nil
}

// originFrames bounds the frames that are kept of an Init call. About six are the library's.
const originFrames = 12

// isKept reports whether this is a persistent collective whose Init call is over. From then on its
// request names it, and its messages are those of starts.
func (s *Schedule) isKept() bool { return formOf(s.tag) == startForm }

// Starts is how often a persistent collective was started, and so the number of the start that is
// under way. It is 0 in an Init call, and for any other collective.
func (s *Schedule) Starts() uint64 { return s.starts }

// Origin returns the program counters of the Init call of a persistent collective, as
// runtime.CallersFrames takes them. It returns none during that call.
func (s *Schedule) Origin() []uintptr { return s.origin }

// compareInits gathers the signatures of all ranks' calls. It borrows the schedule for that.
func (s *Schedule) compareInits(ctx context.Context) error {
	if s.isChecked {
		return s.checkInit(ctx)
	}
	steps, words, used, want, noBuffers, ours := s.steps, s.words, s.used, s.want, s.noBuffers, s.signature()
	all := make([]byte, s.size*signatureBytes)
	s.steps, s.words, s.used, s.noBuffers, s.waits = nil, nil, 0, true, false
	s.allgatherBruck(ours.append(nil), all)
	err := s.run(ctx)
	s.steps, s.words, s.used, s.want, s.noBuffers, s.next = steps, words, used, want, noBuffers, 0
	if err != nil {
		return err
	}
	for rank := range s.size {
		if theirs := decodeSignature(all[rank*signatureBytes:]); theirs != ours {
			return s.explain(&RevokedError{Rank: rank, Reason: differenceOf(theirs, ours), Theirs: &theirs, Ours: &ours})
		}
	}
	return nil
}

// Start implements request.Operation.
func (s *Schedule) Start() {
	s.starts++
	s.next, s.isInline = 0, false
	s.probed, s.wasIdle = s.probed[:0], false
	s.move(phaseRunning)
	s.advance()
}

// free ends a persistent collective.
func (s *Schedule) free() {
	t := s.team
	delete(t.kept, s.seq)
	if s.failure.err != nil {
		t.failures--
	}
	t.p.DiscardUnexpected(t.ctx, s.tag, func(from int) { t.answer(from, s.tag, Unwanted) })
	t.removeIfFreed()
}
