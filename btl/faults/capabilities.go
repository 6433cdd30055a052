package faults

import (
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

// The decorators have the methods of the optional interfaces whether or not the inner module and
// endpoint have them: btl.Attrs says which calls are permitted. It does not say whether a module
// allocates memory, so a decorator is a btl.Allocator only if the inner module is one.

var (
	_ btl.Registrar  = (*module)(nil)
	_ progress.Idler = (*module)(nil)

	_ btl.Inliner         = (*endpoint)(nil)
	_ btl.Putter          = (*endpoint)(nil)
	_ btl.Getter          = (*endpoint)(nil)
	_ btl.DeliveryCounter = (*endpoint)(nil)
)

// allocating is the decorator of a module that allocates memory.
type allocating struct {
	*module
	btl.Allocator
}

// Register implements btl.Registrar.
func (m *module) Register(mem []byte, access btl.Access) (btl.Region, error) {
	return m.inner.(btl.Registrar).Register(mem, access)
}

// Arm implements progress.Idler. Peers cannot wake the rank if the inner module is no Idler.
func (m *module) Arm() bool {
	inner, idles := m.inner.(progress.Idler)
	return idles && inner.Arm() && !m.isBusy()
}

// Disarm implements progress.Idler.
func (m *module) Disarm() {
	if inner, idles := m.inner.(progress.Idler); idles {
		inner.Disarm()
	}
}

// SendInline implements btl.Inliner. It does not take a fragment that a fault would strike. The
// caller then posts the fragment as an operation, and the fault strikes that.
func (e *endpoint) SendInline(tag btl.Tag, hdr, payload []byte) bool {
	inner := e.inner.(btl.Inliner)
	if e.isPlain() {
		return inner.SendInline(tag, hdr, payload)
	}
	if e.deferred != nil || e.m.rules.isDue(e.Path().Peer) || !inner.SendInline(tag, hdr, payload) {
		return false
	}
	e.m.rules.strike(e.Path().Peer, true) // counts it; none is due
	return true
}

// Put implements btl.Putter.
func (e *endpoint) Put(op *btl.Op) error { return e.postRemote(op, e.inner.(btl.Putter).Put) }

// Get implements btl.Getter.
func (e *endpoint) Get(op *btl.Op) error { return e.postRemote(op, e.inner.(btl.Getter).Get) }

func (e *endpoint) postRemote(op *btl.Op, post func(op *btl.Op) error) error {
	if e.isPlain() {
		return post(op)
	}
	return e.post(op, false, post)
}

// DeliveryCounters implements btl.DeliveryCounter. It returns zeros if the endpoint does not count.
func (e *endpoint) DeliveryCounters() (delivered, taken uint32) {
	if inner, counts := e.inner.(btl.DeliveryCounter); counts {
		return inner.DeliveryCounters()
	}
	return 0, 0
}
