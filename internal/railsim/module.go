package railsim

import (
	"github.com/mpigo/mpigo/btl"
)

// module stands between a module of a job and its rank, and counts the pieces of long messages.
type module struct {
	btl.Module
	r    *rank
	rail int
}

// Register implements btl.Registrar.
func (m *module) Register(mem []byte, access btl.Access) (btl.Region, error) {
	return m.Module.(btl.Registrar).Register(mem, access)
}

func (m *module) connect(peer int) (btl.Endpoint, error) {
	ep, err := m.Connect(btl.Path{Peer: peer, Module: uint8(m.rail)}, m.r.j.ranks[peer].modules[m.rail].Address())
	if err != nil {
		return nil, err
	}
	return &endpoint{Endpoint: ep, m: m}, nil
}

// Arrived implements btl.Events.
func (m *module) Arrived(_ btl.Module, peer int, tag btl.Tag, frag []byte) {
	m.r.p.Arrived(m, peer, tag, frag)
}

// Failed implements btl.Events.
func (m *module) Failed(_ btl.Module, to btl.Path, err *btl.Error) { m.r.p.Failed(m, to, err) }

// Drained implements btl.Events.
func (m *module) Drained(_ btl.Module, to btl.Path) { m.r.p.Drained(m, to) }

type endpoint struct {
	btl.Endpoint
	m *module
}

// Send implements btl.Endpoint.
func (e *endpoint) Send(op *btl.Op) error {
	if e.m.r.p.FragmentName(op.Tag) != "FRAG" {
		return e.Endpoint.Send(op)
	}
	return e.post(op, e.Endpoint.Send)
}

// Put implements btl.Putter.
func (e *endpoint) Put(op *btl.Op) error { return e.post(op, e.Endpoint.(btl.Putter).Put) }

// Get implements btl.Getter.
func (e *endpoint) Get(op *btl.Op) error { return e.post(op, e.Endpoint.(btl.Getter).Get) }

// post posts a piece and counts it.
func (e *endpoint) post(op *btl.Op, how func(*btl.Op) error) error {
	j := e.m.r.j
	x, n, done := j.rails[e.m.rail], int64(len(op.Payload)), op.Done
	op.Done = func(op *btl.Op, err error) {
		op.Done = done
		if x.under--; x.under == 0 {
			x.idleSince = j.now()
		}
		if err == nil {
			x.delivered += n
		} else {
			x.failed += n
		}
		done(op, err)
	}
	if x.under == 0 && x.idleSince > 0 {
		x.pause = max(x.pause, j.now()-x.idleSince)
	}
	x.under++
	payload := op.Payload
	err := how(op)
	if err != nil {
		op.Done = done
		if x.under--; x.under == 0 && x.idleSince == 0 {
			x.idleSince = j.now()
		}
		return err
	}
	x.carried += n
	x.again += j.again(payload)
	return nil
}
