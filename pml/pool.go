package pml

import "unsafe"

// pool keeps free objects for their next use. It is bounded, so that the memory of a burst is
// released.
type pool[T any] struct{ free []*T }

// maxFreeBytes is the total size of the objects that one pool keeps, without memory that they refer
// to.
const maxFreeBytes = 2 << 20

// most returns the largest number of objects that the pool keeps.
func (q *pool[T]) most() int { return maxFreeBytes / int(unsafe.Sizeof(*new(T))) }

// get takes an object out of the pool. It returns nil if the pool is empty.
func (q *pool[T]) get() *T {
	last := len(q.free) - 1
	if last < 0 {
		return nil
	}
	x := q.free[last]
	q.free = q.free[:last]
	return x
}

// put gives an object back. It reports false if the pool is full; the object is then garbage.
func (q *pool[T]) put(x *T) bool {
	if len(q.free) >= q.most() {
		return false
	}
	q.free = append(q.free, x)
	return true
}
