package record

import (
	"fmt"
	"path/filepath"

	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/trace"
	"github.com/mpigo/mpigo/pml"
)

// event is a trace.Event before its words are made.
type event struct {
	kind    trace.Type
	open    bool
	call    calls.ID
	track   int32
	number  uint32
	peer    int32
	tag     int32
	at      int64
	nanos   int64
	bytes   int64
	context uint64
	request uint64
	line    *frame
	text    string // the communicator's name, or what happened to a rail
}

// Trace is a flight recorder: it keeps the last events of a rank. The engine's lock guards it.
type Trace struct {
	locator *locator
	ring    []event
	next    uint64 // number of the next event
	rec     *calls.Recorder
}

// NewTrace makes a trace of this many events. It allocates all memory at once.
func NewTrace(events int) *Trace {
	return &Trace{locator: newLocator(), ring: make([]event, events)}
}

// Use sets the recorder whose sink the trace is.
func (t *Trace) Use(rec *calls.Recorder) { t.rec = rec }

// add returns the place of the next event.
func (t *Trace) add(kind trace.Type, at int64) *event {
	e := &t.ring[t.next%uint64(len(t.ring))]
	t.next++
	*e = event{kind: kind, at: at, track: -1, peer: -1, tag: -1}
	if c := t.rec.Current(); c != nil {
		e.track = int32(c.Track)
	}
	return e
}

// Ended implements calls.Sink.
func (t *Trace) Ended(c *calls.Call) { t.fill(t.add(trace.Call, c.Start), c) }

func (t *Trace) fill(e *event, c *calls.Call) {
	e.call, e.track, e.nanos = c.ID, int32(c.Track), c.Nanos
	e.peer, e.tag, e.bytes = int32(c.Peer), int32(c.Tag), int64(c.Bytes)
	e.text, e.request, e.line = c.Comm, c.Request, t.locator.find()
}

// Begun and Observed implement calls.RequestSink.
func (t *Trace) Begun(id uint64, c *calls.Call) {
	e := t.add(trace.Begun, calls.Now())
	e.call, e.request, e.peer, e.tag, e.bytes = c.ID, id, int32(c.Peer), int32(c.Tag), int64(c.Bytes)
}

func (t *Trace) Observed(id uint64) { t.add(trace.Observed, calls.Now()).request = id }

// Now implements pml.Tracer.
func (t *Trace) Now() int64 { return calls.Now() }

// Sent implements pml.Tracer.
func (t *Trace) Sent(at int64, m pml.TracedMessage) { t.message(t.add(trace.Sent, at), m) }

// Matched implements pml.Tracer.
func (t *Trace) Matched(m pml.TracedMessage) { t.message(t.add(trace.Matched, calls.Now()), m) }

func (t *Trace) message(e *event, m pml.TracedMessage) {
	e.peer, e.tag, e.bytes, e.context, e.number = int32(m.Peer), int32(m.Tag), m.Bytes, uint64(m.Context), m.Number
}

// Rail records an event of a rail.
func (t *Trace) Rail(peer int, what string) {
	e := t.add(trace.Rail, calls.Now())
	e.peer, e.text = int32(peer), what
}

// Events is a copy of a trace's events at a moment.
type Events struct {
	at      int64
	dropped uint64
	list    []event
}

// NewEvents allocates memory for a copy of the events, and touches it, which takes longer than the
// copy. It needs no lock.
func (t *Trace) NewEvents() *Events {
	s := &Events{list: make([]event, len(t.ring)+roomUnderWay)}
	for i := range s.list {
		s.list[i].peer = -1
	}
	return s
}

// roomUnderWay is the number of calls under way for which memory is allocated beforehand.
const roomUnderWay = 64

// Copy copies the events, and the calls under way. It does nothing else, because the lock is held
// and the rank cannot go on.
func (s *Events) Copy(t *Trace) {
	n := uint64(len(t.ring))
	kept, first := min(t.next, n), uint64(0)
	if t.next > n {
		first = t.next % n
	}
	s.at, s.dropped = calls.Now(), t.next-kept
	s.list = append(append(s.list[:0], t.ring[first:kept]...), t.ring[:first]...)
	t.rec.UnderWay(func(c *calls.Call) {
		s.list = append(s.list, event{
			kind: trace.Call, open: true, at: c.Start, nanos: max(s.at-c.Start, 1), call: c.ID, track: int32(c.Track),
			peer: int32(c.Peer), tag: int32(c.Tag), bytes: int64(c.Bytes), text: c.Comm, request: c.Request,
		})
	})
}

// Fill writes the events of the last nanos nanoseconds to a file; 0: all. It needs no lock.
func (s *Events) Fill(f *trace.File, nanos int64) {
	f.Written, f.Dropped = s.at, s.dropped
	f.Events = make([]trace.Event, 0, len(s.list))
	for i := range s.list {
		e := &s.list[i]
		if nanos > 0 && !e.open && e.at+e.nanos < s.at-nanos {
			f.Dropped++
			continue
		}
		f.Events = append(f.Events, words(e))
	}
}

func words(e *event) trace.Event {
	out := trace.Event{
		Type: e.kind, At: e.at, Track: int(e.track), Nanos: e.nanos, Peer: int(e.peer), Tag: int(e.tag), Bytes: e.bytes,
		Context: e.context, Number: e.number, Request: e.request, Open: e.open,
	}
	switch e.kind {
	case trace.Call:
		out.Name, out.Comm = e.call.String(), e.text
	case trace.Begun:
		out.Name = e.call.String()
	case trace.Rail:
		out.Name = e.text
	}
	if e.line != nil && e.line.file != "" {
		out.Line = fmt.Sprintf("%s:%d", filepath.Base(e.line.file), e.line.line)
	}
	return out
}

// Both passes calls to a profile and a trace.
type Both struct {
	*Profile
	*Trace
}

// Ended implements calls.Sink.
func (b Both) Ended(c *calls.Call) {
	b.Profile.Ended(c)
	b.Trace.Ended(c)
}
