package simhca

import (
	"syscall"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// domain is a protection domain.
type domain struct {
	c       *context
	objects int // number of objects in the domain
	gone    bool
	lookups map[*lookup]struct{} // lookups that have not ended
}

func (d *domain) dead() bool { return d.gone || d.c.dead() }

func (d *domain) Dealloc() error {
	defer d.c.f.enter().leave()
	if d.gone {
		return goneError("ibv_dealloc_pd")
	}
	if d.objects > 0 {
		return busy("ibv_dealloc_pd")
	}
	for l := range d.lookups {
		d.c.f.events.cancel(&l.event)
		l.finish()
	}
	d.gone = true
	d.c.pds--
	return nil
}

// address is an address handle.
type address struct {
	d      *domain
	attr   verbs.AHAttr
	handle uint64
	gone   bool
}

// checkAH checks an address vector against the device's ports.
func (h *HCA) checkAH(call string, a *verbs.AHAttr) error {
	p := h.port(a.Port)
	switch {
	case p == nil:
		return invalid(call, "no such port")
	case !a.IsGlobal && p.link() == verbs.LinkEthernet:
		return invalid(call, "RoCE requires a global route")
	case !a.IsGlobal && h.cfg.GRHRequired:
		return invalid(call, "the port requires a global route")
	case a.SL > 15:
		return invalid(call, "the service level is out of range")
	case a.IsGlobal && p.gid(a.SGIDIndex).IsZero():
		return invalid(call, "the GID index is empty")
	}
	return nil
}

func (d *domain) CreateAH(attr verbs.AHAttr) (verbs.AH, error) {
	c := d.c
	defer c.f.enter().leave()
	if d.dead() {
		return nil, goneError("ibv_create_ah")
	}
	if err := c.hca.checkAH("ibv_create_ah", &attr); err != nil {
		return nil, err
	}
	c.hca.lastAH += 16
	a := &address{d: d, attr: attr, handle: c.hca.lastAH}
	c.hca.ahs[a.handle] = a
	d.objects++
	return a, nil
}

// lookup is a path that is being resolved.
type lookup struct {
	d     *domain
	end   pathEnd
	event event
	done  func(err error)
}

// pathEnd is a path from a port.
type pathEnd struct {
	port int
	gid  verbs.GID
}

// Resolve takes ResolveTime, unless the path is known. The calls that follow need no link-layer
// address.
func (d *domain) Resolve(attr verbs.AHAttr, done func(err error)) {
	const call = "ibv_create_ah"
	f := d.c.f
	defer f.enter().leave()
	err := d.c.hca.checkAH(call, &attr)
	if d.dead() {
		err = goneError(call)
	}
	end := pathEnd{attr.Port, attr.DGID}
	_, known := d.c.hca.resolved[end]
	if err != nil || known || f.cfg.ResolveTime == 0 || d.c.hca.port(attr.Port).link() != verbs.LinkEthernet {
		f.deferCall(func() { done(err) })
		return
	}
	l := &lookup{d: d, end: end, done: done}
	l.event.kind, l.event.path = evLookup, l
	d.lookups[l] = struct{}{}
	f.events.schedule(&l.event, f.now()+f.cfg.ResolveTime)
}

func (l *lookup) finish() {
	delete(l.d.lookups, l)
	l.d.c.hca.resolved[l.end] = struct{}{}
	l.d.c.f.deferCall(func() { l.done(nil) })
}

func (a *address) Handle() uint64 { return a.handle }

func (a *address) Destroy() error {
	defer a.d.c.f.enter().leave()
	if a.gone {
		return goneError("ibv_destroy_ah")
	}
	a.gone = true
	a.d.objects--
	delete(a.d.c.hca.ahs, a.handle)
	return nil
}

// region is a registered memory region.
type region struct {
	d      *domain
	mem    []byte
	addr   uint64
	access verbs.Access
	slot   uint32
	key    uint32 // the L_Key; the R_Key is key | remoteKey
}

// A key consists of an index into the device's region table, a generation of that slot and a bit
// that distinguishes R_Keys from L_Keys. The generation makes a key invalid after its region is
// deregistered (InfiniBand error model, 5.1).
const (
	maxRegions = 1<<16 - 1
	remoteKey  = 1
	slotShift  = 16
	genStep    = 2
	// freshSlots is the number of free slots before a slot is reused. Reusing slots late keeps old
	// keys invalid for long.
	freshSlots = 64
)

type regionTable struct {
	slots []slot
	free  []uint32 // in the order of deregistration
}

func (t *regionTable) used() int { return len(t.slots) - len(t.free) }

type slot struct {
	r   *region
	gen uint32
}

func (t *regionTable) add(r *region) {
	i := uint32(len(t.slots))
	if len(t.free) > freshSlots || len(t.slots) == maxRegions {
		i = t.free[0]
		t.free = append(t.free[:0], t.free[1:]...)
	} else {
		t.slots = append(t.slots, slot{})
	}
	s := &t.slots[i]
	s.r = r
	s.gen = (s.gen + genStep) & (1<<slotShift - 1)
	r.slot, r.key = i, (i+1)<<slotShift|s.gen
}

func (t *regionTable) remove(r *region) {
	t.slots[r.slot].r = nil
	t.free = append(t.free, r.slot)
}

// find returns the n bytes at addr if the key names a region of the domain that contains them and
// has the access, otherwise nil. No arguments give access to memory outside a region.
func (t *regionTable) find(d *domain, key, kind uint32, addr uint64, n uint32, access verbs.Access) []byte {
	i := key>>slotShift - 1
	if key&1 != kind || i >= uint32(len(t.slots)) {
		return nil
	}
	r := t.slots[i].r
	if r == nil || r.key != key&^1 || r.d != d || r.access&access != access {
		return nil
	}
	off := addr - r.addr
	if addr < r.addr || off > uint64(len(r.mem)) || uint64(n) > uint64(len(r.mem))-off {
		return nil
	}
	return r.mem[off : off+uint64(n) : off+uint64(n)]
}

func (d *domain) RegMR(mem []byte, access verbs.Access) (verbs.MR, error) {
	c := d.c
	defer c.f.enter().leave()
	const call = "ibv_reg_mr"
	const known = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	switch {
	case d.dead():
		return nil, goneError(call)
	case len(mem) == 0:
		return nil, invalid(call, "no memory")
	case access&^known != 0:
		return nil, invalid(call, "unknown access")
	case access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 && access&verbs.AccessLocalWrite == 0:
		return nil, invalid(call, "remote write or atomic access needs local write access")
	case uint64(len(mem)) > c.hca.cfg.MaxMRBytes:
		return nil, invalid(call, "the device does not support a region of that length")
	case c.hca.regions.used() >= maxRegions:
		return nil, noMemory(call, "too many memory regions")
	case c.hca.cfg.MaxLocked > 0 && c.hca.locked+int64(len(mem)) > c.hca.cfg.MaxLocked:
		return nil, verbs.NewCallError(call, syscall.ENOMEM, "")
	}
	r := &region{d: d, mem: mem, addr: addressOf(mem), access: access}
	c.hca.regions.add(r)
	c.hca.locked += int64(len(mem))
	d.objects++
	return r, nil
}

func (r *region) LKey() uint32 { return r.key }
func (r *region) RKey() uint32 { return r.key | remoteKey }
func (r *region) Addr() uint64 { return r.addr }

func (r *region) Dereg() error {
	c := r.d.c
	defer c.f.enter().leave()
	if r.mem == nil {
		return goneError("ibv_dereg_mr")
	}
	c.hca.regions.remove(r)
	c.hca.locked -= int64(len(r.mem))
	r.mem = nil
	r.d.objects--
	return nil
}
