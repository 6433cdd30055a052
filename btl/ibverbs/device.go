package ibverbs

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

const (
	// groupEntries is the length of a completion queue, unless one endpoint needs more.
	groupEntries = 1 << 14
)

// hca is an open device, and the objects that all connections of a rail share.
type hca struct {
	dev  verbs.Device
	attr verbs.DeviceAttr
	port verbs.PortAttr
	gid  verbs.GIDEntry
	roce bool
	// global: packets of InfiniBand need a global route, because the port or the user requires it.
	global bool
	// pkey is the partition key of all queue pairs, pkeyIndex its index in the port's table. If
	// pkeyErr is not nil, the table does not have it.
	pkey      pkey
	pkeyIndex uint16
	pkeyErr   error
	pd        verbs.PD
	wakes     verbs.CompChannel // of all queues

	// The datagram queue pair (datagram.go).
	ud      verbs.QP
	udCQ    verbs.CQ
	qkey    uint32
	udRecvs *slab
	udSends *slab
	free    []int32 // free buffers of udSends
	// The depths of its queues.
	udSendDepth, udRecvDepth int
	udStarts                 uint32     // number of starts; part of the IDs of its requests
	udPosted                 int        // posted receives
	udRestart                *udRestart // nil while it is in use

	udArmed bool // udCQ's next completion makes an event
	lost    bool // the datagram queue pair broke: it neither sends nor receives any more
	groups  []*group
	share   sharePlan
	shared  *sharedReceives // nil: each queue pair has its own
	// sharedMade counts the shared queues so far.
	sharedMade uint32
	inline     int // the first of inlineSizes that the device has not refused

	regions    map[*region]struct{}
	registered uint32 // regions so far

	bounce     *slab
	scratch    []byte // outside of Go's heap, for inline messages
	bounceFree []int32
}

// group is a completion queue with room for all completions that its endpoints can have in it at a
// time, so that it never overruns.
type group struct {
	cq       verbs.CQ
	room     int // entries that no endpoint has reserved
	reserved int
	broken   bool // by CQ_ERR: it cannot be polled any more
}

// absence says why a port cannot be used now, although it may appear later.
type absence struct{ error }

func (a absence) Unwrap() error { return a.error }

// openHCA opens the device and makes the objects that connections share. With mustBeUp, the error
// is an absence if there is no such device, or its port is down or has no address.
func openHCA(cfg *Config, mustBeUp bool) (*hca, error) {
	var err error
	h := new(hca)
	if h.dev, err = cfg.Provider.Open(cfg.Device); err != nil {
		if mustBeUp && errors.Is(err, verbs.ErrNoDevice) {
			return nil, absence{err}
		}
		return nil, err // the error names the device
	}
	if err := h.setUp(cfg, mustBeUp); err != nil {
		return nil, errors.Join(fmt.Errorf("device %s: %w", cfg.Device, err), h.close())
	}
	return h, nil
}

// setUp makes the objects that connections share. After an error, close destroys those that exist.
func (h *hca) setUp(cfg *Config, mustBeUp bool) (err error) {
	if h.attr, err = h.dev.Query(); err != nil {
		return err
	}
	if cfg.Port > h.attr.Ports {
		return fmt.Errorf("it has no port %d, the last is %d: %w", cfg.Port, h.attr.Ports, verbs.ErrInvalid)
	}
	if err := h.queryPort(cfg); err != nil {
		if mustBeUp && (errors.Is(err, errNoGID) || errors.Is(err, errNoLID)) {
			return absence{err}
		}
		return err
	}
	if mustBeUp && !h.port.State.Up() {
		return absence{fmt.Errorf("port %d is %v", cfg.Port, h.port.State)}
	}
	if h.pkeyIndex, h.pkey, err = h.findPKey(cfg); err != nil {
		return err
	}
	if err := h.fit(cfg); err != nil {
		return err
	}
	if h.pd, err = h.dev.AllocPD(); err != nil {
		return err
	}
	if h.wakes, err = h.dev.CreateCompChannel(); err != nil {
		return err
	}
	if h.share.on() {
		if err := h.makeShared(cfg); err != nil {
			return err
		}
	}
	if h.bounce, err = newSlab(h.pd, bounceBuffers+1, headBytes+cfg.FragBytes, verbs.AccessLocalWrite); err != nil {
		return fmt.Errorf("send buffers: %w", err)
	}
	h.scratch = h.bounce.buffer(bounceBuffers)
	for i := range int32(bounceBuffers) {
		h.bounceFree = append(h.bounceFree, i)
	}
	if err := h.openUD(cfg); err != nil {
		return fmt.Errorf("datagrams: %w", err)
	}
	return nil
}

