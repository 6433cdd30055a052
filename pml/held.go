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

// hold has a send wait until the peer has room for its announcement, and all that is sent to the
// peer later wait behind it.
func (pr *peer) hold(s *SendRequest) {
	pr.held.push(s)
	pr.barred = true
}

// release sends what is held, in order, as far as the peer has room now.
func (p *PML) release(pr *peer) {
	for pr.failing == nil && pr.stranded == nil && pr.held.head != nil {
		// It leaves the queue first: it may be complete, and begin again, before launch returns.
		s := pr.held.pop()
		if !s.launch() {
			pr.held.pushFront(s)
			return
		}
	}
	pr.barred = pr.failing != nil || pr.stranded != nil || pr.lost != nil
	p.tellLeft(pr)
}
