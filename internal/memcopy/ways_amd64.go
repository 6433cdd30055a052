//go:build !race

package memcopy

import "unsafe"

// Measures: a Writer asks readers for answers.
const Measures = true

// copyBy copies src to the beginning of dst, which has room for it.
func copyBy(by way, dst, src []byte) {
	_ = dst[:len(src)]
	to, from := unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src))
	switch by {
	case str:
		repMovsb(to, from, uintptr(len(src)))
	case stream:
		// The stores have to be aligned, and write whole lines.
		head := int(-uintptr(to)) & (lineBytes - 1)
		lines := (len(src) - head) / lineBytes * lineBytes
		copy(dst[:head], src)
		streamLines(unsafe.Add(to, head), unsafe.Add(from, head), uintptr(lines))
		copy(dst[head+lines:], src[head+lines:])
	default:
		copy(dst, src)
	}
}

const lineBytes = 64

// repMovsb copies n bytes upwards. The stores of the instruction are not ordered among each other,
// but all of them precede every later store (Intel SDM volume 3, section 9.2.4; AMD APM volume 2,
// section 7.4.1).
//
//go:noescape
func repMovsb(dst, src unsafe.Pointer, n uintptr)

// streamLines copies n bytes, a multiple of lineBytes that is not 0, to dst, which begins at a
// line. It ends with a fence of stores, because stores past the caches are not ordered with others.
//
//go:noescape
func streamLines(dst, src unsafe.Pointer, n uintptr)

// Ticks returns the processor's time stamp. Only differences are meaningful.
func Ticks() uint64
