package comm

import (
	"fmt"
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/internal/calls"
)

// allocation is memory from Alloc that was not given to FreeAlloc.
type allocation struct {
	pages     []byte        // whole pages
	from      btl.Allocator // the rail that made them; nil for the system
	n         int           // elements
	elemBytes uintptr
}

// Alloc returns zeroed memory for n elements, outside of Go's heap. So every transport can use it
// without a copy or a registration per call, and a long message from it goes to a rank of the same
// machine with one copy instead of two. Only FreeAlloc releases it; neither the garbage collector
// nor Finalize does. Errors: ErrType, ErrComm, ErrCount if n is negative or too large, ErrBuffer if
// the system has no memory left.
func Alloc[T any](c *Comm, n int) ([]T, error) {
	mem, err := c.alloc(checkElem[T](c), n, sizeOf[T]())
	if err != nil {
		return nil, c.fail(calls.Alloc, none, none, err)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), n), nil
}

func (c *Comm) alloc(bad error, n int, elemBytes uintptr) ([]byte, error) {
	if bad != nil {
		return nil, bad
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	page := os.Getpagesize()
	if n < 0 {
		return nil, fmt.Errorf("%w: %d elements", ErrCount, n)
	}
	if elemBytes > 0 && n > (math.MaxInt-page)/int(elemBytes) {
		return nil, fmt.Errorf("%w: %d elements of %d bytes", ErrCount, n, elemBytes)
	}
	j := c.job
	// Zero bytes take a page too, so that each allocation has an address of its own.
	a, err := j.allocate(max((n*int(elemBytes)+page-1)/page*page, page))
	if err != nil {
		return nil, err
	}
	a.n, a.elemBytes = n, elemBytes
	if j.allocs == nil {
		j.allocs = map[*byte]allocation{}
	}
	j.allocs[unsafe.SliceData(a.pages)] = a
	j.pml.AddMemory(a.pages)
	return a.pages, nil
}

// allocate makes memory of whole pages. The first rail that makes memory itself does so, if size is
// long enough for remote access; otherwise the system does. Lock held.
func (j *job) allocate(size int) (allocation, error) {
	for _, m := range j.modules {
		from, ok := m.(btl.Allocator)
		if !ok {
			continue
		}
		least := m.Attrs().RDMABytes
		if set := bytesIfSet(j.settings, "pml.rdma.bytes"); set > 0 {
			least = set
		}
		if size >= least {
			if mem, err := from.Alloc(size); err == nil {
				return allocation{pages: mem, from: from}, nil
			} // the system's memory works too
		}
		break
	}
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return allocation{}, fmt.Errorf("%w: %d bytes: %w", ErrBuffer, size, err)
	}
	return allocation{pages: mem}, nil
}

// FreeAlloc gives memory back to the system. The slice must be exactly one that Alloc has returned
// at this rank and that was not freed since. Any other is ErrBuffer. While a request or a
// collective uses the memory, the error is both ErrPending and ErrBuffer. If FreeAlloc fails, it
// changes nothing.
//
// The memory must not be used afterwards. FreeAlloc works after Finalize too.
func FreeAlloc[T any](c *Comm, buf []T) error {
	err := c.freeAlloc(checkElem[T](c), (*byte)(unsafe.Pointer(unsafe.SliceData(buf))), len(buf), sizeOf[T]())
	return c.fail(calls.FreeAlloc, none, none, err)
}

func (c *Comm) freeAlloc(bad error, first *byte, n int, elemBytes uintptr) error {
	switch {
	case bad != nil:
		return bad
	case c.isNull():
		return errNullComm
	}
	j := c.job
	j.eng.Lock()
	defer j.eng.Unlock()
	if c.freed {
		return errFreedComm
	}
	a, ok := j.allocs[first]
	switch {
	case !ok:
		return fmt.Errorf("%w: not from Alloc, or freed before", ErrBuffer)
	case a.n != n || a.elemBytes != elemBytes:
		return fmt.Errorf("%w: %d elements of %d bytes, Alloc gave %d of %d", ErrBuffer, n, elemBytes, a.n, a.elemBytes)
	}
	if user, found := j.pml.User(a.pages); found {
		return fmt.Errorf("%w: it is in use: %w: %v", ErrBuffer, ErrPending, user)
	}
	if j.check != nil {
		if user := j.check.user(a.pages); user != nil {
			return fmt.Errorf("%w: it is in use: %w: %w", ErrBuffer, ErrPending, user)
		}
	}
	delete(j.allocs, first)
	j.pml.RemoveMemory(a.pages)
	free := unix.Munmap
	if a.from != nil {
		free = a.from.Free
	}
	if err := free(a.pages); err != nil {
		return fmt.Errorf("%w: %w", ErrBuffer, err)
	}
	return nil
}
