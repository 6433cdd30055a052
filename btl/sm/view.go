package sm

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl/base"
)

// view is a peer's allocation as mapped here. It is kept between Gets until the allocation is
// freed, the peer is forgotten, or another view needs its place.
type view struct {
	mem    []byte // data and ledger
	data   []byte
	ledger *ledger
	nonce  [16]byte
	used   uint64 // progress call of the last use
}

// viewID names a peer's allocation: its rank and its descriptor there.
type viewID struct {
	rank int
	fd   uint32
}

// maxViews bounds the views of a module. The system allows a process about 65000 mappings.
const maxViews = 1024

// view finds the allocation that a peer's key names, and maps it if it is not mapped. The error is
// base.ErrKey if the key names none; other errors are the system's.
func (m *module) view(p *peer, k *key) (*view, error) {
	id := viewID{p.rank, k.fd}
	if v := m.views[id]; v != nil {
		if v.nonce == k.nonce {
			v.used = m.turns
			return v, nil
		}
		if !v.ledger.isFreed() { // nothing else has its descriptor
			return nil, base.ErrKey
		}
		m.dropView(id)
	}
	v, err := openView(p.remote.address.pid, k, m.device)
	if err != nil {
		return nil, err
	}
	if len(m.views) >= m.maxViews {
		m.dropFreedViews()
	}
	if len(m.views) >= m.maxViews {
		m.dropOldest()
	}
	v.used = m.turns
	m.views[id] = v
	return v, nil
}

// openView maps the allocation of a process that a key names. device is the device of anonymous
// files. If the descriptor is another kind of file, it is not opened.
func openView(pid uint32, k *key, device uint64) (*view, error) {
	// With O_PATH at first, because opening another kind of file could have side effects.
	path, err := unix.Open(procFD(pid, k.fd), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, noSuch(fmt.Errorf("look at an allocation of process %d: %w", pid, err))
	}
	defer func() { _ = unix.Close(path) }()
	var st unix.Stat_t
	if err := unix.Fstat(path, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Dev != device {
		return nil, base.ErrKey
	}
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(path), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, noSuch(fmt.Errorf("open an allocation of process %d: %w", pid, err))
	}
	defer func() { _ = unix.Close(fd) }()
	if !isSealed(fd) {
		return nil, base.ErrKey
	}
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Size <= ledgerBytes {
		return nil, base.ErrKey
	}
	mem, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of shared memory: %w", st.Size, err)
	}
	size := len(mem) - ledgerBytes
	v := &view{mem: mem, data: mem[:size:size], ledger: ledgerOf(mem), nonce: k.nonce}
	l := v.ledger
	if atomic.LoadUint64(&l.magic) != ledgerMagic || l.nonce != k.nonce || l.bytes != uint64(size) || l.isFreed() {
		return nil, errors.Join(base.ErrKey, v.unmap())
	}
	return v, nil
}

// noSuch replaces an error that says that the descriptor or the process does not exist by
// base.ErrKey.
func noSuch(err error) error {
	if errors.Is(gone(err), errGone) {
		return base.ErrKey
	}
	return err
}

// region returns the memory of the region that a key names.
func (v *view) region(k *key) ([]byte, error) {
	e := &v.ledger.entries[k.entry]
	if atomic.LoadUint32(&e.generation) != k.generation {
		return nil, base.ErrKey
	}
	// Each is loaded only once, because it may change. v.current checks later that it has not.
	at, n := atomic.LoadUint64(&e.offset), atomic.LoadUint64(&e.bytes)
	if at > uint64(len(v.data)) || n > uint64(len(v.data))-at {
		return nil, base.ErrKey
	}
	return v.data[at : at+n], nil
}

// current reports whether the region that a key names is still the same.
func (v *view) current(k *key) bool {
	return atomic.LoadUint32(&v.ledger.entries[k.entry].generation) == k.generation
}

func (v *view) unmap() error { return unmap(&v.mem) }

// dropView unmaps a view.
func (m *module) dropView(id viewID) {
	_ = m.views[id].unmap()
	delete(m.views, id)
}

// dropFreedViews unmaps the views of allocations that were freed.
func (m *module) dropFreedViews() {
	for id, v := range m.views {
		if v.ledger.isFreed() {
			m.dropView(id)
		}
	}
}

// dropOldest unmaps the least recently used view.
func (m *module) dropOldest() {
	var oldest viewID
	used := uint64(math.MaxUint64)
	for id, v := range m.views {
		if v.used < used {
			oldest, used = id, v.used
		}
	}
	m.dropView(oldest)
}

// dropViewsOf unmaps the views of a peer's allocations.
func (m *module) dropViewsOf(rank int) {
	for id := range m.views {
		if id.rank == rank {
			m.dropView(id)
		}
	}
}

// deviceOf returns the device of a file.
func deviceOf(fd int) (uint64, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return st.Dev, err
}
