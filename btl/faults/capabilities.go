package faults

import (
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

// A decorator implements an optional interface exactly if what it decorates does. Go has no type
// that depends on a value, so there is a type for each combination.

type idler struct{ m *module }

// Arm implements progress.Idler.
func (i idler) Arm() bool {
	armed := i.m.inner.(progress.Idler).Arm()
	return armed && !i.m.isBusy()
}

// Disarm implements progress.Idler.
func (i idler) Disarm() { i.m.inner.(progress.Idler).Disarm() }

func (m *module) withCapabilities() btl.Module {
	registrar, registers := m.inner.(btl.Registrar)
	allocator, allocates := m.inner.(btl.Allocator)
	_, idles := m.inner.(progress.Idler)
	type (
		r = btl.Registrar
		a = btl.Allocator
		i = progress.Idler
	)
	idle := idler{m}
	switch [...]bool{registers, allocates, idles} {
	case [...]bool{true, false, false}:
		return struct {
			*module
			r
		}{m, registrar}
	case [...]bool{false, true, false}:
		return struct {
			*module
			a
		}{m, allocator}
	case [...]bool{false, false, true}:
		return struct {
			*module
			i
		}{m, idle}
	case [...]bool{true, true, false}:
		return struct {
			*module
			r
			a
		}{m, registrar, allocator}
	case [...]bool{true, false, true}:
		return struct {
			*module
			r
			i
		}{m, registrar, idle}
	case [...]bool{false, true, true}:
		return struct {
			*module
			a
			i
		}{m, allocator, idle}
	case [...]bool{true, true, true}:
		return struct {
			*module
			r
			a
			i
		}{m, registrar, allocator, idle}
	}
	return m
}

type inliner struct{ e *endpoint }

// SendInline implements btl.Inliner. A fragment that a fault would strike is not taken: the caller
// posts it as an operation then, which the fault strikes.
func (i inliner) SendInline(tag btl.Tag, hdr, payload []byte) bool {
	e := i.e
	inner := e.inner.(btl.Inliner)
	if e.isPlain() {
		return inner.SendInline(tag, hdr, payload)
	}
	if e.deferred != nil || e.m.rules.isDue(e.Peer()) || !inner.SendInline(tag, hdr, payload) {
		return false
	}
	e.m.rules.strike(e.Peer(), true) // counts it; none is due
	return true
}

type putter struct{ e *endpoint }

// Put implements btl.Putter.
func (p putter) Put(op *btl.Op) error {
	inner := p.e.inner.(btl.Putter)
	if p.e.isPlain() {
		return inner.Put(op)
	}
	return p.e.post(op, false, inner.Put)
}

type getter struct{ e *endpoint }

// Get implements btl.Getter.
func (g getter) Get(op *btl.Op) error {
	inner := g.e.inner.(btl.Getter)
	if g.e.isPlain() {
		return inner.Get(op)
	}
	return g.e.post(op, false, inner.Get)
}

func (e *endpoint) withCapabilities() btl.Endpoint {
	_, inlines := e.inner.(btl.Inliner)
	_, puts := e.inner.(btl.Putter)
	_, gets := e.inner.(btl.Getter)
	counter, counts := e.inner.(btl.DeliveryCounter)
	if counts {
		return e.withCounters(counter, inlines, puts, gets)
	}
	type (
		i = btl.Inliner
		p = btl.Putter
		g = btl.Getter
	)
	in, put, get := inliner{e}, putter{e}, getter{e}
	switch [...]bool{inlines, puts, gets} {
	case [...]bool{true, false, false}:
		return struct {
			*endpoint
			i
		}{e, in}
	case [...]bool{false, true, false}:
		return struct {
			*endpoint
			p
		}{e, put}
	case [...]bool{false, false, true}:
		return struct {
			*endpoint
			g
		}{e, get}
	case [...]bool{true, true, false}:
		return struct {
			*endpoint
			i
			p
		}{e, in, put}
	case [...]bool{true, false, true}:
		return struct {
			*endpoint
			i
			g
		}{e, in, get}
	case [...]bool{false, true, true}:
		return struct {
			*endpoint
			p
			g
		}{e, put, get}
	case [...]bool{true, true, true}:
		return struct {
			*endpoint
			i
			p
			g
		}{e, in, put, get}
	}
	return e
}

// withCounters is withCapabilities for an endpoint that is a btl.DeliveryCounter.
func (e *endpoint) withCounters(counter btl.DeliveryCounter, inlines, puts, gets bool) btl.Endpoint {
	type (
		i = btl.Inliner
		p = btl.Putter
		g = btl.Getter
		t = btl.DeliveryCounter
	)
	in, put, get := inliner{e}, putter{e}, getter{e}
	switch [...]bool{inlines, puts, gets} {
	case [...]bool{true, false, false}:
		return struct {
			*endpoint
			t
			i
		}{e, counter, in}
	case [...]bool{false, true, false}:
		return struct {
			*endpoint
			t
			p
		}{e, counter, put}
	case [...]bool{false, false, true}:
		return struct {
			*endpoint
			t
			g
		}{e, counter, get}
	case [...]bool{true, true, false}:
		return struct {
			*endpoint
			t
			i
			p
		}{e, counter, in, put}
	case [...]bool{true, false, true}:
		return struct {
			*endpoint
			t
			i
			g
		}{e, counter, in, get}
	case [...]bool{false, true, true}:
		return struct {
			*endpoint
			t
			p
			g
		}{e, counter, put, get}
	case [...]bool{true, true, true}:
		return struct {
			*endpoint
			t
			i
			p
			g
		}{e, counter, in, put, get}
	}
	return struct {
		*endpoint
		t
	}{e, counter}
}
