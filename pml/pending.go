package pml

// sendQueue is a queue of sends, linked through them.
type sendQueue struct {
	head, tail *SendRequest
}

func (q *sendQueue) push(s *SendRequest) {
	s.behind = nil
	if q.tail == nil {
		q.head = s
	} else {
		q.tail.behind = s
	}
	q.tail = s
}

func (q *sendQueue) pushFront(s *SendRequest) {
	s.behind = q.head
	q.head = s
	if q.tail == nil {
		q.tail = s
	}
}

func (q *sendQueue) pop() *SendRequest {
	s := q.head
	q.head = s.behind
	if q.head == nil {
		q.tail = nil
	}
	s.behind = nil
	return s
}

// remove takes out of the queue what is so.
func (q *sendQueue) remove(isSo func(s *SendRequest) bool) {
	all := *q
	*q = sendQueue{}
	for all.head != nil {
		if s := all.pop(); !isSo(s) {
			q.push(s)
		}
	}
}

// release sends what is pending, in order, as far as the peer has room now.
func (p *PML) release(pr *peer) {
	for pr.pending.head != nil {
		// It leaves the queue first: it may be complete, and begin again, before launch returns.
		s := pr.pending.pop()
		if !s.launch() {
			pr.pending.pushFront(s)
			return
		}
	}
	p.tellFinalized(pr)
}
