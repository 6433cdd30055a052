package faults

import (
	"errors"
	"slices"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

// Config of a decorator. Only Events is needed.
type Config struct {
	// Events is the layer above.
	Events btl.Events
	// DeadlineNanos is how long an operation struck by FaultSilence may take before its endpoint
	// fails with ClassTimeout, by Clock. 0: it stays silent until something else fails the
	// endpoint.
	DeadlineNanos int64
	Clock         progress.Clock
}

// Wrap decorates the module that open makes. open must give its argument to the module as the
// btl.Events to report to. The result is a btl.Injector.
func Wrap(cfg Config, open func(events btl.Events) (btl.Module, error)) (btl.Module, error) {
	d := NewDecorator(cfg)
	inner, err := open(d)
	if err != nil {
		return nil, err
	}
	return d.Wrap(inner), nil
}

// A Decorator is for callers that make the module and its Events in different places: the module
// reports to the Decorator, which gets the module later.
type Decorator struct{ *module }

// NewDecorator makes a Decorator.
func NewDecorator(cfg Config) Decorator {
	return Decorator{&module{cfg: cfg, endpoints: map[btl.Path]*endpoint{}}}
}

// Wrap returns the decorated module.
func (d Decorator) Wrap(inner btl.Module) btl.Module {
	d.inner, d.outer = inner, d.module
	if allocator, allocates := inner.(btl.Allocator); allocates {
		d.outer = allocating{d.module, allocator}
	}
	return d.outer
}

// module is the decorator of a module.
type module struct {
	cfg   Config
	inner btl.Module
	outer btl.Module // what events name: the module itself, or an allocating one

	rules     rules
	fired     int
	endpoints map[btl.Path]*endpoint // the newest of each path
	order     []*endpoint            // those of endpoints that are not Drained, oldest first
	stale     []staleFragment
	closed    bool
}

var (
	_ btl.Events   = (*module)(nil)
	_ btl.Injector = (*module)(nil)
)

// staleFragment is a copy of a fragment, to send in the next incarnation.
type staleFragment struct {
	path  btl.Path
	epoch uint32
	tag   btl.Tag
	frag  []byte
}

// Inject and Fired implement btl.Injector.
func (m *module) Inject(f btl.Fault) { m.rules.add(f) }
func (m *module) Fired() int         { return m.fired }

// Attrs and Address implement btl.Module.
func (m *module) Attrs() *btl.Attrs { return m.inner.Attrs() }
func (m *module) Address() []byte   { return m.inner.Address() }

// Connect implements btl.Module.
func (m *module) Connect(to btl.Path, address []byte) (btl.Endpoint, error) {
	old := m.endpoints[to]
	if old != nil && old.inner.State() == btl.Drained && !old.drained {
		return old, nil // its operations are still to be called back
	}
	inner, err := m.inner.Connect(to, address)
	if err != nil {
		return nil, err
	}
	if old != nil && old.inner == inner {
		return old, nil
	}
	e := &endpoint{Endpoint: inner, inner: inner, m: m, struck: map[*btl.Op]*struck{}}
	m.endpoints[to] = e
	m.order = append(m.order, e)
	return e, nil
}

// Progress implements btl.Module.
func (m *module) Progress() int {
	n := m.inner.Progress()
	if m.closed {
		return n
	}
	for _, e := range slices.Clone(m.order) {
		n += e.settle()
	}
	m.sendStale()
	return n
}

// sendStale sends the copies whose peers have a newer incarnation.
func (m *module) sendStale() {
	m.stale = slices.DeleteFunc(m.stale, func(s staleFragment) bool {
		e := m.endpoints[s.path]
		if e.Epoch() <= s.epoch || e.State() != btl.Up {
			return false
		}
		sender, ok := e.inner.(btl.StaleSender)
		if !ok || !sender.SendStale(s.epoch, s.tag, s.frag) {
			return false
		}
		m.fired++
		return true
	})
}

// Fail implements btl.Module.
func (m *module) Fail(cause error) { m.inner.Fail(cause) }

// Close implements btl.Module.
func (m *module) Close() error {
	m.closed = true
	err := m.inner.Close()
	for _, e := range m.order {
		if e.cause == nil {
			e.cause = m.newError(e, btl.ClassClosed, btl.SideLocal, "", btl.ErrClosed)
		}
		e.drain()
	}
	m.order, m.stale = nil, nil
	return err
}

// Arrived implements btl.Events.
func (m *module) Arrived(_ btl.Module, peer int, tag btl.Tag, frag []byte) {
	m.cfg.Events.Arrived(m.outer, peer, tag, frag)
}

// Failed implements btl.Events.
func (m *module) Failed(_ btl.Module, to btl.Path, err *btl.Error) {
	for _, e := range m.order {
		if e.cause == nil && (to == btl.WholeModule || to == e.Path()) {
			e.cause = err
		}
	}
	m.cfg.Events.Failed(m.outer, to, err)
}

// Drained implements btl.Events.
func (m *module) Drained(_ btl.Module, to btl.Path) {
	for _, e := range slices.Clone(m.order) {
		if (to == btl.WholeModule || to == e.Path()) && e.inner.State() == btl.Drained {
			e.drain()
			m.order = slices.DeleteFunc(m.order, func(other *endpoint) bool { return other == e })
		}
	}
	m.cfg.Events.Drained(m.outer, to)
}

// isBusy reports whether the decorator counts progress calls, or has something for the next one.
func (m *module) isBusy() bool {
	return slices.ContainsFunc(m.order, (*endpoint).isBusy)
}

func (m *module) newError(e *endpoint, class btl.Class, side btl.Side, native string, err error) *btl.Error {
	return &btl.Error{Rail: m.Attrs().Name, Peer: e.Path().Peer, Class: class, Side: side, Native: native, Err: err}
}

// injected is the error of an operation that a fault struck.
func (m *module) injected(e *endpoint, kind btl.FaultKind) *btl.Error {
	return m.newError(e, btl.ClassPath, btl.SideBoth, kind.String(), btl.ErrInjected)
}

var errSilence = errors.New("no completion before the deadline")

// Clear disarms all faults.
func (m *module) Clear() { m.rules = nil }
