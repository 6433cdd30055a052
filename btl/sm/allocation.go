package sm

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
)

var _ btl.Allocator = (*module)(nil)

// allocation is memory that Alloc returned: an anonymous file, which peers map to read from it
// (view.go).
//
//	data, whole pages | ledger
//
// Peers map the file read-only, so no peer can change what another one reads. The file is sealed
// like a segment: a peer that has mapped it can read all of it at any time, even after the owner
// has ended.
type allocation struct {
	fd     int    // -1 once the module is closed
	mem    []byte // data and ledger
	data   []byte
	ledger *ledger
	live   []*region // by entry of the ledger, nil if the entry is free
	free   []uint32  // free entries of live
}

// ledger says which regions of an allocation may be read. Only the owner writes to it. Peers may
// read it at any time, so all stores and loads are atomic.
type ledger struct {
	magic uint64
	nonce [16]byte
	bytes uint64 // of the data; magic, nonce and bytes are stored before any key exists
	// dead is set to 1 when the allocation must not be read any more.
	dead    uint32
	_       [128 - 36]byte // the first entries do not share a line with the head
	entries [ledgerEntries]entry
}

// entry is a region, or room for one. The generation is odd while the region lives. The owner
// stores offset and bytes, then the odd generation, and on release the next even one. If a reader
// finds its key's generation both before and after a read, it has read from that region.
type entry struct {
	generation uint32
	_          uint32
	offset     uint64
	bytes      uint64
	_          uint64
}

const (
	ledgerMagic = 0x6d73_6f67_6970_6d03
	// ledgerBytes is a multiple of the page size on every machine that Linux runs on. Unused parts
	// of it take no memory.
	ledgerBytes   = 64 << 10
	ledgerEntries = (ledgerBytes - 128) / 32

	// hugeBytes is the size of data from which Alloc asks for huge pages. The system gives them
	// only if transparent_hugepage/shmem_enabled is advise or more. With huge pages, a peer's first
	// read takes half the time, and later reads take a quarter less.
	hugeBytes = 2 << 20
)

var _ [ledgerBytes - unsafe.Sizeof(ledger{})]byte // it fits

// ledgerOf returns the ledger of a mapped allocation.
func ledgerOf(mem []byte) *ledger {
	return (*ledger)(unsafe.Pointer(&mem[len(mem)-ledgerBytes]))
}

func (l *ledger) isFreed() bool { return atomic.LoadUint32(&l.dead) != 0 }

// Alloc implements btl.Allocator. It refuses to allocate more bytes than the machine has memory.
// Each allocation takes a descriptor, so Alloc also refuses when few are left.
func (m *module) Alloc(bytes int) ([]byte, error) {
	if m.Closed {
		return nil, btl.ErrClosed
	}
	a, err := m.allocate(bytes)
	if err != nil {
		return nil, fmt.Errorf("rail %s: %w", railName, err)
	}
	at, _ := m.findAllocation(a.data)
	m.allocations = slices.Insert(m.allocations, at, a)
	return a.data, nil
}

func (m *module) allocate(bytes int) (*allocation, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return nil, err
	}
	switch total := (uint64(info.Totalram) + uint64(info.Totalswap)) * uint64(info.Unit); {
	case bytes < 0:
		return nil, fmt.Errorf("allocation of %d bytes", bytes)
	case uint64(bytes) > min(total, math.MaxInt64/2):
		return nil, fmt.Errorf("allocation of %d bytes: %w", bytes, unix.ENOMEM)
	case len(m.allocations) >= m.maxAllocations:
		return nil, fmt.Errorf("%w: %d allocations, a quarter of the files that may be open (ulimit -n)",
			btl.ErrResource, len(m.allocations))
	}
	var nonce [16]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return nil, err
	}
	size := max(m.own.roundToPage(uint64(bytes)), m.own.page)
	fd, err := newFile("allocation", size+ledgerBytes)
	if err != nil {
		return nil, err
	}
	mem, err := mapShared(fd, 0, size+ledgerBytes)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	a := &allocation{fd: fd, mem: mem, data: mem[:size:size], ledger: ledgerOf(mem)}
	if size >= hugeBytes {
		_ = unix.Madvise(a.data, unix.MADV_HUGEPAGE)
	}
	a.ledger.nonce, a.ledger.bytes = nonce, size
	atomic.StoreUint64(&a.ledger.magic, ledgerMagic)
	return a, nil
}

// maxAllocations returns how many descriptors of this process Alloc may use.
func maxAllocations() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 256
	}
	return int(min(limit.Cur/4, math.MaxInt32))
}

// Free implements btl.Allocator. It returns an error if regions of the memory are still registered
// and the module is not closed.
func (m *module) Free(mem []byte) error {
	at, a := m.findAllocation(mem)
	if a == nil || unsafe.SliceData(a.data) != unsafe.SliceData(mem) || len(a.data) != len(mem) {
		return fmt.Errorf("rail %s: %w: not from Alloc, or freed before", railName, btl.ErrMemory)
	}
	if n := len(a.live) - len(a.free); n > 0 && !m.Closed {
		return fmt.Errorf("rail %s: memory with %d regions that were not released", railName, n)
	}
	m.allocations = slices.Delete(m.allocations, at, at+1)
	err := a.retire()
	// Peers may keep the file mapped for a while (view.go). This frees the memory now.
	_ = unix.Madvise(a.data, unix.MADV_REMOVE)
	a.data, a.ledger = nil, nil
	return errors.Join(err, unmap(&a.mem))
}

// retire revokes the remaining keys of an allocation, and closes its descriptor. The user keeps the
// memory.
func (a *allocation) retire() error {
	for _, r := range a.live {
		if r != nil {
			a.revoke(r)
		}
	}
	atomic.StoreUint32(&a.ledger.dead, 1)
	if a.fd < 0 {
		return nil
	}
	err := unix.Close(a.fd)
	a.fd = -1
	return err
}

// findAllocation finds the allocation that contains mem. If there is none, it returns nil and the
// index at which it would be.
func (m *module) findAllocation(mem []byte) (at int, a *allocation) {
	first := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	at, exact := slices.BinarySearchFunc(m.allocations, first, func(a *allocation, first uintptr) int {
		return cmp.Compare(a.first(), first)
	})
	if !exact {
		at--
	}
	if at >= 0 && first-m.allocations[at].first() <= uintptr(len(m.allocations[at].data)) {
		if end := first - m.allocations[at].first() + uintptr(len(mem)); end <= uintptr(len(m.allocations[at].data)) {
			return at, m.allocations[at]
		}
	}
	return at + 1, nil
}

func (a *allocation) first() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(a.data))) }
