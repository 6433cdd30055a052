package loop

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"

	"github.com/mpigo/mpigo/btl"
)

// simulator holds the time of a virtual fabric, and its future events.
type simulator struct {
	now    int64
	rng    *rand.Rand
	events []event // by time; of two events of the same time the older one is first
	trace  io.Writer
}

type event struct {
	at  int64
	run func()
	f   *flight // that the event is about; nil for other events
}

func newSimulator(seed uint64) *simulator {
	return &simulator{rng: rand.New(rand.NewPCG(seed, 0x6c6f6f70))}
}

// Now implements progress.Clock.
func (s *simulator) Now() int64 { return s.now }

func (s *simulator) after(nanos int64, run func()) { s.add(event{at: s.now + nanos, run: run}) }

func (s *simulator) add(e event) {
	i := len(s.events)
	for i > 0 && s.events[i-1].at > e.at {
		i--
	}
	s.events = slices.Insert(s.events, i, e)
}

// below draws a number from 0 to n.
func (s *simulator) below(n int64) int64 {
	if n <= 0 {
		return 0
	}
	return s.rng.Int64N(n + 1)
}

// Advance moves the time of a virtual fabric to its next event and runs all events of that time. It
// reports false if there is none.
func (f *Fabric) Advance() bool {
	at, ok := f.Next()
	if ok {
		f.AdvanceTo(at)
	}
	return ok
}

// AdvanceTo moves the time of a virtual fabric to at, if that is in the future, and runs all events
// up to it.
func (f *Fabric) AdvanceTo(at int64) {
	s := f.sim
	if s == nil {
		return
	}
	for len(s.events) > 0 && s.events[0].at <= at {
		e := s.events[0]
		s.events[0].run = nil // for the garbage collector
		s.events = s.events[1:]
		s.now = max(s.now, e.at)
		e.run()
	}
	s.now = max(s.now, at)
}

// Next is the time of the next event of a virtual fabric, if there is one.
func (f *Fabric) Next() (at int64, ok bool) {
	if f.sim == nil || len(f.sim.events) == 0 {
		return 0, false
	}
	return f.sim.events[0].at, true
}

// SetLatency changes the latency of a rail of a virtual fabric for operations posted from now on.
// Operations posted before still arrive first.
func (f *Fabric) SetLatency(rail int, nanos int64) error {
	if err := f.checkFault(rail); err != nil {
		return err
	}
	if f.sim == nil || nanos < 0 {
		return fmt.Errorf("%w: latency of %d ns", ErrConfig, nanos)
	}
	f.cfg.Rail[rail].LatencyNanos = nanos
	return nil
}

// flight is an operation of a virtual fabric in flight.
type flight struct {
	e      *endpoint // that posted it
	v      verb
	op     *btl.Op // nil once nothing waits for it
	epoch  uint32
	tag    btl.Tag
	data   []byte // what is sent or written, or was read
	key    btl.Key
	offset uint64

	over bool // it was delivered, lost or refused
	lost bool // without an acknowledgement, if it was delivered
}

// arrival is a fragment that was delivered.
type arrival struct {
	epoch uint32
	tag   btl.Tag
	frag  []byte
	f     *flight // acknowledged when the fragment is taken; nil if it was acknowledged before
}

// launch posts an operation on a virtual fabric.
func (e *endpoint) launch(v verb, op *btl.Op) error {
	m := e.m
	if !e.hasRoom(op) {
		return btl.ErrResource
	}
	if v != send {
		if err := e.checkLocal(op); err != nil {
			e.reject(op, err)
			return nil
		}
	}
	m.f.tracef("post %s %d>%d epoch %d %v tag %d bytes %d", m.Attrs().Name, m.port.name.Rank, e.Peer(), e.Epoch(), v, op.Tag, op.Len())
	e.Pending.Push(op)
	if e.out == nil {
		e.failAfterRetries(op, e.noAnswer())
		return nil
	}
	f := &flight{e: e, v: v, op: op, epoch: e.Epoch(), tag: op.Tag, key: op.Remote, offset: op.RemoteOffset}
	switch v {
	case send:
		f.data = append(append(f.data, op.Header()...), op.Payload...)
	case put, get: // the bytes are read on arrival
		f.data = make([]byte, len(op.Payload))
	}
	e.flights = append(e.flights, f)
	f.depart()
	return nil
}

// failAfterRetries fails the endpoint after the rail's retries.
func (e *endpoint) failAfterRetries(op *btl.Op, err *btl.Error) {
	e.m.f.sim.after(e.m.rail().RetryNanos, func() {
		e.m.DeferFailure(e, err, op)
		e.m.port.wake()
	})
}

func (m *module) rail() *RailConfig { return &m.f.cfg.Rail[m.port.name.Rail] }

// nanos is how long a lane of this rail takes to emit n bytes.
func (r *RailConfig) nanos(n int) int64 { return int64(n) * 1000 / r.BandwidthMBps }

// depart puts a flight on its lane, behind earlier ones.
func (f *flight) depart() {
	m, l := f.e.m, f.e.out
	s, r := m.f.sim, m.rail()
	l.inc.link.flights = append(l.inc.link.flights, f)
	if x := f.e.wire(); x != nil {
		f.departByWire(x)
		return
	}
	bytes := len(f.data)
	if f.v == get {
		bytes = 0
	}
	i := l.impairment()
	l.busyUntil = max(s.now, l.busyUntil) + r.nanos(bytes)*i.PerByte
	retries, getsThrough := i.retries(s)
	l.lastArrival = max(l.busyUntil+r.LatencyNanos*i.Latency+s.below(r.JitterNanos)+retries, l.lastArrival)
	s.add(event{l.lastArrival, func() {
		switch {
		case f.over:
		case getsThrough:
			f.deliver()
		default:
			f.lose()
		}
	}, f})
}

