package pml

import "slices"

// ranges is the set of the bytes of a message that have arrived in fragments. Fragments arrive in
// any order, and twice if a rail failed or was late.
type ranges struct {
	list  []byteRange // in order, not touching each other; few, because rails hand out in order
	bytes int64       // how many bytes are in the set
}

// byteRange is the bytes from..to.
type byteRange struct{ from, to int64 }

func (s *ranges) reset() { s.list, s.bytes = s.list[:0], 0 }

// add puts from..to into the set. It returns how many of these bytes are new.
func (s *ranges) add(from, to int64) (fresh int64) {
	if from >= to {
		return 0
	}
	// list[i:j] are the ranges that the new one touches.
	i, _ := slices.BinarySearchFunc(s.list, from, func(r byteRange, from int64) int {
		if r.to < from {
			return -1
		}
		return 1
	})
	j, fresh := i, to-from
	merged := byteRange{from, to}
	for ; j < len(s.list) && s.list[j].from <= to; j++ {
		r := s.list[j]
		fresh -= max(min(r.to, to)-max(r.from, from), 0)
		merged.from, merged.to = min(merged.from, r.from), max(merged.to, r.to)
	}
	s.list = slices.Replace(s.list, i, j, merged)
	s.bytes += fresh
	return fresh
}
