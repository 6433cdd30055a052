package ibverbs

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

var _ btl.Registrar = (*module)(nil)

var (
	errReopened = errors.New("stale key: the peer has reopened its device")
	errNoReads  = errors.New("the device of one end has no remote reads")
	errLong     = errors.New("longer than the longest message of this port")
)

// region is registered memory. It outlives the device: if the device is lost and opened again, the
// memory is registered again when this rank next uses it, or a peer gets its key. Older keys are
// stale.
type region struct {
	m      *module
	h      *hca // the device of the registration
	mem    []byte
	access btl.Access
	mr     verbs.MR // nil once it was released, or the device was closed
	key    btl.Key  // zero, which is never valid, if peers may not access the memory
}

// key is the content of a btl.Key: the memory's address for the device, its length, and the remote
// key. number distinguishes regions that have the same remote key at different times. A device that
// is opened again may reuse remote keys, so device distinguishes the openings: it is the Q_Key of
// the datagram queue pair, which is new each time.
type key struct {
	addr, length   uint64
	number, device uint32
	rkey           uint32
	access         btl.Access
}

// keyMark is in each valid key.
const keyMark = 0xa5

func (k key) encode() (b btl.Key) {
	binary.LittleEndian.PutUint64(b[0:], k.addr)
	binary.LittleEndian.PutUint64(b[8:], k.length)
	binary.LittleEndian.PutUint32(b[16:], k.number)
	binary.LittleEndian.PutUint32(b[20:], k.device)
	binary.LittleEndian.PutUint32(b[24:], k.rkey)
	b[28], b[29] = byte(k.access), keyMark
	return b
}

// parseKey decodes a key. ok is false if it is malformed. The peer's device checks whether the key
// is valid.
func parseKey(b *btl.Key) (k key, ok bool) {
	k.addr = binary.LittleEndian.Uint64(b[0:])
	k.length = binary.LittleEndian.Uint64(b[8:])
	k.number = binary.LittleEndian.Uint32(b[16:])
	k.device = binary.LittleEndian.Uint32(b[20:])
	k.rkey = binary.LittleEndian.Uint32(b[24:])
	k.access = btl.Access(b[28])
	return k, b[29] == keyMark && b[30] == 0 && b[31] == 0 && k.addr+k.length >= k.addr
}

// Register implements btl.Registrar. The registration pins the memory's pages: mem must stay alive
// until Release. The error wraps btl.ErrResource if there is no room for it now, because too much
// memory is already locked or registered.
func (m *module) Register(mem []byte, access btl.Access) (btl.Region, error) {
	if m.Closed {
		return nil, btl.ErrClosed
	}
	if m.h == nil || m.reopen {
		return nil, fmt.Errorf("rail %s: %w: the device is gone", m.cfg.Rail, btl.ErrResource)
	}
	r := &region{m: m, mem: mem, access: access}
	if err := r.registerMemory(); err != nil {
		return nil, fmt.Errorf("rail %s: %w: %w", m.cfg.Rail, btl.ErrResource, err)
	}
	return r, nil
}

// registerMemory registers the memory with the open device.
func (r *region) registerMemory() error {
	h := r.m.h
	r.h, r.key = h, btl.Key{}
	if len(r.mem) == 0 {
		return nil
	}
	rights := verbs.AccessLocalWrite
	if r.access&btl.AccessRemoteRead != 0 {
		rights |= verbs.AccessRemoteRead
	}
	if r.access&btl.AccessRemoteWrite != 0 {
		rights |= verbs.AccessRemoteWrite
	}
	mr, err := h.pd.RegMR(r.mem, rights)
	if err != nil {
		return err
	}
	r.mr = mr
	h.registered++
	if h.regions == nil {
		h.regions = map[*region]struct{}{}
	}
	h.regions[r] = struct{}{}
	if r.access&(btl.AccessRemoteRead|btl.AccessRemoteWrite) != 0 {
		r.key = key{mr.Addr(), uint64(len(r.mem)), h.registered, h.qkey, mr.RKey(), r.access}.encode()
	}
	return nil
}

// renew registers the memory with the open device, unless it is already registered there. If that
// fails, the region has no key, and only operations with it fail, because the layer above has other
// ways to move the bytes.
func (r *region) renew() {
	if m := r.m; r.h != m.h && m.h != nil && !m.reopen && !m.Closed && r.mem != nil {
		_ = r.registerMemory()
	}
}

// Key implements btl.Region.
func (r *region) Key() btl.Key {
	r.renew()
	return r.key
}

// Release implements btl.Region. A second Release is an error.
func (r *region) Release() error {
	if r.mem == nil {
		return base.ErrReleased
	}
	r.mem = nil
	return r.revoke()
}

// revoke ends the registration.
func (r *region) revoke() error {
	if r.mr == nil {
		return nil
	}
	if err := r.mr.Dereg(); err != nil {
		return err // closing the device tries again
	}
	r.mr = nil
	delete(r.h.regions, r)
	return nil
}

// mayRead reports whether the devices of both ends have remote reads.
func (e *endpoint) mayRead() bool {
	_, asks := e.m.h.reads()
	return asks > 0 && e.remote.rdAtomic > 0
}

// move posts a read or a write. An invalid operation would fail the connection in the device.
// Therefore it is not posted, and fails alone, at the next progress call.
func (e *endpoint) move(op *btl.Op, opcode verbs.Opcode, need btl.Access) error {
	if e.State() != btl.Up {
		return btl.ErrFailed
	}
	if !e.plain || e.full() {
		return btl.ErrResource
	}
	local, _ := op.Local.(*region)
	n := len(op.Payload)
	remote, ok := parseKey(&op.Remote)
	if local != nil && local.m == e.m {
		local.renew()
	}
	var wrong error
	switch {
	case local == nil || local.h != e.m.h || n > 0 && local.mr == nil || !base.Contains(local.mem, op.Payload):
		wrong = base.ErrLocal
	case !ok || remote.access&need == 0:
		wrong = base.ErrKey
	case remote.device != e.device:
		wrong = errReopened
	case op.RemoteOffset > remote.length || uint64(n) > remote.length-op.RemoteOffset:
		wrong = base.ErrBounds
	case opcode == verbs.WRRDMARead && !e.mayRead():
		wrong = errNoReads
	case uint64(n) > uint64(e.m.h.port.MaxMsg):
		wrong = errLong
	}
	if wrong != nil {
		e.m.Refuse(e, op, e.m.NewError(e.p.rank, btl.ClassUsage, btl.SideLocal, "", wrong))
		return nil
	}
	wr := &e.m.sendWR[0]
	*wr = verbs.SendWR{Opcode: opcode, RemoteAddr: remote.addr + op.RemoteOffset, RKey: remote.rkey}
	if n > 0 {
		wr.NumSGE = 1
		wr.SGE[0] = verbs.SGE{Addr: addressOf(op.Payload), Length: uint32(n), LKey: local.mr.LKey()}
	}
	return e.post(wr, sqEntry{op: op, bounce: noBuffer})
}
