package coll

import "unsafe"

// Arithmetic of ranks and of ranges of bytes.

// up is the rank d further on in a ring of n ranks; 0 ≤ d < n.
func up(r, d, n int) int {
	if r += d; r >= n {
		r -= n
	}
	return r
}

// down is the rank d further back in a ring of n ranks; 0 ≤ d < n.
func down(r, d, n int) int {
	if r -= d; r < 0 {
		r += n
	}
	return r
}

// powerBelow is the largest power of two that is not greater than n; n ≥ 1.
func powerBelow(n int) int {
	p := 1
	for p <= n/2 {
		p *= 2
	}
	return p
}

// lowestBit is the lowest bit that is set in v. For 0 it is the lowest power of two that is not
// less than n.
func lowestBit(v, n int) int {
	low := 1
	for low < n && v&low == 0 {
		low *= 2
	}
	return low
}

// treePlace is the place of number v in a tree of n ranks that a reduction goes up. The root has
// number 0. If n is a power of two, each aligned group of 2, 4, 8 … places is a subtree, for any
// place of the root. So a host with such a group may first combine the data of its own ranks.
func treePlace(v, root, n int) int {
	if powerBelow(n) == n {
		return v ^ root
	}
	return up(v, root, n)
}

// treeNumber is the inverse of treePlace.
func treeNumber(place, root, n int) int {
	if powerBelow(n) == n {
		return place ^ root
	}
	return down(place, root, n)
}

// share is where part i begins when total bytes, in elements of unit bytes, are divided into the
// given number of parts. For i = parts it is the end.
func share(total, unit, parts, i int) int {
	if i == parts || unit == 0 {
		return total
	}
	n := total / unit
	// i·n/parts, without an overflow.
	return (n/parts*i + n%parts*i/parts) * unit
}

// cut says how a range of bytes is cut into pieces, equally at both ends of a transfer.
type cut struct {
	bytes  int // of a piece; the last one may be shorter
	pieces int // at least one
}

// maxPieces bounds how many steps a long buffer makes.
const maxPieces = 1024

// cut cuts total bytes, in elements of unit bytes, into pieces of about Tuning.PieceBytes.
func (s *Schedule) cut(total, unit int) cut { return cutInto(s.tuning.PieceBytes, total, unit) }

// cutInto cuts into pieces of about this length.
func cutInto(piece, total, unit int) cut {
	unit = max(unit, 1)
	size := max(piece, total/maxPieces)
	size = max(size/unit*unit, unit)
	return cut{bytes: size, pieces: max((total+size-1)/size, 1)}
}

// of is piece i of buf. It is empty for i beyond the last piece.
func (c cut) of(buf []byte, i int) []byte {
	return buf[min(i*c.bytes, len(buf)):min((i+1)*c.bytes, len(buf))]
}

// part is the bytes of the ranks from…to−1 in a buffer with an equal part for each rank.
func (s *Schedule) part(all []byte, from, to int) []byte {
	size := len(all) / s.size
	return all[from*size : to*size]
}

// ownPart is this rank's part of a buffer with an equal part for each rank.
func (s *Schedule) ownPart(all []byte) []byte { return s.part(all, s.rank, s.rank+1) }

// Overlap reports whether two slices have bytes in common.
func Overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	at, bt := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return at < bt+uintptr(len(b)) && bt < at+uintptr(len(a))
}
