package btltest

import (
	"bytes"
	"sync"
	"sync/atomic"

	"github.com/mpigo/mpigo/btl"
)

// side is one module of a pair, and the btl.Events that it reports to.
type side struct {
	h     *harness
	name  string
	rank  int
	peer  int
	other *side

	// mu stands for the lock of a rank's engine: every call of the module and of its endpoints
	// holds it. It guards the fields up to the blank line. Callbacks run with it held.
	mu      engineLock
	m       btl.Module
	ep      btl.Endpoint
	calling string // the call of the module that is in progress
	lent    lent

	// Guarded by the harness's mu, which may be taken with side.mu held.
	sent         ledger
	outstanding  map[*tracked]bool
	generation   int  // of the connection of ep
	failed       int  // generation of the last Failed
	drained      int  // generation of the last Drained
	failing      bool // Failed for the peer, not yet Drained
	railFailing  bool // Failed for the rail, not yet Drained
	failures     int
	railFailures int
	drains       int
	lastErr      *btl.Error

	// Called after the records are updated, without the harness's mu. Set while nothing is driven.
	onArrival func(tag btl.Tag, frag []byte)
	onDone    func(tr *tracked)

	driver chan struct{} // closed when the side's own goroutine has ended; nil if there is none
	stop   atomic.Bool
}

// engineLock is a mutex that reports whether another goroutine waits for it, so that a driver that
// takes it repeatedly can give way.
type engineLock struct {
	sync.Mutex
	wanted atomic.Int32
}

// Lock takes the mutex.
func (l *engineLock) Lock() {
	l.wanted.Add(1)
	l.Mutex.Lock()
	l.wanted.Add(-1)
}

// path is the side's name of the path to the other side. BTLs do not interpret its module number.
func (s *side) path() btl.Path { return btl.Path{Peer: s.peer, Module: 7} }

// isPath reports whether an event concerns that path. Before Connect the BTL cannot know the
// module's number.
func (s *side) isPath(to btl.Path) bool {
	return to == s.path() || s.ep == nil && to == btl.Path{Peer: s.peer}
}

func (s *side) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.enter(inClose)()
	return s.m.Close()
}

// progress polls the side's module once.
func (s *side) progress() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.enter(inProgress)()
	n := s.m.Progress()
	if n < 0 {
		s.h.violation("%s: Progress returns %d", s.name, n)
	}
	if p, ok := s.m.(interface{ Err() error }); ok && p.Err() != nil {
		s.h.violation("%s: %v", s.name, p.Err())
	}
	return n
}

func (s *side) address() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m.Address()
}

func (s *side) state() btl.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ep.State()
}

// fail fails the side's endpoint.
func (s *side) fail(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.enter(inFail)()
	s.ep.Fail(cause)
}

// failRail fails the side's module.
func (s *side) failRail(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.enter(inFail)()
	s.m.Fail(cause)
}

// newSend makes a Send of a fragment, or of the longest one that the rail takes.
func (s *side) newSend(hdr, size int) *tracked {
	return s.newSendExactly(hdr, min(size, s.m.Attrs().MaxSendBytes))
}

func (s *side) newSendExactly(hdr, size int) *tracked {
	tr := &tracked{side: s, verb: "Send", buf: make([]byte, size-hdr)}
	tr.op.HdrLen = uint8(hdr)
	tr.op.Payload = tr.buf
	return tr
}

// send tries once to post a fragment.
func (s *side) send(tr *tracked) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sendLocked(tr)
}

// sendLocked does what send does, inside a callback.
func (s *side) sendLocked(tr *tracked) error {
	hdr := int(tr.op.HdrLen)
	s.h.mu.Lock()
	e := s.sent.add(s.generation, hdr, tr.op.Len())
	s.h.mu.Unlock()
	frag := s.sent.contentOf(e)
	copy(tr.op.Hdr[:hdr], frag)
	copy(tr.op.Payload, frag[hdr:])
	tr.op.Tag = e.tag
	tr.entry = e
	err := s.postLocked(tr)
	if err != nil {
		s.h.mu.Lock()
		s.sent.withdraw(e)
		s.h.mu.Unlock()
	}
	return err
}

// post tries once to post an operation.
func (s *side) post(tr *tracked) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.postLocked(tr)
}

// postLocked posts an operation on the side's endpoint, and checks the result.
func (s *side) postLocked(tr *tracked) error {
	tr.op.Owner = tr
	tr.op.Done = done
	tr.ep = s.ep
	s.h.mu.Lock()
	tr.generation = s.generation
	tr.posting, tr.accepted, tr.done, tr.err = true, false, 0, nil
	s.outstanding[tr] = true
	s.h.mu.Unlock()

	before := s.ep.State()
	leave := s.enter(tr.verb)
	var err error
	switch tr.verb {
	case "Put":
		err = s.ep.(btl.Putter).Put(&tr.op)
	case "Get":
		err = s.ep.(btl.Getter).Get(&tr.op)
	default:
		err = s.ep.Send(&tr.op)
	}
	leave()

	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	tr.posting = false
	if err == nil {
		tr.accepted = true
		if before != btl.Up {
			s.h.violationLocked("%s: %s accepted by an endpoint that is %v", s.name, tr.verb, before)
		}
		return nil
	}
	delete(s.outstanding, tr)
	if tr.done > 0 {
		s.h.violationLocked("%s: %s refused with %v, but Done was called", s.name, tr.verb, err)
	}
	switch {
	case err == btl.ErrFailed:
		if s.ep.State() == btl.Up {
			s.h.violationLocked("%s: %s refused with ErrFailed by an endpoint that is Up", s.name, tr.verb)
		}
	case before != btl.Up:
		s.h.violationLocked("%s: %s refused with %v by an endpoint that is %v, want ErrFailed", s.name, tr.verb, err, before)
	case err != btl.ErrResource && err != btl.ErrTooLong:
		s.h.violationLocked("%s: %s refused with %v", s.name, tr.verb, err)
	}
	return err
}

// inline tries to send a fragment inline.
func (s *side) inline(hdr, size int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.h.mu.Lock()
	e := s.sent.add(s.generation, hdr, size)
	s.h.mu.Unlock()
	frag := bytes.Clone(s.sent.contentOf(e))
	leave := s.enter("SendInline")
	ok := s.ep.(btl.Inliner).SendInline(e.tag, frag[:hdr], frag[hdr:])
	leave()
	overwrite(frag)
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if ok {
		e.succeeded = true
	} else {
		s.sent.withdraw(e)
	}
	return ok
}