// inlineSizes are the numbers of inline bytes to ask for: enough for a small message, and fewer for
// devices that refuse that. No device reports its limit. A device may grant more.
var inlineSizes = [...]int{128, 96, 64, 32, headBytes, 0}

// createQP makes a queue pair that takes as many inline bytes as the device permits, up to the
// first of inlineSizes.
func (h *hca) createQP(init verbs.QPInit) (verbs.QP, error) {
	var first error
	for i := h.inline; i < len(inlineSizes); i++ {
		init.Cap.MaxInlineData = inlineSizes[i]
		qp, err := h.pd.CreateQP(init)
		if err == nil {
			h.inline = i
			return qp, nil
		}
		if first == nil {
			first = err // a smaller size may fail for another reason
		}
		// If the size is over its limit, a device reports an invalid argument, or that a work
		// request needs too much memory.
		if !errors.Is(err, verbs.ErrInvalid) && !errors.Is(err, verbs.ErrNoMemory) {
			break
		}
	}
	return nil, first
}

// reserve finds a completion queue with room for the given number of entries, or makes one.
func (h *hca) reserve(entries int) (*group, error) {
	for _, g := range h.groups {
		if !g.broken && g.room >= entries {
			g.room -= entries
			g.reserved += entries
			return g, nil
		}
	}
	// The receives of a shared queue may all complete in one completion queue.
	shared := h.share.capacity
	size := max(min(groupEntries+shared, h.attr.MaxCQE), entries+shared)
	cq, err := h.dev.CreateCQ(size, h.wakes)
	if err != nil {
		return nil, err
	}
	g := &group{cq: cq, room: size - shared - entries, reserved: entries}
	h.groups = append(h.groups, g)
	return g, nil
}

// release gives reserved entries back. It destroys a broken queue without reservations.
func (h *hca) release(g *group, entries int) error {
	g.room += entries
	g.reserved -= entries
	if !g.broken || g.reserved > 0 {
		return nil
	}
	i := slices.Index(h.groups, g)
	if i < 0 {
		return nil
	}
	h.groups = slices.Concat(h.groups[:i], h.groups[i+1:]) // Progress may iterate over the old list
	return g.cq.Destroy()
}

// revoke ends all registrations of the user's memory. No queue pair accesses that memory
// afterwards.
func (h *hca) revoke() error {
	var errs []error
	for r := range h.regions {
		errs = append(errs, r.revoke())
	}
	return errors.Join(errs...)
}

// close destroys all objects that exist, in order. The queue pairs of endpoints were destroyed
// before, unless their destruction failed.
func (h *hca) close() error {
	var errs []error
	keep := func(err error) { errs = append(errs, err) }
	if h.ud != nil {
		keep(h.ud.Destroy())
	}
	keep(h.revoke())
	for r := range h.regions {
		r.mr = nil // the device ends it
	}
	for _, s := range []*slab{h.udRecvs, h.udSends, h.bounce} {
		if s != nil {
			keep(s.close())
		}
	}
	if h.shared != nil {
		keep(h.shared.closeAnyway())
	}
	if h.udCQ != nil {
		keep(h.udCQ.Destroy())
	}
	for _, g := range h.groups {
		keep(g.cq.Destroy())
	}
	if h.wakes != nil {
		h.wakes.Notify(nil)
		keep(h.wakes.Destroy())
	}
	if h.pd != nil {
		keep(h.pd.Dealloc())
	}
	if h.dev != nil {
		h.dev.Notify(nil)
		keep(h.dev.Close())
	}
	return errors.Join(errs...)
}
