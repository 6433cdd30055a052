package sm

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

var _ btl.Sharer = (*module)(nil)

// shared is memory that several ranks have mapped to read and write: an anonymous file, sealed like
// a segment.
//
//	data, whole pages | a page with sharedTail
//
// The tail is read only when the file is mapped, to check that it is the file that a key names.
type shared struct {
	fd   int // -1 at other ranks than its maker, and once it is hidden
	mem  []byte
	data []byte
}

type sharedTail struct {
	magic uint64
	nonce [16]byte
}

const (
	sharedMagic    = 0x6d73_6f67_6970_6d04
	sharedKeyMagic = 0x6d73_0002
)

// sharedOf splits mapped memory into its parts.
func sharedOf(fd int, mem []byte, page uint64) (*shared, *sharedTail) {
	size := len(mem) - int(page)
	return &shared{fd: fd, mem: mem, data: mem[:size:size]}, (*sharedTail)(unsafe.Pointer(&mem[size]))
}

// Share implements btl.Sharer.
func (m *module) Share(bytes int) ([]byte, btl.Key, error) {
	if m.Closed {
		return nil, btl.Key{}, btl.ErrClosed
	}
	s, k, err := m.share(bytes)
	if err != nil {
		return nil, btl.Key{}, fmt.Errorf("rail %s: %w: %w", railName, btl.ErrMemory, err)
	}
	m.shared = append(m.shared, s)
	return s.data, k, nil
}

func (m *module) share(bytes int) (*shared, btl.Key, error) {
	if bytes <= 0 || uint64(bytes) > math.MaxInt64/2 {
		return nil, btl.Key{}, fmt.Errorf("shared memory of %d bytes", bytes)
	}
	size := m.own.roundToPage(uint64(bytes)) + m.own.page
	fd, err := newFile("shared", size)
	if err != nil {
		return nil, btl.Key{}, err
	}
	mem, err := mapShared(fd, 0, size)
	if err != nil {
		return nil, btl.Key{}, errors.Join(err, unix.Close(fd))
	}
	s, tail := sharedOf(fd, mem, m.own.page)
	if _, err := rand.Read(tail.nonce[:]); err != nil {
		return nil, btl.Key{}, errors.Join(err, unmap(&s.mem), unix.Close(fd))
	}
	atomic.StoreUint64(&tail.magic, sharedMagic)
	k := sharedKey{nonce: tail.nonce, fd: uint32(fd), bytes: size}
	return s, k.encode(), nil
}

// MapShared implements btl.Sharer.
func (m *module) MapShared(peer int, key btl.Key, bytes int) ([]byte, error) {
	if m.Closed {
		return nil, btl.ErrClosed
	}
	k, ok := parseSharedKey(&key)
	if !ok || bytes <= 0 || peer < 0 || peer >= len(m.peers) || m.peers[peer] == nil || m.peers[peer].remote == nil {
		return nil, base.ErrKey
	}
	s, err := m.mapShared(m.peers[peer].remote.address.pid, k)
	if err != nil {
		return nil, fmt.Errorf("rail %s: %w", railName, err)
	}
	if len(s.data) < bytes {
		return nil, errors.Join(base.ErrKey, unmap(&s.mem))
	}
	m.shared = append(m.shared, s)
	return s.data, nil
}

func (m *module) mapShared(pid uint32, k sharedKey) (*shared, error) {
	fd, err := openFD(pid, k.fd, unix.O_RDWR, func(st *unix.Stat_t) error {
		if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Dev != m.device {
			return base.ErrKey
		}
		return nil
	})
	if err != nil {
		return nil, noSuch(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if !isSealed(fd) {
		return nil, base.ErrKey
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if uint64(st.Size) != k.bytes || k.bytes%m.own.page != 0 || k.bytes < 2*m.own.page {
		return nil, base.ErrKey
	}
	mem, err := mapShared(fd, 0, k.bytes)
	if err != nil {
		return nil, err
	}
	s, tail := sharedOf(-1, mem, m.own.page)
	if atomic.LoadUint64(&tail.magic) != sharedMagic || tail.nonce != k.nonce {
		return nil, errors.Join(base.ErrKey, unmap(&s.mem))
	}
	return s, nil
}

func (m *module) findShared(mem []byte) int {
	return slices.IndexFunc(m.shared, func(s *shared) bool {
		return unsafe.SliceData(s.data) == unsafe.SliceData(mem) && len(s.data) == len(mem)
	})
}

// Hide implements btl.Sharer.
func (m *module) Hide(mem []byte) {
	if i := m.findShared(mem); i >= 0 {
		m.shared[i].hide()
	}
}

func (s *shared) hide() {
	if s.fd >= 0 {
		_ = unix.Close(s.fd)
		s.fd = -1
	}
}

// Unshare implements btl.Sharer.
func (m *module) Unshare(mem []byte) error {
	i := m.findShared(mem)
	if i < 0 {
		return fmt.Errorf("rail %s: %w: it is not shared", railName, btl.ErrMemory)
	}
	s := m.shared[i]
	m.shared = slices.Delete(m.shared, i, i+1)
	s.hide()
	s.data = nil
	return unmap(&s.mem)
}

// WakePeer implements btl.Sharer. The caller has changed memory by a store that is a fence (package
// fence), or by an atomic read-modify-write. Therefore either this rank sees the peer's flag, or
// the peer sees the change at its last poll (idle.go).
func (m *module) WakePeer(peer int) {
	if p := m.peers[peer]; p != nil && p.remote != nil {
		p.remote.wake()
	}
}

// sharedKey is the content of a btl.Key of shared memory.
type sharedKey struct {
	nonce [16]byte
	fd    uint32 // in the process of the rank that made it
	bytes uint64 // of the file
}

func (k sharedKey) encode() (b btl.Key) {
	copy(b[:], k.nonce[:])
	binary.LittleEndian.PutUint32(b[16:], k.fd)
	binary.LittleEndian.PutUint64(b[20:], k.bytes)
	binary.LittleEndian.PutUint32(b[28:], sharedKeyMagic)
	return b
}

func parseSharedKey(b *btl.Key) (k sharedKey, ok bool) {
	k = sharedKey{nonce: [16]byte(b[:]), fd: binary.LittleEndian.Uint32(b[16:]), bytes: binary.LittleEndian.Uint64(b[20:])}
	return k, binary.LittleEndian.Uint32(b[28:]) == sharedKeyMagic && k.fd <= math.MaxInt32 && k.bytes <= math.MaxInt64/2
}
