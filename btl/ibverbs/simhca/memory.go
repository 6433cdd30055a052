package simhca

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// addressOf is where memory begins, as work requests count.
func addressOf(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }

// store puts what arrived into memory: its last aligned 8 bytes after all the rest and in one piece, so that whoever polls them
// there finds the rest too. What lies behind the last multiple of 8 comes last instead, in one piece if it is 4 bytes.
func store(dst, src []byte) {
	n := len(src)
	dst = dst[:n]
	if n == 0 {
		return
	}
	end := int((addressOf(dst) + uint64(n)) % 8)
	switch {
	case end == 0 && n >= 8:
		copy(dst[:n-8], src)
		atomic.StoreUint64(word(dst[n-8:]), binary.NativeEndian.Uint64(src[n-8:]))
	case end == 4 && n >= 4:
		copy(dst[:n-4], src)
		atomic.StoreUint32((*uint32)(unsafe.Pointer(unsafe.SliceData(dst[n-4:]))), binary.NativeEndian.Uint32(src[n-4:]))
	default:
		tail := min(end, n)
		copy(dst[:n-tail], src)
		copy(dst[n-tail:], src[n-tail:])
	}
}

// word is the 8 bytes at the front of mem, which is aligned.
func word(mem []byte) *uint64 {
	return (*uint64)(unsafe.Pointer(unsafe.SliceData(mem[:8]))) // a look at mem[7] would be a race with the poller
}

// atMemory is n bytes at an address that the caller vouches for: that of an inline request (package verbs, Memory). Everything
// else is reached through its region.
func atMemory(addr uint64, n uint32) []byte {
	p := *(*unsafe.Pointer)(unsafe.Pointer(&addr))
	return unsafe.Slice((*byte)(p), n)
}

// load reads memory, in one piece if it is an aligned word: its owner may store to it at any time.
func load(dst, src []byte) {
	if len(src) == 8 && addressOf(src)%8 == 0 {
		binary.NativeEndian.PutUint64(dst, atomic.LoadUint64(word(src)))
		return
	}
	copy(dst, src)
}

// sgeLength is how many bytes the pieces of a request have.
func sgeLength(sges []verbs.SGE) uint64 {
	var n uint64
	for i := range sges {
		n += uint64(sges[i].Length)
	}
	return n
}

// eachPiece goes over the pieces of memory that bytes off to off+n of a request are in. It reports false if one is not to be had by
// its key in the domain with that access.
func (h *HCA) eachPiece(d *domain, sges []verbs.SGE, off uint64, n int, access verbs.Access, do func(mem []byte, at int)) bool {
	at := 0
	for i := range sges {
		s := &sges[i]
		if n == 0 {
			return true
		}
		if off >= uint64(s.Length) {
			off -= uint64(s.Length)
			continue
		}
		k := uint32(min(uint64(s.Length)-off, uint64(n)))
		mem := h.regions.find(d, s.LKey, 0, s.Addr+off, k, access)
		if mem == nil {
			return false
		}
		do(mem, at)
		at += int(k)
		n -= int(k)
		off = 0
	}
	return n == 0
}

// checkPieces says whether all the pieces are to be had.
func (h *HCA) checkPieces(d *domain, sges []verbs.SGE, access verbs.Access) bool {
	for i := range sges {
		s := &sges[i]
		if s.Length > 0 && h.regions.find(d, s.LKey, 0, s.Addr, s.Length, access) == nil {
			return false
		}
	}
	return true
}

// gather reads len(dst) bytes of a request's memory.
func (h *HCA) gather(dst []byte, d *domain, sges []verbs.SGE, off uint64) bool {
	return h.eachPiece(d, sges, off, len(dst), 0, func(mem []byte, at int) { load(dst[at:], mem) })
}

// scatter writes data to a request's memory.
func (h *HCA) scatter(d *domain, sges []verbs.SGE, off uint64, data []byte) bool {
	return h.eachPiece(d, sges, off, len(data), verbs.AccessLocalWrite, func(mem []byte, at int) { store(mem, data[at:at+len(mem)]) })
}
