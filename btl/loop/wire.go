package loop

import (
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/btl"
)

// Wire is one direction of a connection over a simulated network (SetWires). The virtual fabric
// knows nothing else about that network. It has its own bandwidth, latency and losses, and repairs
// losses itself.
type Wire interface {
	// Write carries bytes to the other end, after all earlier ones. It calls arrive when all of
	// them are there.
	Write(bytes int, arrive func())
	// Close drops the writes that were not sent completely, and returns their number. Earlier
	// writes may still arrive.
	Close() (dropped int)
}

// Wires are the networks below the rails of a virtual fabric.
type Wires struct {
	// Dial makes a connection between two ports for a new incarnation of their link: from a to b,
	// and from b to a. Without wires, the link has the latency and bandwidth of its rail.
	Dial func(a, b Port) (to, fro Wire)
	// WindowBytes bounds the bytes of an endpoint's unacknowledged operations, including those that
	// still wait here for the network. An operation that does not fit is refused with
	// btl.ErrResource. 0: only Config.Slots bounds them.
	WindowBytes int
	// SilenceNanos is how long an endpoint with unacknowledged operations waits, while nothing
	// arrives at either end, before it fails. 0 disables that.
	SilenceNanos int64
	// AcksTaken: a fragment is acknowledged when the peer's rank has taken it, as over TCP.
	// Otherwise it is acknowledged when it has arrived, as by a device.
	AcksTaken bool
}

const (
	// frameBytes is the length of the header that a transport adds to a fragment, to a remote
	// write, and to the reply to a remote read. A read request has this length, and an
	// acknowledgement ackBytes.
	frameBytes = 48
	ackBytes   = 16
)

// SetWires makes all incarnations that begin from now on use wires. Latency, jitter, bandwidth and
// impairments of a rail do not apply to them; faults do.
func (f *Fabric) SetWires(w Wires) error {
	if f.sim == nil || w.Dial == nil || w.WindowBytes < 0 || w.SilenceNanos < 0 {
		return fmt.Errorf("%w: wires %+v", ErrConfig, w)
	}
	f.wires = &w
	return nil
}

// After has a virtual fabric call run after a time in nanoseconds. Together with Now it
// makes the fabric the clock of a simulated network.
func (f *Fabric) After(nanos int64, run func()) { f.sim.after(max(nanos, 0), run) }

// wired is one direction of an incarnation that has wires.
type wired struct {
	w Wire
	// written are the flights that w carries, or whose results it carries, oldest first.
	written []*flight
	// arrivedAt is the time of the last arrival at the end of w.
	arrivedAt int64
}

// dial makes the wires of an incarnation, if the fabric has any.
func (inc *incarnation) dial() {
	f := inc.link.ports[0].fabric
	if f.wires == nil {
		return
	}
	to, fro := f.wires.Dial(inc.link.ports[0].name, inc.link.ports[1].name)
	if to != nil {
		inc.wires = [2]*wired{{w: to}, {w: fro}}
	}
}

// write makes a wire carry a flight, or its result.
func (x *wired) write(bytes int, f *flight, arrive func()) {
	x.written = append(x.written, f)
	x.w.Write(bytes, func() {
		x.written = x.written[1:]
		x.arrivedAt = f.e.m.f.sim.now
		arrive()
	})
}

// close drops what the wire has not sent. If that includes an acknowledgement, its operation at the
// other end gets no answer.
func (x *wired) close() {
	if x == nil {
		return
	}
	kept := len(x.written) - x.w.Close()
	dropped := x.written[kept:]
	x.written = x.written[:kept]
	for _, f := range dropped {
		if !f.lost {
			f.lose()
		}
	}
}

// wire returns the wire on which the endpoint sends, or nil if it has none.
func (e *endpoint) wire() *wired { return e.inc.wires[e.end] }

// hasRoom reports whether the endpoint takes one more operation.
func (e *endpoint) hasRoom(op *btl.Op) bool {
	f := e.m.f
	if e.Pending.Len() >= f.cfg.Slots {
		return false
	}
	if e.wire() == nil || f.wires.WindowBytes == 0 || e.Pending.Empty() {
		return true
	}
	under := op.Len()
	for _, fl := range e.flights {
		under += len(fl.data)
	}
	return under <= f.wires.WindowBytes
}

// departByWire sends a flight.
func (f *flight) departByWire(x *wired) {
	f.e.expectAnswer()
	bytes := frameBytes
	if f.v != get {
		bytes += len(f.data)
	}
	x.write(bytes, f, func() {
		if !f.over {
			f.deliver()
		}
	})
}

// acknowledgeByWire sends back the result of a flight, and the bytes that it has read.
func (f *flight) acknowledgeByWire(err *btl.Error) {
	bytes := ackBytes
	if f.v == get {
		bytes = frameBytes + len(f.data)
	}
	back := f.e.inc.wires[f.e.inc.link.other(f.e.end)]
	back.write(bytes, f, func() {
		if !f.lost {
			f.leaveLink()
			f.acknowledge(err)
		}
	})
}

// isAckedLater reports whether a flight that has arrived is acknowledged only when the peer's rank
// takes it.
func (f *flight) isAckedLater() bool { return f.v == send && f.e.m.f.wires.AcksTaken }

// taken is called when the peer's rank has taken a flight. It sends nothing if the peer's end has
// died meanwhile.
func (f *flight) taken() {
	l := f.e.inc.link
	switch {
	case f.lost:
	case f.e.inc.isDead(l.other(f.e.end)):
		f.lose()
	default:
		f.acknowledgeByWire(nil)
	}
}

// expectAnswer begins to watch for silence, if the endpoint was idle.
func (e *endpoint) expectAnswer() {
	if len(e.flights) <= 1 {
		e.heardAt = e.m.f.sim.now
	}
	if !e.isWatched && e.m.f.wires.SilenceNanos > 0 {
		e.watchSilence()
	}
}

// watchSilence fails the endpoint if it has unacknowledged operations and nothing has arrived for
// too long. An arrival at either end shows that the network works: a write may have to wait behind
// many others.
func (e *endpoint) watchSilence() {
	s, limit := e.m.f.sim, e.m.f.wires.SilenceNanos
	e.isWatched = true
	s.after(e.heardAt+limit-s.now, func() {
		e.heardAt = max(e.heardAt, e.inc.wires[0].arrivedAt, e.inc.wires[1].arrivedAt)
		if !slices.ContainsFunc(e.flights, func(f *flight) bool { return !f.over }) {
			e.heardAt = s.now // the peer's rank is only busy
		}
		switch {
		case len(e.flights) == 0 || e.State() != btl.Up:
			e.isWatched = false
		case s.now-e.heardAt < limit:
			e.watchSilence()
		default:
			e.isWatched = false
			e.m.DeferFailure(e, e.noAnswer(), e.flights[0].op)
			e.m.port.wake()
		}
	})
}
