package pml

import (
	"errors"

	"github.com/mpigo/mpigo/btl"
)

// ledger counts what is registered, by way of modules and endpoints that tell it.
type ledger struct {
	registered int
	live       int
	twice      int // regions released a second time
	// refuse, if set, says that memory cannot be registered; spoil, that a read or write is to fail.
	refuse, spoil func() bool
}

// countedEvents tells a PML of counted modules, which are those that it knows.
type countedEvents struct {
	p *PML
	l *ledger
}

func (e countedEvents) Arrived(m btl.Module, peer int, tag btl.Tag, frag []byte) {
	e.p.Arrived(countedModule{m, e.l}, peer, tag, frag)
}

func (e countedEvents) Failed(m btl.Module, peer int, err *btl.Error) {
	e.p.Failed(countedModule{m, e.l}, peer, err)
}

func (e countedEvents) Drained(m btl.Module, peer int) {
	e.p.Drained(countedModule{m, e.l}, peer)
}

// countedModule is a module whose regions are counted.
type countedModule struct {
	btl.Module
	l *ledger
}

// countedRegion is a region of one.
type countedRegion struct {
	btl.Region
	l        *ledger
	released bool
}

func (m countedModule) Register(mem []byte, access btl.Access) (btl.Region, error) {
	if m.l.refuse != nil && m.l.refuse() {
		return nil, btl.ErrMemory
	}
	region, err := m.Module.(btl.Registrar).Register(mem, access)
	if err != nil {
		return nil, err
	}
	m.l.registered++
	m.l.live++
	return &countedRegion{Region: region, l: m.l}, nil
}

func (r *countedRegion) Release() error {
	if r.released {
		r.l.twice++
		return errors.New("released twice")
	}
	r.released = true
	r.l.live--
	return r.Region.Release()
}

// countedEndpoint is an endpoint that knows such regions.
type countedEndpoint struct {
	btl.Endpoint
	l *ledger
}

func (e countedEndpoint) Get(op *btl.Op) error { return e.Endpoint.(btl.Getter).Get(e.plain(op)) }
func (e countedEndpoint) Put(op *btl.Op) error { return e.Endpoint.(btl.Putter).Put(e.plain(op)) }

func (e countedEndpoint) SendInline(tag btl.Tag, hdr, payload []byte) bool {
	return e.Endpoint.(btl.Inliner).SendInline(tag, hdr, payload)
}

// plain is op with the region that its module has made.
func (e countedEndpoint) plain(op *btl.Op) *btl.Op {
	if e.l.spoil != nil && e.l.spoil() {
		op.Remote = btl.Key{}
	}
	if r, ok := op.Local.(*countedRegion); ok {
		op.Local = r.Region
	}
	return op
}

// lent is memory that was added.
type lent struct {
	p     *PML
	added [][]byte
}

// bytes is n bytes somewhere in new memory that is added.
func (l *lent) bytes(n, before int) []byte {
	mem := make([]byte, before+n+8)
	l.p.AddMemory(mem)
	l.added = append(l.added, mem)
	return mem[before : before+n : before+n]
}

// takeBack removes all of it. No request uses it.
func (l *lent) takeBack() {
	for _, mem := range l.added {
		l.p.RemoveMemory(mem)
	}
	l.added = nil
}
