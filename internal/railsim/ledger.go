package railsim

import (
	"slices"
	"unsafe"
)

// ledger records which bytes of a buffer rails have accepted.
type ledger struct {
	spans []span // in order, and not touching each other
}

type span struct{ from, to int64 }

// add adds bytes, and returns how many of them were recorded before.
func (l *ledger) add(s span) (again int64) {
	i := 0
	for i < len(l.spans) && l.spans[i].to < s.from {
		i++
	}
	k := i
	for ; k < len(l.spans) && l.spans[k].from <= s.to; k++ {
		o := l.spans[k]
		again += max(min(o.to, s.to)-max(o.from, s.from), 0)
		s.from, s.to = min(s.from, o.from), max(s.to, o.to)
	}
	l.spans = slices.Replace(l.spans, i, k, s)
	return again
}

// placeIn returns the span of a part of a buffer.
func placeIn(buf, part []byte) (s span, ok bool) {
	if len(buf) == 0 || len(part) == 0 {
		return span{}, false
	}
	from := uintptr(unsafe.Pointer(unsafe.SliceData(part))) - uintptr(unsafe.Pointer(unsafe.SliceData(buf)))
	return span{int64(from), int64(from) + int64(len(part))}, from < uintptr(len(buf))
}

// again returns how many bytes of a piece rails have accepted before.
func (j *job) again(piece []byte) int64 {
	for _, m := range j.messages {
		for _, buf := range [][]byte{m.out, m.in} {
			if s, ok := placeIn(buf, piece); ok {
				return m.accepted.add(s)
			}
		}
	}
	return 0 // a copy
}
