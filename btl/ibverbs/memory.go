package ibverbs

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// slab is registered memory outside of Go's heap, cut into buffers of equal size.
type slab struct {
	mem    []byte
	mr     verbs.MR
	stride int
	count  int
}

// newSlab makes count buffers of at least the given number of bytes, and registers them for access.
// Each begins at a multiple of 64.
func newSlab(pd verbs.PD, count, bytes int, access verbs.Access) (*slab, error) {
	s := &slab{stride: strideOf(bytes), count: count}
	mem, err := unix.Mmap(-1, 0, s.stride*count, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("%d bytes of buffers: %w", s.stride*count, err)
	}
	s.mem = mem
	if s.mr, err = pd.RegMR(mem, access); err != nil {
		_ = unix.Munmap(mem)
		return nil, err
	}
	return s, nil
}

// strideOf returns the distance between buffers of this number of bytes.
func strideOf(bytes int) int { return (bytes + 63) &^ 63 }

// slabBytes returns the length of the memory of a slab.
func slabBytes(count, bytes int) int { return count * strideOf(bytes) }

func (s *slab) buffer(i int) []byte { return s.mem[i*s.stride : (i+1)*s.stride : (i+1)*s.stride] }

// sge returns the element for the first n bytes of a buffer.
func (s *slab) sge(i, n int) verbs.SGE {
	return verbs.SGE{Addr: s.mr.Addr() + uint64(i*s.stride), Length: uint32(n), LKey: s.mr.LKey()}
}

// close releases the memory. If the registration cannot be ended, the memory stays: a device may
// still write to it.
func (s *slab) close() error {
	if err := s.mr.Dereg(); err != nil {
		return err
	}
	return unix.Munmap(s.mem)
}

// addressOf returns the address of a slice, for work requests.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
