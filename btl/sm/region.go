package sm

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

// errForeign is a variable, because it is returned for each long message.
var errForeign = fmt.Errorf("rail %s: %w: it is not from the rail's Alloc", railName, btl.ErrMemory)

var _ btl.Registrar = (*module)(nil)

// region is registered memory. A region that peers may read has an entry in its allocation's
// ledger.
type region struct {
	m        *module
	mem      []byte
	access   btl.Access
	key      btl.Key // zero, which is valid nowhere, if peers may not read
	released bool

	a          *allocation // nil if there is no entry, or it was revoked
	entry      uint32
	generation uint32
}

// Register implements btl.Registrar. Peers can read only memory from Alloc, and cannot write:
// btl.AccessRemoteWrite is accepted, but permits nothing. One allocation can have about 2000
// regions at a time; beyond that, Register returns btl.ErrResource.
func (m *module) Register(mem []byte, access btl.Access) (btl.Region, error) {
	if m.Closed {
		return nil, btl.ErrClosed
	}
	r := m.newRegion()
	r.mem, r.access = mem, access
	if access&(btl.AccessRemoteRead|btl.AccessRemoteWrite) == 0 {
		return r, nil
	}
	_, a := m.findAllocation(mem)
	if a == nil {
		m.freeRegion(r)
		return nil, errForeign
	}
	if access&btl.AccessRemoteRead != 0 && !a.enter(r) {
		m.freeRegion(r)
		return nil, fmt.Errorf("rail %s: %w: %d regions of one allocation", railName, btl.ErrResource, ledgerEntries)
	}
	return r, nil
}

// newRegion takes a region from the pool, or makes one. The pool exists because the receiver of a
// long message needs a region.
func (m *module) newRegion() *region {
	n := len(m.freeRegions)
	if n == 0 {
		return &region{m: m}
	}
	r := m.freeRegions[n-1]
	m.freeRegions = m.freeRegions[:n-1]
	r.released = false
	return r
}

// freeRegion puts a region into the pool. The region has no entry.
func (m *module) freeRegion(r *region) {
	*r = region{m: m, released: true}
	if len(m.freeRegions) < maxFreeRegions {
		m.freeRegions = append(m.freeRegions, r)
	}
}

// maxFreeRegions bounds the pool, to some 100 KiB.
const maxFreeRegions = 1024

// enter makes the entry of a region, and its key. It reports false if no entry is free.
func (a *allocation) enter(r *region) bool {
	switch n := len(a.free); {
	case n > 0:
		r.entry = a.free[n-1]
		a.free = a.free[:n-1]
	case len(a.live) < ledgerEntries:
		r.entry = uint32(len(a.live))
		a.live = append(a.live, nil)
	default:
		return false
	}
	e := &a.ledger.entries[r.entry]
	a.live[r.entry] = r
	r.a, r.generation = a, e.generation+1
	at := uintptr(unsafe.Pointer(unsafe.SliceData(r.mem))) - a.first()
	atomic.StoreUint64(&e.offset, uint64(at))
	atomic.StoreUint64(&e.bytes, uint64(len(r.mem)))
	atomic.StoreUint32(&e.generation, r.generation)
	r.key = key{nonce: a.ledger.nonce, fd: uint32(a.fd), entry: r.entry, generation: r.generation}.encode()
	return true
}

// revoke frees a region's entry.
func (a *allocation) revoke(r *region) {
	atomic.StoreUint32(&a.ledger.entries[r.entry].generation, r.generation+1)
	a.live[r.entry] = nil
	if r.generation != math.MaxUint32 { // otherwise all generations of the entry are used up
		a.free = append(a.free, r.entry)
	}
	r.a = nil
}

// Key implements btl.Region.
func (r *region) Key() btl.Key { return r.key }

// Release implements btl.Region. A peer that is reading may continue, but its Get ends with a stale
// key. A second Release is an error, unless the module has reused the region meanwhile.
func (r *region) Release() error {
	if r.released {
		return base.ErrReleased
	}
	if r.a != nil {
		r.a.revoke(r)
	}
	r.m.freeRegion(r)
	return nil
}

// checkLocal checks the local side of a Get.
func (e *endpoint) checkLocal(op *btl.Op) error {
	r, ok := op.Local.(*region)
	switch {
	case !ok || r == nil || r.m != e.m || r.access&btl.AccessLocal == 0:
		return base.ErrLocal
	case r.released:
		return base.ErrReleased
	case !base.Contains(r.mem, op.Payload):
		return base.ErrBounds
	}
	return nil
}

// key is the content of a btl.Key of this rail: the file of the peer's process, and the region in
// it.
type key struct {
	nonce      [16]byte // of the allocation
	fd         uint32   // its descriptor in the owner's process
	entry      uint32   // of its ledger
	generation uint32
}

const keyMagic = 0x6d73_0001

func (k key) encode() (b btl.Key) {
	le := binary.LittleEndian
	copy(b[:], k.nonce[:])
	le.PutUint32(b[16:], k.fd)
	le.PutUint32(b[20:], k.entry)
	le.PutUint32(b[24:], k.generation)
	le.PutUint32(b[28:], keyMagic)
	return b
}

// parseKey decodes a key. ok is false if the bytes cannot be a key of this rail.
func parseKey(b *btl.Key) (k key, ok bool) {
	le := binary.LittleEndian
	k = key{
		nonce:      [16]byte(b[:]),
		fd:         le.Uint32(b[16:]),
		entry:      le.Uint32(b[20:]),
		generation: le.Uint32(b[24:]),
	}
	ok = le.Uint32(b[28:]) == keyMagic && k.entry < ledgerEntries && k.generation&1 != 0 && k.fd <= math.MaxInt32
	return k, ok
}
