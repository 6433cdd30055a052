package simhca

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// addressOf returns the start address of mem as a number for work requests.
func addressOf(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }

// store copies the data of a packet into memory. It stores the last aligned 8 bytes after the rest
// and atomically, so a receiver that polls these bytes finds the rest, too. If dst does not end at
// a multiple of 8, store instead writes the bytes after the last multiple of 8 last, atomically if
// they are 4 bytes.
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

// word returns the first 8 bytes of mem, which must be aligned.
func word(mem []byte) *uint64 {
	// Reading mem[7] would race with the poller.
	return (*uint64)(unsafe.Pointer(unsafe.SliceData(mem[:8])))
}

// atMemory returns the n bytes at an address that the poster guarantees to be valid: the address of
// an inline request (package verbs, Memory). All other memory is accessed through regions.
func atMemory(addr uint64, n uint32) []byte {
	p := *(*unsafe.Pointer)(unsafe.Pointer(&addr))
	return unsafe.Slice((*byte)(p), n)
}

// load copies memory, atomically if src is an aligned word: its owner may store to it at any time.
func load(dst, src []byte) {
	if len(src) == 8 && addressOf(src)%8 == 0 {
		binary.NativeEndian.PutUint64(dst, atomic.LoadUint64(word(src)))
		return
	}
	copy(dst, src)
}

// sgeLength returns the total length of the elements.
func sgeLength(sges []verbs.SGE) uint64 {
	var n uint64
	for i := range sges {
		n += uint64(sges[i].Length)
	}
	return n
}

// eachPiece calls do for the pieces of memory that hold the bytes off to off+n of a request. It
// reports false if the key of a piece is invalid in the domain or lacks the access.
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

// checkPieces reports whether the keys of all elements are valid for the access.
func (h *HCA) checkPieces(d *domain, sges []verbs.SGE, access verbs.Access) bool {
	for i := range sges {
		s := &sges[i]
		if s.Length > 0 && h.regions.find(d, s.LKey, 0, s.Addr, s.Length, access) == nil {
			return false
		}
	}
	return true
}

// gather copies len(dst) bytes from a request's memory.
func (h *HCA) gather(dst []byte, d *domain, sges []verbs.SGE, off uint64) bool {
	return h.eachPiece(d, sges, off, len(dst), 0, func(mem []byte, at int) { load(dst[at:], mem) })
}

// scatter copies data to a request's memory.
func (h *HCA) scatter(d *domain, sges []verbs.SGE, off uint64, data []byte) bool {
	return h.eachPiece(d, sges, off, len(data), verbs.AccessLocalWrite, func(mem []byte, at int) { store(mem, data[at:at+len(mem)]) })
}