// deliver ends a flight at the peer, unless the peer's end is dead.
func (f *flight) deliver() {
	m, l := f.e.m, f.e.out
	if l.inc.link.cut || l.to.downError() != nil || l.from.downError() != nil || f.isLost() {
		f.lose()
		return
	}
	taken, err := f.arrive()
	if !taken {
		f.lose()
		return
	}
	if f.e.wire() != nil {
		if !f.isAckedLater() {
			f.acknowledgeByWire(err)
		}
		return
	}
	i := l.impairment()
	back := m.rail().LatencyNanos * i.Latency
	if f.v == get {
		back += m.rail().nanos(len(f.data)) * i.PerByte
	}
	retries, getsThrough := i.retries(m.f.sim)
	at := m.f.sim.now + back + retries
	if i != unimpaired || l.lastAck > at { // late acknowledgements also stay in order
		at = max(at, l.lastAck)
		l.lastAck = at
	}
	m.f.sim.add(event{at, func() {
		switch {
		case f.lost:
		case getsThrough:
			f.leaveLink()
			f.acknowledge(err)
		default:
			f.lose()
		}
	}, f})
}

// isLost reports whether the path loses the flight.
func (f *flight) isLost() bool {
	l := f.e.out
	return l.inc.link.loses != nil && l.inc.link.loses(Packet{From: l.from.name.Rank, To: l.to.name.Rank, Bytes: len(f.data), Remote: f.v != send})
}

// arrive does what the flight is for. It reports false if the peer's end is dead, and otherwise the
// error of the peer's side.
func (f *flight) arrive() (taken bool, err *btl.Error) {
	e, m, l := f.e, f.e.m, f.e.out
	f.over = true
	if l.inc.isDead(l.inc.link.other(e.end)) {
		m.Stale++
		m.f.tracef("stale %s %d>%d epoch %d %v", m.Attrs().Name, m.port.name.Rank, e.Peer(), f.epoch, f.v)
		return false, nil
	}
	m.f.tracef("deliver %s %d>%d epoch %d %v", m.Attrs().Name, m.port.name.Rank, e.Peer(), f.epoch, f.v)
	if f.v != send {
		f.readPut()
		return true, e.touch(f.v, f.key, f.offset, f.data)
	}
	a := arrival{epoch: f.epoch, tag: f.tag, frag: f.data}
	if e.wire() != nil && f.isAckedLater() {
		a.f = f
	}
	l.queue = append(l.queue, a)
	l.to.flag(l.fromPlace)
	l.to.wake()
	return true, nil
}

// readPut reads the bytes of a Put as a device does: while the operation is in flight, from the
// memory that it was posted with.
func (f *flight) readPut() {
	if f.v == put && f.op != nil {
		copy(f.data, f.op.Payload)
	}
}

// lose ends a flight without an acknowledgement.
func (f *flight) lose() {
	if !f.over {
		f.e.m.f.tracef("lost %s %d>%d epoch %d %v", f.e.m.Attrs().Name, f.e.m.port.name.Rank, f.e.Peer(), f.epoch, f.v)
	}
	f.over, f.lost = true, true
	f.leaveLink()
	if f.op != nil {
		f.e.failAfterRetries(f.op, f.e.noAnswer())
	}
}

func (f *flight) leaveLink() {
	l := f.e.inc.link
	l.flights = without(l.flights, f)
}

// acknowledge reports a flight's end to the sender.
func (f *flight) acknowledge(err *btl.Error) {
	e, m := f.e, f.e.m
	if f.op == nil {
		return
	}
	if err == nil && f.v == get {
		copy(f.op.Payload, f.data)
	}
	if err != nil {
		op := f.op
		f.forget()
		e.Pending.Remove(op)
		e.reject(op, err)
	} else {
		m.landed = append(m.landed, f)
		m.Unsettled = true
	}
	m.port.wake()
}

// settleLanded completes acknowledged operations.
func (m *module) settleLanded() int {
	n := 0
	for len(m.landed) > 0 {
		f := m.landed[0]
		m.landed = slices.Delete(m.landed, 0, 1)
		if f.e.State() != btl.Up { // the tear-down completes it
			continue
		}
		op := f.op
		f.e.Pending.Remove(op)
		f.forget()
		m.f.tracef("complete %s %d>%d epoch %d", m.Attrs().Name, m.port.name.Rank, f.e.Peer(), f.e.Epoch())
		op.Done(op, nil)
		n++
	}
	return n
}

// forget detaches the flight from its operation.
func (f *flight) forget() {
	f.op = nil
	f.e.flights = without(f.e.flights, f)
}

// without removes x from list.
func without[T comparable](list []T, x T) []T {
	return slices.DeleteFunc(list, func(other T) bool { return other == x })
}

// pollVirtual hands up the fragments delivered on a lane.
func (m *module) pollVirtual(l *lane, budget int) int {
	n := 0
	for n < budget && len(l.queue) > 0 {
		a := l.queue[0]
		l.queue = slices.Delete(l.queue, 0, 1)
		m.arrived(l, a.epoch, a.tag, a.frag)
		if a.f != nil {
			a.f.taken()
		}
		n++
	}
	return n
}
