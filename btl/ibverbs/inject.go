package ibverbs

import (
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/faults"
)

var _ btl.Injector = (*module)(nil)

// injector is the faults that tests have asked for. Those of the device itself are the simulated device's.
type injector struct {
	faults faults.Rules
	fired  int
}

// ghost is a fragment of an incarnation that is over, to be sent in the next one.
type ghost struct {
	epoch uint32
	tag   btl.Tag
	bytes []byte
}

// Inject implements btl.Injector.
func (m *module) Inject(f btl.Fault) {
	m.injector.faults.Add(f)
	for _, e := range m.eps {
		if e != nil {
			e.update()
		}
	}
}

// Fired implements btl.Injector.
func (m *module) Fired() int { return m.injector.fired }

// injected is the error of an operation that was struck.
func (m *module) injected(peer int) *btl.Error {
	return m.errorf(peer, btl.ClassPath, btl.SideNone, "injected", btl.ErrInjected)
}

// verb is what an operation does.
type verb uint8

const (
	doSend verb = iota
	doPut
	doGet
)

// do posts an operation, to which nothing stands in the way.
func (e *endpoint) do(v verb, op *btl.Op, entry sqEntry) error {
	switch v {
	case doSend:
		return e.send(op, entry)
	case doPut:
		return e.put(op, entry)
	}
	return e.get(op, entry)
}

// postSlowly posts where something stands against the short way.
func (e *endpoint) postSlowly(op *btl.Op, v verb) error {
	m := e.m
	arrives := v != doGet
	if e.phase != phaseReady || e.doom != nil || !m.portUp || e.early.Len() > 0 || e.full() || arrives && e.credits == 0 {
		return btl.ErrResource
	}
	if v == doSend && headBytes+op.Len() > e.mostInline && e.share.spent(m.h) {
		return btl.ErrResource
	}
	entry := sqEntry{op: op, bounce: noBuffer}
	if len(m.injector.faults) == 0 {
		return e.do(v, op, entry)
	}
	hit, struck := m.injector.faults.Strike(e.p.rank, arrives)
	if len(m.injector.faults) == 0 {
		for _, other := range m.eps {
			if other != nil {
				other.update()
			}
		}
	}
	if !struck {
		return e.do(v, op, entry)
	}
	switch hit.Kind {
	case btl.FaultRefuse:
		m.injector.fired++
		return btl.ErrResource
	case btl.FaultWrong:
		m.injector.fired++
		if v == doSend {
			return btl.ErrTooLong
		}
		e.endAlone(op, btl.ErrInjected)
		return nil
	case btl.FaultErrorLost:
		m.injector.fired++
		e.held.Push(op)
		e.condemn(m.injected(e.p.rank), op)
		return nil
	case btl.FaultSilence:
		m.injector.fired++
		e.muted++
		e.held.Push(op)
		return nil
	case btl.FaultErrorDelivered, btl.FaultLate:
		entry.struck, entry.fault, entry.turns = true, hit.Kind, hit.Count
	case btl.FaultStale:
		e.p.ghosts = append(e.p.ghosts, ghost{e.epoch, op.Tag, append(append([]byte(nil), op.Header()...), op.Payload...)})
		return e.do(v, op, entry)
	}
	err := e.do(v, op, entry)
	if err == nil {
		m.injector.fired++
	}
	return err
}

// haunt sends what is left of incarnations before this one.
func (e *endpoint) haunt() {
	m := e.m
	var left []ghost
	for _, g := range e.p.ghosts {
		if g.epoch >= e.epoch || e.credits == 0 || e.full() {
			left = append(left, g)
			continue
		}
		n := headBytes + len(g.bytes)
		entry := sqEntry{bounce: noBuffer}
		buf := e.staging(&entry, n)
		if buf == nil {
			left = append(left, g)
			continue
		}
		e.writeHead(buf, wireFrag, g.tag, g.epoch)
		copy(buf[headBytes:], g.bytes)
		e.name(&m.sendWR[0], &entry, n)
		if e.post(&m.sendWR[0], entry) == nil {
			e.credits--
			m.injector.fired++
		}
	}
	e.p.ghosts = left
}
