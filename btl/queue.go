package btl

import "iter"

// Queue holds operations in order, linked by their Next. Therefore an operation can be in only one
// queue at a time. The zero value is an empty queue.
type Queue struct {
	head, tail *Op
	n          int
}

// Len is the number of operations.
func (q *Queue) Len() int { return q.n }

// Empty reports whether there are no operations.
func (q *Queue) Empty() bool { return q.head == nil }

// All yields the operations in order. No operation may be removed meanwhile.
func (q *Queue) All() iter.Seq[*Op] {
	return func(yield func(*Op) bool) {
		for op := q.head; op != nil && yield(op); op = op.Next {
		}
	}
}

// Push adds an operation at the end.
func (q *Queue) Push(op *Op) {
	op.Next = nil
	if q.tail == nil {
		q.head = op
	} else {
		q.tail.Next = op
	}
	q.tail = op
	q.n++
}

// PushFront puts an operation back at the front.
func (q *Queue) PushFront(op *Op) {
	op.Next = q.head
	q.head = op
	if q.tail == nil {
		q.tail = op
	}
	q.n++
}

// Pop removes the first operation and returns it; nil if there is none.
func (q *Queue) Pop() *Op {
	op := q.head
	if op == nil {
		return nil
	}
	if q.head = op.Next; q.head == nil {
		q.tail = nil
	}
	op.Next = nil
	q.n--
	return op
}

// Remove removes an operation from any place in the queue. If the operation is not in the queue,
// nothing happens.
func (q *Queue) Remove(op *Op) {
	var prev *Op
	for o := q.head; o != nil; prev, o = o, o.Next {
		if o != op {
			continue
		}
		if prev == nil {
			q.head = op.Next
		} else {
			prev.Next = op.Next
		}
		if q.tail == op {
			q.tail = prev
		}
		op.Next = nil
		q.n--
		return
	}
}
