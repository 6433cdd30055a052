// Package memcopy copies the bytes of messages into memory that another processor has read before.
//
// Go's copy moves long blocks with vector stores. Each of them first fetches the line that it
// overwrites, although nothing of the old line is needed. The string instruction of processors with
// ERMS ("enhanced rep movsb"; Intel SDM volume 1, section 7.3.9.3) takes ownership of whole lines
// without fetching them. It costs some tens of nanoseconds to begin, so short copies use copy.
//
// The stores of the string instruction are not ordered among each other, but all of them precede
// every later store (Intel SDM volume 3, section 9.2.4; AMD APM volume 2, section 7.4.1). A flag
// that is stored after the copy therefore publishes it, as it does with copy.
package memcopy

// minBytes is the shortest copy for which the string instruction was measured to be faster
// (docs/evidence/performance.md).
const minBytes = 1 << 10

// ToShared copies src to the beginning of dst, memory that another processor will read. They must
// not overlap. It returns the number of bytes, the shorter length, as copy does.
func ToShared(dst, src []byte) int {
	if len(src) >= minBytes && usesString {
		return stringCopy(dst, src)
	}
	return copy(dst, src)
}
