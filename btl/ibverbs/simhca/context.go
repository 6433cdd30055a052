package simhca

import (
	"slices"
	"syscall"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// context is an open device. It counts the objects made from it and holds its events.
type context struct {
	f      *Fabric
	hca    *HCA
	gone   bool // after DEVICE_FATAL
	closed bool

	pds, cqs, channels int

	events []verbs.AsyncEvent
	notify func()
}

// goneError returns the error of calls on destroyed objects and failed devices.
func goneError(call string) error { return verbs.NewCallError(call, syscall.EIO, "") }

func invalid(call, note string) error {
	return verbs.NewCallError(call, syscall.EINVAL, note)
}

func busy(call string) error { return verbs.NewCallError(call, syscall.EBUSY, "") }

func noMemory(call, note string) error { return verbs.NewCallError(call, syscall.ENOMEM, note) }

func (c *context) dead() bool { return c.gone || c.closed }

func (c *context) Name() string { return c.hca.cfg.Name }

func (c *context) Query() (verbs.DeviceAttr, error) {
	defer c.f.enter().leave()
	if c.dead() {
		return verbs.DeviceAttr{}, goneError("ibv_query_device")
	}
	return verbs.DeviceAttr{
		Ports: c.hca.cfg.Ports, MaxQP: c.hca.cfg.MaxQP, MaxQPWR: c.hca.cfg.MaxQPWR, MaxSGE: verbs.MaxSGE,
		MaxCQ: 65536, MaxCQE: c.hca.cfg.MaxCQE, MaxMR: maxRegions, MaxPD: 1024, MaxSRQ: 1024, MaxSRQWR: maxSRQWR,
		MaxQPRdAtom: c.hca.cfg.MaxReads, MaxQPInitRdAtom: c.hca.cfg.MaxReads, MaxMRBytes: c.hca.cfg.MaxMRBytes, Atomics: true,
		VendorID: c.hca.cfg.VendorID, CurState: !c.hca.cfg.NoCurState, PortEvents: !c.hca.cfg.NoPortEvents,
	}, nil
}

// port returns a port, unless the context is dead.
func (c *context) port(call string, port int) (*port, error) {
	if c.dead() {
		return nil, goneError(call)
	}
	p := c.hca.port(port)
	if p == nil {
		return nil, invalid(call, "no such port")
	}
	return p, nil
}

func (c *context) QueryPort(port int) (verbs.PortAttr, error) {
	defer c.f.enter().leave()
	p, err := c.port("ibv_query_port", port)
	if err != nil {
		return verbs.PortAttr{}, err
	}
	return p.attr(), nil
}

func (c *context) GIDs(port int) ([]verbs.GIDEntry, error) {
	defer c.f.enter().leave()
	p, err := c.port("ibv_query_gid", port)
	if err != nil {
		return nil, err
	}
	var used []verbs.GIDEntry
	for i, g := range p.gids {
		if !g.IsZero() {
			used = append(used, verbs.GIDEntry{Index: i, GID: g, Type: p.gidType()})
		}
	}
	return used, nil
}

func (c *context) PKey(port, index int) (uint16, error) {
	defer c.f.enter().leave()
	p, err := c.port("ibv_query_pkey", port)
	if err != nil {
		return 0, err
	}
	if index < 0 || index >= len(p.pkeys) {
		return 0, invalid("ibv_query_pkey", "no such entry")
	}
	return p.pkeys[index], nil
}

func (c *context) AllocPD() (verbs.PD, error) {
	defer c.f.enter().leave()
	if c.dead() {
		return nil, goneError("ibv_alloc_pd")
	}
	c.pds++
	return &domain{c: c, lookups: map[*lookup]struct{}{}}, nil
}

// push queues an event for NextEvent.
func (c *context) push(ev verbs.AsyncEvent) {
	c.events = append(c.events, ev)
	c.f.deferCall(c.notify)
}

func (c *context) NextEvent() (verbs.AsyncEvent, bool, error) {
	defer c.f.enter().leave()
	if c.closed {
		return verbs.AsyncEvent{}, false, goneError("ibv_get_async_event")
	}
	// A failed device still delivers DEVICE_FATAL.
	if len(c.events) == 0 {
		return verbs.AsyncEvent{}, false, nil
	}
	ev := c.events[0]
	c.events = slices.Delete(c.events, 0, 1)
	if n := unacked(ev); n != nil {
		*n++
	}
	return ev, true, nil
}

// unacked returns the counter of taken but unacknowledged events of the event's object, or nil for
// events of ports and devices.
func unacked(ev verbs.AsyncEvent) *int {
	switch {
	case ev.QP != nil:
		return &ev.QP.(*queuePair).unacked
	case ev.CQ != nil:
		return &ev.CQ.(*completionQueue).unackedAsync
	case ev.SRQ != nil:
		return &ev.SRQ.(*sharedQueue).unacked
	}
	return nil
}

func (c *context) AckEvent(ev verbs.AsyncEvent) {
	defer c.f.enter().leave()
	if n := unacked(ev); n != nil && *n > 0 {
		*n--
	}
}

// dropEvents removes the queued events of a destroyed object.
func (c *context) dropEvents(of func(verbs.AsyncEvent) bool) {
	c.events = slices.DeleteFunc(c.events, of)
}

func (c *context) Notify(fn func()) {
	defer c.f.enter().leave()
	c.notify = fn
	if len(c.events) > 0 {
		c.f.deferCall(fn)
	}
}

func (c *context) Close() error {
	defer c.f.enter().leave()
	if c.closed {
		return goneError("ibv_close_device")
	}
	if c.pds+c.cqs+c.channels > 0 {
		return busy("ibv_close_device")
	}
	c.closed, c.notify, c.events = true, nil, nil
	c.hca.contexts = slices.DeleteFunc(c.hca.contexts, func(o *context) bool { return o == c })
	return nil
}
