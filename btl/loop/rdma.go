package loop

import (
	"errors"
	"sync"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

// region is registered memory.
type region struct {
	port   *port
	mem    []byte
	access btl.Access
	h      handle
	gate   gate // guards mem
}

// regionTable holds the regions of a port. Peers look regions up from their goroutines.
type regionTable struct {
	mu     sync.RWMutex
	slots  []regionSlot // guarded by mu
	free   []uint32     // slots without a region, guarded by mu
	closed bool         // guarded by mu
}

type regionSlot struct {
	r          *region
	generation uint32 // of the current region, or of the next one if r is nil
}

// Register implements btl.Registrar.
func (m *module) Register(mem []byte, access btl.Access) (btl.Region, error) {
	if m.Attrs().Caps&(btl.CapPut|btl.CapGet) == 0 {
		return nil, m.NewError(btl.AllPeers, btl.ClassUsage, btl.SideLocal, "", errors.ErrUnsupported)
	}
	r := &region{port: m.port, mem: mem, access: access}
	if !m.port.regions.add(r) {
		return nil, btl.ErrClosed
	}
	return r, nil
}

func (t *regionTable) add(r *region) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	if n := len(t.free); n > 0 {
		r.h.slot = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		r.h.slot = uint32(len(t.slots))
		t.slots = append(t.slots, regionSlot{generation: 1})
	}
	s := &t.slots[r.h.slot]
	s.r, r.h.generation = r, s.generation
	return true
}

// remove reports whether r was in the table.
func (t *regionTable) remove(r *region) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.slots[r.h.slot]
	if s.r != r {
		return false
	}
	s.r = nil
	s.generation++
	if s.generation != 0 { // otherwise all handles of the slot are used up
		t.free = append(t.free, r.h.slot)
	}
	return true
}

func (t *regionTable) find(h handle) *region {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if h.slot >= uint32(len(t.slots)) || t.slots[h.slot].generation != h.generation {
		return nil
	}
	return t.slots[h.slot].r
}

// close revokes all keys.
func (t *regionTable) close() {
	t.mu.Lock()
	slots := t.slots
	t.closed = true
	t.mu.Unlock()
	for _, s := range slots {
		if s.r != nil {
			s.r.gate.close()
		}
	}
}

// Key implements btl.Region.
func (r *region) Key() btl.Key { return makeKey(r.port.addr, r.h) }

// Release implements btl.Region. A second Release is an error.
func (r *region) Release() error {
	if !r.port.regions.remove(r) {
		return base.ErrReleased
	}
	r.gate.close()
	return nil
}

// checkLocal checks the local side of a remote read or write.
func (e *endpoint) checkLocal(op *btl.Op) *btl.Error {
	r, ok := op.Local.(*region)
	var wrong error
	switch {
	case !ok || r == nil || r.port != e.m.port:
		wrong = base.ErrLocal
	case r.gate.closed():
		wrong = base.ErrReleased
	case r.access&btl.AccessLocal == 0:
		wrong = base.ErrAccess
	case !base.Contains(r.mem, op.Payload):
		wrong = base.ErrBounds
	default:
		return nil
	}
	return e.m.NewError(e.Peer(), btl.ClassUsage, btl.SideLocal, "", wrong)
}

// reach does a remote read or write. Its error comes from the local or the remote side.
func (e *endpoint) reach(v verb, op *btl.Op) *btl.Error {
	if err := e.checkLocal(op); err != nil {
		return err
	}
	e.m.accessed += len(op.Payload)
	return e.touch(v, op.Remote, op.RemoteOffset, op.Payload)
}

// touch copies between b and the peer's memory, if this incarnation and the region's owner permit
// it.
func (e *endpoint) touch(v verb, key btl.Key, offset uint64, b []byte) *btl.Error {
	l := e.inc.link
	end := l.other(e.end)
	if !e.inc.gate[end].enter() {
		return e.noAnswer()
	}
	defer e.inc.gate[end].leave()
	if err := l.ports[end].copyRemote(v, key, offset, b); err != nil {
		return e.m.NewError(e.Peer(), btl.ClassUsage, btl.SideNone, "", err)
	}
	return nil
}

// copyRemote writes b into a region of p, or reads it from there.
func (p *port) copyRemote(v verb, key btl.Key, offset uint64, b []byte) error {
	need := btl.AccessRemoteWrite
	if v == get {
		need = btl.AccessRemoteRead
	}
	a, h, ok := parseKey(key)
	if !ok || a != p.addr {
		return base.ErrKey
	}
	r := p.regions.find(h)
	if r == nil || !r.gate.enter() {
		return base.ErrKey
	}
	defer r.gate.leave()
	switch {
	case r.access&need == 0:
		return base.ErrAccess
	case offset > uint64(len(r.mem)) || uint64(len(b)) > uint64(len(r.mem))-offset:
		return base.ErrBounds
	}
	if v == get {
		copy(b, r.mem[offset:])
	} else {
		copy(r.mem[offset:], b)
	}
	return nil
}
