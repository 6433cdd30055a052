package tcp

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/faults"
)

var _ btl.Injector = (*module)(nil)

// injector is the faults that tests have asked for.
type injector struct {
	faults faults.Rules
	fired  int
	cut    map[int]bool // peers to whom there is no way
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
	m.updateAll()
}

// Fired implements btl.Injector.
func (m *module) Fired() int { return m.injector.fired }

// Break ends the connection to a peer as the network might, so that both ends find out by themselves. It reports whether there is one.
// It is for tests.
func (m *module) Break(rank int) bool {
	if rank < 0 || rank >= len(m.peers) || m.peers[rank] == nil {
		return false
	}
	e := m.peers[rank].ep
	return e != nil && e.phase == phaseReady && unix.Shutdown(e.fd, unix.SHUT_RDWR) == nil
}

// Cut breaks the connection to a peer, and lets none be made, until it is mended. It is for tests.
func (m *module) Cut(rank int, cut bool) {
	if !cut {
		delete(m.injector.cut, rank)
		return
	}
	if m.injector.cut == nil {
		m.injector.cut = map[int]bool{}
	}
	m.injector.cut[rank] = true
	m.Break(rank)
}

// updateAll makes endpoints take the long way while faults are armed, and only then.
func (m *module) updateAll() {
	for _, p := range m.peers {
		if p != nil && p.ep != nil {
			p.ep.update()
		}
	}
}

// injected is the error of an operation that was struck.
func (m *module) injected(peer int, kind btl.FaultKind) *btl.Error {
	return m.errorf(peer, btl.ClassPath, btl.SideBoth, kind.String(), btl.ErrInjected)
}

// What becomes of a struck operation once the peer has acknowledged it, in its Cookie: the kind of fault and one more, and above that
// the turns for which it is held back.
const cookieTurns = 8

// post takes an operation the long way.
func (e *endpoint) post(op *btl.Op) error {
	m := e.m
	if e.doom != nil {
		return btl.ErrResource
	}
	op.Cookie = 0
	hit, struck := m.injector.faults.Strike(e.p.rank, true)
	if len(m.injector.faults) == 0 {
		m.updateAll()
	}
	if !struck {
		e.accept(op, op.Len())
		return nil
	}
	if hit.Kind != btl.FaultStale {
		m.injector.fired++
	}
	switch hit.Kind {
	case btl.FaultRefuse:
		return btl.ErrResource
	case btl.FaultWrong:
		return btl.ErrTooLong
	case btl.FaultErrorLost:
		e.held.Push(op)
		e.condemn(m.injected(e.p.rank, hit.Kind), op)
		return nil
	case btl.FaultSilence:
		e.held.Push(op)
		return nil
	case btl.FaultErrorDelivered, btl.FaultLate:
		op.Cookie = uint64(hit.Kind) + 1 | uint64(hit.Count)<<cookieTurns
	case btl.FaultStale:
		e.p.ghosts = append(e.p.ghosts, ghost{e.epoch, op.Tag, slices.Concat(op.Header(), op.Payload)})
	}
	e.accept(op, op.Len())
	return nil
}

// struck does what a fault wants with an operation that the peer has acknowledged.
func (e *endpoint) struck(op *btl.Op) {
	kind, turns := btl.FaultKind(op.Cookie&(1<<cookieTurns-1)-1), int(op.Cookie>>cookieTurns)
	e.held.Push(op)
	if kind == btl.FaultLate {
		e.m.late = append(e.m.late, faults.Late[*endpoint]{Endpoint: e, Op: op, Turns: turns})
		e.m.unsettled = true
		return
	}
	e.condemn(e.m.injected(e.p.rank, kind), op)
}

// haunt sends, first of all, what is left of incarnations before this one.
func (p *peer) haunt(e *endpoint) {
	var left []ghost
	for _, g := range p.ghosts {
		if g.epoch >= e.epoch {
			left = append(left, g)
			continue
		}
		var b [headBytes]byte
		h := head{length: uint32(len(g.bytes)), epoch: g.epoch, kind: frameFrag, tag: g.tag}
		h.put(b[:])
		e.rest = append(append(e.rest, b[:]...), g.bytes...)
		e.m.injector.fired++
	}
	p.ghosts = left
}
