package btltest

import (
	"errors"

	"github.com/mpigo/mpigo/btl"
)

// tracked is an operation and its result.
type tracked struct {
	op         btl.Op
	side       *side
	ep         btl.Endpoint
	verb       string
	entry      *entry // of a Send
	buf        []byte // the payload's memory, if the suite overwrites it after Done
	pages      []byte // the payload's own pages, nil if there are none
	generation int

	// Guarded by the harness's mu.
	posting  bool // inside the post
	accepted bool
	done     int
	err      error
}

var _ btl.Events = (*side)(nil)

// Calls in which a module may report events.
const (
	inProgress = "Progress"
	inFail     = "Fail"
	inClose    = "Close"
)

// enter records that the module is being called, and returns a function that undoes that.
func (s *side) enter(what string) func() {
	before := s.calling
	s.calling = what
	return func() { s.calling = before }
}

func (s *side) mayReport(what string) {
	if s.calling != inProgress && s.calling != inFail {
		s.h.violation("%s: %s called from inside %q", s.name, what, s.calling)
	}
}

// Arrived implements btl.Events.
func (s *side) Arrived(m btl.Module, peer int, tag btl.Tag, frag []byte) {
	s.mayReport("Arrived")
	s.h.mu.Lock()
	if m != s.m {
		s.h.violationLocked("%s: Arrived names another module", s.name)
	}
	if peer != s.peer {
		s.h.violationLocked("%s: Arrived from rank %d, want %d", s.name, peer, s.peer)
	}
	if err := s.other.sent.take(tag, frag, s.drained); err != nil {
		s.h.violationLocked("%v", err)
	}
	hook := s.onArrival
	s.h.mu.Unlock()
	if hook != nil {
		hook(tag, frag)
	}
}

// Failed implements btl.Events.
func (s *side) Failed(m btl.Module, to btl.Path, err *btl.Error) {
	s.mayReport("Failed")
	up := s.ep != nil && s.ep.State() == btl.Up
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if m != s.m {
		s.h.violationLocked("%s: Failed names another module", s.name)
	}
	if err == nil {
		s.h.violationLocked("%s: Failed without an error", s.name)
		err = &btl.Error{}
	}
	if err.Rail != s.m.Attrs().Name || err.Peer != to.Peer {
		s.h.violationLocked("%s: Failed for peer %d of rail %q with an error for peer %d of rail %q",
			s.name, to.Peer, s.m.Attrs().Name, err.Peer, err.Rail)
	}
	if up {
		s.h.violationLocked("%s: Failed while the endpoint is Up", s.name)
	}
	switch {
	case to == btl.WholeModule:
		if s.railFailing {
			s.h.violationLocked("%s: Failed for the rail twice", s.name)
		}
		s.railFailing = true
		s.railFailures++
	case s.isPath(to):
		if s.failing || s.failed == s.generation && s.ep != nil {
			s.h.violationLocked("%s: Failed twice for one incarnation", s.name)
		}
		s.failing = true
		s.failures++
	default:
		s.h.violationLocked("%s: Failed for %v, want %v", s.name, to, s.path())
	}
	s.failed = s.generation
	s.lastErr = err
}

// Drained implements btl.Events.
func (s *side) Drained(m btl.Module, to btl.Path) {
	s.mayReport("Drained")
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if m != s.m {
		s.h.violationLocked("%s: Drained names another module", s.name)
	}
	switch {
	case to == btl.WholeModule && s.railFailing:
		s.railFailing = false
	case s.isPath(to) && s.failing:
		s.failing = false
	default:
		s.h.violationLocked("%s: Drained for %v without a Failed before it", s.name, to)
	}
	for tr := range s.outstanding {
		if tr.ep == s.ep {
			s.h.violationLocked("%s: Drained with a %s outstanding", s.name, tr.verb)
		}
	}
	s.drained = s.generation
	s.drains++
}

// overwrite changes memory that the caller owns again, so that a BTL that still reads it is
// detected.
func overwrite(b []byte) {
	if len(b) > 0 {
		b[0] ^= 0xff
		for n := 1; n < len(b); n *= 2 {
			copy(b[n:], b[:n])
		}
	}
}

// done is the Done of every operation.
func done(op *btl.Op, err error) {
	tr, ok := op.Owner.(*tracked)
	if !ok || &tr.op != op {
		panic("btltest: Owner of an operation was changed") // no test can be told
	}
	s := tr.side
	var be *btl.Error
	s.h.mu.Lock()
	tr.done++
	switch {
	case tr.done > 1:
		s.h.violationLocked("%s: Done called %d times for one %s", s.name, tr.done, tr.verb)
	case !tr.accepted && !tr.posting:
		s.h.violationLocked("%s: Done called for a %s that was not accepted", s.name, tr.verb)
	case err != nil && s.calling != inProgress && s.calling != inFail && s.calling != inClose:
		s.h.violationLocked("%s: Done with an error called from inside %q", s.name, s.calling)
	case err != nil && !errors.As(err, &be):
		s.h.violationLocked("%s: Done with %v, which is not a *btl.Error", s.name, err)
	case err != nil && s.calling != inClose && s.failed != tr.generation && (be.Class != btl.ClassUsage || tr.verb == "Send"):
		s.h.violationLocked("%s: Done with an error, before Failed: %v", s.name, err)
	case s.drained >= tr.generation:
		s.h.violationLocked("%s: Done after Drained", s.name)
	}
	if be != nil && (be.Rail != s.m.Attrs().Name || be.Peer != s.peer && be.Peer != btl.AllPeers) {
		s.h.violationLocked("%s: Done with an error of rail %q and peer %d", s.name, be.Rail, be.Peer)
	}
	tr.err = err
	delete(s.outstanding, tr)
	if tr.entry != nil {
		tr.entry.succeeded = err == nil
		tr.entry.failed = err != nil
	}
	hook := s.onDone
	s.h.mu.Unlock()
	overwrite(tr.buf)
	if hook != nil {
		hook(tr)
	}
}
