package loop

import (
	"slices"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/faults"
)

// injector decides which operations of a module go wrong.
type injector struct {
	faults faults.Rules
	fired  int
}

// Inject implements btl.Injector.
//
// FaultStale strikes a Send or a Put: it goes through, and a copy of it turns up again
// once the endpoint is Drained and the next incarnation has begun. It counts as fired
// then.
func (m *module) Inject(f btl.Fault) {
	m.injector.faults.Add(f)
}

// Fired implements btl.Injector.
func (m *module) Fired() int { return m.injector.fired }

// strike returns the fault that the next operation to peer meets, if any, and counts it.
func (in *injector) strike(peer int, v verb) (hit btl.Fault, struck bool) {
	hit, struck = in.faults.Strike(peer, v != get)
	if struck && hit.Kind != btl.FaultStale {
		in.fired++
	}
	return hit, struck
}

// passes counts a fragment that no fault strikes, or reports that one would.
func (in *injector) passes(peer int) bool { return in.faults.Passes(peer) }

func (m *module) injected(peer int, k btl.FaultKind) *btl.Error {
	return m.errorf(peer, btl.ClassPath, btl.SideBoth, k.String(), btl.ErrInjected)
}

// lateOp is an operation whose completion is held back.
type lateOp = faults.Late[*endpoint]

func (m *module) delay(e *endpoint, op *btl.Op, turns int) {
	m.late = append(m.late, lateOp{Endpoint: e, Op: op, Turns: turns})
	m.unsettled = true
}

func (m *module) settleLate() int {
	return faults.Settle(&m.late, func(e *endpoint, op *btl.Op) {
		e.held.Remove(op)
		e.done(op, nil)
	})
}

// ghost is a copy of an operation that is to turn up after its time.
type ghost struct {
	e    *endpoint // of the incarnation that it is of
	v    verb
	tag  btl.Tag
	frag []byte
}

func (m *module) remember(e *endpoint, v verb, op *btl.Op) {
	g := ghost{e: e, v: v, tag: op.Tag}
	if v == send {
		g.frag = append(g.frag, op.Header()...)
	}
	g.frag = append(g.frag, op.Payload...)
	m.ghosts = append(m.ghosts, g)
	m.unsettled = true
}

// haunt lets the ghosts of ended incarnations turn up that can.
func (m *module) haunt() {
	m.ghosts = slices.DeleteFunc(m.ghosts, func(g ghost) bool {
		if g.e.state != btl.Drained || !m.appear(&g) {
			return false
		}
		m.injector.fired++
		return true
	})
}

// appear sends a ghost with the epoch that it had. It reports whether it could.
func (m *module) appear(g *ghost) bool {
	if g.v == put {
		// It is refused at the gate of the incarnation, once the peer's end is dead.
		gate := &g.e.inc.gate[g.e.inc.link.other(g.e.end)]
		if !gate.closed() {
			return false
		}
		if gate.enter() {
			gate.leave()
		}
		m.f.stale.Add(1)
		return true
	}
	e := m.peer(g.e.peer).ep
	if e == g.e || e.state != btl.Up || e.out == nil {
		return false
	}
	if m.f.sim != nil {
		return e.launchGhost(g)
	}
	return e.out.publish(&m.bufs, g.e.epoch, g.tag, g.frag, nil) == published
}
