package sm

import (
	"slices"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/faults"
)

var _ btl.Injector = (*module)(nil)

// injector decides which operations of a module go wrong.
type injector struct {
	faults faults.Rules
	fired  int
}

// Inject implements btl.Injector.
//
// A fragment that a fault would strike has to come as an operation: SendInline does not
// take it. FaultStale lets its operation through, and a copy of that turns up again once
// the endpoint is Drained and the next incarnation has begun; it counts as fired then.
func (m *module) Inject(f btl.Fault) {
	m.injector.faults.Add(f)
	m.updateAll()
}

// Fired implements btl.Injector.
func (m *module) Fired() int { return m.injector.fired }

// updateAll makes endpoints take the long way while faults are armed, and only then.
func (m *module) updateAll() {
	for _, p := range m.peers {
		if p != nil && p.ep != nil {
			p.ep.update()
		}
	}
}

// strike returns the fault that the next operation to peer meets, if any, and counts it.
// arrives says that it is none that only reads.
func (in *injector) strike(peer int, arrives bool) (hit btl.Fault, struck bool) {
	hit, struck = in.faults.Strike(peer, arrives)
	if struck && hit.Kind != btl.FaultStale {
		in.fired++
	}
	return hit, struck
}

// passes counts a fragment that no fault strikes, or reports that one would.
func (in *injector) passes(peer int) bool { return in.faults.Passes(peer) }

// strike lets a fault strike an operation, which do does; reads says that it is a Get. The error of
// do is btl.ErrResource or, of a Get, a *btl.Error.
func (e *endpoint) strike(hit btl.Fault, op *btl.Op, reads bool, do func(op *btl.Op) error) error {
	m := e.m
	defer m.updateAll() // perhaps it was the last fault
	switch hit.Kind {
	case btl.FaultRefuse:
		return btl.ErrResource
	case btl.FaultWrong:
		if !reads {
			return btl.ErrTooLong
		}
		e.endGet(op, m.errorf(e.p.rank, btl.ClassUsage, btl.SideBoth, hit.Kind.String(), btl.ErrInjected))
		return nil
	case btl.FaultSilence:
		e.held.Push(op)
		return nil
	case btl.FaultErrorLost:
		e.breakAt(op, m.injected(e.p.rank, hit.Kind))
		return nil
	}
	switch err := do(op); {
	case err == btl.ErrResource:
		return err
	case err != nil:
		e.endGet(op, err)
		return nil
	}
	switch hit.Kind {
	case btl.FaultErrorDelivered:
		e.breakAt(op, m.injected(e.p.rank, hit.Kind))
		return nil
	case btl.FaultLate:
		e.held.Push(op)
		m.late = append(m.late, lateOp{Endpoint: e, Op: op, Turns: hit.Count})
		m.unsettled = true
		return nil
	case btl.FaultStale:
		frag := slices.Concat(op.Header(), op.Payload)
		m.ghosts = append(m.ghosts, ghost{e, op.Tag, frag})
	}
	op.Done(op, nil)
	return nil
}

func (m *module) injected(peer int, k btl.FaultKind) *btl.Error {
	return m.errorf(peer, btl.ClassPath, btl.SideBoth, k.String(), btl.ErrInjected)
}

// lateOp is an operation whose completion is held back.
type lateOp = faults.Late[*endpoint]

func (m *module) settleLate() int {
	return faults.Settle(&m.late, func(e *endpoint, op *btl.Op) {
		e.held.Remove(op)
		op.Done(op, nil)
	})
}

// ghost is a copy of a fragment that is to turn up after its time.
type ghost struct {
	e    *endpoint // of the incarnation that it is of
	tag  btl.Tag
	frag []byte
}

// haunt publishes, at the beginning of a session, the ghosts of those before it, with the
// epoch that they had.
func (e *endpoint) haunt() {
	e.m.ghosts = slices.DeleteFunc(e.m.ghosts, func(g ghost) bool {
		if g.e.p != e.p || g.e == e {
			return false
		}
		now := e.out.epoch
		e.out.epoch = uint64(g.e.epoch) << epochShift
		v := e.out.put(g.tag, g.frag, nil)
		e.out.epoch = now
		if v == good {
			e.m.injector.fired++
		}
		return v == good
	})
}
