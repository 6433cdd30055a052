package coll

import (
	"context"
	"encoding/binary"
	"runtime"

	"github.com/mpigo/mpigo/comm/internal/area"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/request"
)

// A persistent collective keeps its steps, its temporary memory and its tag from Init to Free. The
// Init call is a collective in which the ranks compare their calls. So all starts have the same
// steps at all ranks, and a probe for a start can only find that a rank has freed the request.
//
// On one host the starts meet in shared memory (area_persistent.go). The ranks also compare in the
// Init call whether all of them can.
//
// A later start could receive messages of a failed start. So after a failure all later starts fail,
// too, at all ranks.

// Keep ends an Init call: it waits for the Init calls of the other ranks, and returns an inactive
// request. ctx is as for Run.
func (s *Schedule) Keep(ctx context.Context) (request.Request, error) {
	if err := s.admit(ctx); err != nil {
		return request.Request{}, err
	}
	if err := s.compareInits(ctx); err != nil {
		return request.Request{}, err
	}
	if err := s.share(ctx); err != nil {
		return request.Request{}, err
	}
	t := s.team
	pcs := make([]uintptr, originFrames)
	s.origin = pcs[:runtime.Callers(1, pcs)]
	if t.kept == nil {
		t.kept = make(map[int]*Schedule)
	}
	t.kept[s.seq] = s
	t.pass(s)
	s.tag, s.id = s.seq+startForm, s.id.In(calls.Started)
	s.move(phaseReady)
	s.InitPersistent()
	return s.Handle(), nil
}

// originFrames bounds the stack frames kept of an Init call. About six are the library's.
const originFrames = 12

// isKept reports whether this is a persistent collective whose Init call is over. From then on its
// request names it, and its messages are those of starts.
func (s *Schedule) isKept() bool { return formOf(s.tag) == startForm }

// Starts is how often a persistent collective was started, and so the number of the start under
// way. It is 0 in an Init call, and for other collectives.
func (s *Schedule) Starts() uint64 { return s.starts }

// StartAt numbers the starts of a persistent collective from starts on. All ranks call it, and then
// wait for each other, before the first start. It is for tests.
func (s *Schedule) StartAt(starts uint64) {
	for s.starts = 0; s.area != nil && s.starts < starts; s.starts += min(1<<30, starts-s.starts) {
		s.area.Age(s.starts - SequenceNumbers)
	}
	s.starts = starts
}

// Origin returns the program counters of the Init call of a persistent collective, as
// runtime.CallersFrames takes them. It returns none during that call.
func (s *Schedule) Origin() []uintptr { return s.origin }

// compareInits compares the signatures of all ranks' calls. It also finds out whether all ranks
// plan to share memory: otherwise none does.
func (s *Schedule) compareInits(ctx context.Context) error {
	if s.isChecked {
		return s.checkInit(ctx)
	}
	const bytes = area.SignatureBytes + wordBytes
	ours, block := s.signature(), s.plannedBlock()
	all := make([]byte, s.size*bytes)
	err := s.aside(ctx, func(ctx context.Context) error {
		s.allgatherBruck(binary.LittleEndian.AppendUint64(ours.append(nil), uint64(block)), all)
		return s.run(ctx)
	})
	if err != nil {
		return err
	}
	agreed := true
	for rank := range s.size {
		of := all[rank*bytes:]
		if theirs := decodeSignature(of); theirs != ours {
			return s.explain(&RevokedError{Rank: rank, Reason: differenceOf(theirs, ours), Theirs: &theirs, Ours: &ours})
		}
		agreed = agreed && binary.LittleEndian.Uint64(of[area.SignatureBytes:]) == uint64(block)
	}
	if !agreed {
		s.shareNothing()
	}
	return nil
}

// callHasNoBuffers reports whether the call has no user slices, also while other steps run (aside).
func (s *Schedule) callHasNoBuffers() bool {
	if s.how == Persistent && !s.isKept() && !s.isChecked { // perhaps aside, where noBuffers is set
		return s.tag&ownForm != 0
	}
	return s.noBuffers
}

// aside saves the steps of the starts, and calls f, which makes and runs the Init call's own steps.
func (s *Schedule) aside(ctx context.Context, f func(ctx context.Context) error) error {
	steps, words, used, want := s.steps, s.words, s.used, s.want
	noBuffers, reduction := s.noBuffers, s.Reduction
	s.ours = s.signature()
	s.steps, s.words, s.used, s.noBuffers, s.waits = nil, nil, 0, true, false
	err := f(ctx)
	s.steps, s.words, s.used, s.want, s.next = steps, words, used, want, 0
	s.noBuffers, s.Reduction, s.hook, s.ours = noBuffers, reduction, nil, Signature{}
	return err
}

// Start implements request.Operation.
func (s *Schedule) Start() {
	s.starts++
	s.next, s.isInline = 0, false
	s.probed, s.wasIdle = s.probed[:0], false
	if s.area != nil {
		s.meeting.checked = true // the Init calls were compared
		s.team.hub.keepMoving()
		if s.starts%ageEvery == 0 {
			s.area.Age(s.starts - SequenceNumbers)
		}
	}
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
