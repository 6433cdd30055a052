package loop

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

var _ btl.Sharer = (*module)(nil)

const sharedKeyMagic = 0x706f_6f6c

// Share implements btl.Sharer. The ranks of a virtual fabric are on hosts of their own.
func (m *module) Share(bytes int) ([]byte, btl.Key, error) {
	switch {
	case m.Closed:
		return nil, btl.Key{}, btl.ErrClosed
	case m.f.sim != nil || bytes <= 0:
		return nil, btl.Key{}, fmt.Errorf("rail %s: %w: %d bytes", m.Attrs().Name, btl.ErrMemory, bytes)
	}
	// The memory is made of words. It is two cache lines longer than asked for, so that its
	// beginning can be aligned to them.
	words := make([]uint64, (bytes+7)/8+2*cacheLine/8)
	all := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
	from := -uintptr(unsafe.Pointer(unsafe.SliceData(all))) % (2 * cacheLine)
	mem := all[from : int(from)+bytes : int(from)+bytes]

	var key btl.Key
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	m.f.sharedMade++
	binary.LittleEndian.PutUint64(key[:], m.f.id)
	binary.LittleEndian.PutUint64(key[8:], m.f.sharedMade)
	binary.LittleEndian.PutUint32(key[28:], sharedKeyMagic)
	m.f.shared[key] = mem
	return mem, key, nil
}

// MapShared implements btl.Sharer.
func (m *module) MapShared(_ int, key btl.Key, bytes int) ([]byte, error) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	mem := m.f.shared[key]
	switch {
	case m.Closed:
		return nil, btl.ErrClosed
	case mem == nil || len(mem) < bytes:
		return nil, base.ErrKey
	}
	return mem, nil
}

// Hide implements btl.Sharer.
func (m *module) Hide(mem []byte) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	for key, other := range m.f.shared {
		if unsafe.SliceData(other) == unsafe.SliceData(mem) {
			delete(m.f.shared, key)
		}
	}
}

// Unshare implements btl.Sharer. The garbage collector takes the memory back.
func (m *module) Unshare(mem []byte) error {
	m.Hide(mem)
	return nil
}

// WakePeer implements btl.Sharer.
func (m *module) WakePeer(peer int) {
	if peer >= 0 && peer < m.f.cfg.Ranks {
		m.f.ports[m.port.name.Rail][peer].wake()
	}
}
