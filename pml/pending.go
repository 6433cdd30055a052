package pml

// sendQueue is a queue of sends, linked through them.
type sendQueue struct {
	head, tail *SendRequest
}

func (q *sendQueue) push(s *SendRequest) {
	s.nextPending = nil
	if q.tail == nil {
		q.head = s
	} else {
		q.tail.nextPending = s
	}
	q.tail = s
}

func (q *sendQueue) pushFront(s *SendRequest) {
	s.nextPending = q.head
	q.head = s
	if q.tail == nil {
		q.tail = s
	}
}

func (q *sendQueue) pop() *SendRequest {
	s := q.head
	q.head = s.nextPending
	if q.head == nil {
		q.tail = nil
	}
	s.nextPending = nil
	return s
}

// remove takes the sends that match out of the queue.
func (q *sendQueue) remove(matches func(s *SendRequest) bool) {
	all := *q
	*q = sendQueue{}
	for all.head != nil {
		if s := all.pop(); !matches(s) {
			q.push(s)
		}
	}
}

// launchPending launches the pending sends to a peer, in order, as far as its windows have room.
func (p *PML) launchPending(pr *peer) {
	for pr.pending.head != nil {
		// The send leaves the queue first: it may complete, and start again, before launch returns.
		s := pr.pending.pop()
		if !s.launch() {
			pr.pending.pushFront(s)
			return
		}
	}
	p.tellFinalized(pr)
}

// failUnmatched fails the sends to a peer that wait for it to match them, as far as they match. It
// then launches the other pending sends.
func (p *PML) failUnmatched(pr *peer, matches func(s *SendRequest) bool, err error) {
	pr.pending.remove(matches)
	p.sends.each(func(s *SendRequest) {
		if s.peer == pr && s.AwaitsMatch() && matches(s) {
			s.fail(err)
		}
	})
	p.launchPending(pr)
}
