package simhca

import "github.com/mpigo/mpigo/btl/ibverbs/verbs"

// sharedQueue is a shared receive queue.
type sharedQueue struct {
	d      *domain
	ring   []verbs.RecvWR
	head   uint64 // index of the next receive to take
	tail   uint64
	inUse  int // posted receives whose completions were not polled
	maxSGE int
	limit  int
	qps    []*queuePair
	broken bool
	gone   bool

	unacked int
}

func (d *domain) CreateSRQ(init verbs.SRQInit) (verbs.SRQ, error) {
	c := d.c
	defer c.f.enter().leave()
	const call = "ibv_create_srq"
	switch {
	case d.dead():
		return nil, goneError(call)
	case init.MaxWR < 1 || init.MaxWR > maxSRQWR, init.MaxSGE < 0 || init.MaxSGE > verbs.MaxSGE:
		return nil, invalid(call, "size out of range")
	case init.Limit < 0 || init.Limit > init.MaxWR:
		return nil, invalid(call, "limit out of range")
	}
	d.objects++
	return &sharedQueue{d: d, ring: make([]verbs.RecvWR, powerOfTwo(init.MaxWR)), maxSGE: max(init.MaxSGE, 1), limit: init.Limit}, nil
}

func (s *sharedQueue) at(i uint64) *verbs.RecvWR { return &s.ring[i&uint64(len(s.ring)-1)] }

func (s *sharedQueue) PostRecv(wrs []verbs.RecvWR) (int, error) {
	f := s.d.c.f
	defer f.enter().leave()
	const call = "ibv_post_srq_recv"
	if s.gone || s.broken || s.d.dead() {
		return 0, goneError(call)
	}
	for i := range wrs {
		if int(wrs[i].NumSGE) > s.maxSGE {
			return i, invalid(call, "too many scatter/gather elements")
		}
		if s.inUse == len(s.ring) {
			return i, noMemory(call, "")
		}
		*s.at(s.tail) = wrs[i]
		s.tail++
		s.inUse++
	}
	return len(wrs), nil
}

// take takes the next receive. It raises SRQ_LIMIT_REACHED once when fewer receives than the limit
// remain (InfiniBand error model, 3.3.4).
func (s *sharedQueue) take(wr *verbs.RecvWR) bool {
	if s.broken || s.head == s.tail {
		return false
	}
	*wr = *s.at(s.head)
	s.head++
	if s.limit > 0 && int(s.tail-s.head) < s.limit {
		s.limit = 0
		s.d.c.raise(verbs.AsyncEvent{Type: verbs.EventSRQLimitReached, SRQ: s})
	}
	return true
}

func (s *sharedQueue) SetLimit(limit int) error {
	f := s.d.c.f
	defer f.enter().leave()
	if s.gone || s.broken || s.d.dead() {
		return goneError("ibv_modify_srq")
	}
	if limit < 0 || limit > len(s.ring) {
		return invalid("ibv_modify_srq", "limit out of range")
	}
	s.limit = limit
	return nil
}

func (s *sharedQueue) Query() (verbs.SRQAttr, error) {
	f := s.d.c.f
	defer f.enter().leave()
	if s.gone || s.broken || s.d.dead() {
		return verbs.SRQAttr{}, goneError("ibv_query_srq")
	}
	return verbs.SRQAttr{MaxWR: len(s.ring), MaxSGE: s.maxSGE, Limit: s.limit}, nil
}

// fail raises SRQ_ERR. The queue accepts and returns no more receives, and its queue pairs fail,
// too (InfiniBand error model, 3.1.3).
func (s *sharedQueue) fail() {
	if s.broken {
		return
	}
	s.broken = true
	s.d.c.raise(verbs.AsyncEvent{Type: verbs.EventSRQErr, SRQ: s})
	for _, q := range s.qps {
		q.fail()
	}
}

func (s *sharedQueue) Destroy() error {
	c := s.d.c
	defer c.f.enter().leave()
	if s.gone {
		return goneError("ibv_destroy_srq")
	}
	if len(s.qps) > 0 || s.unacked > 0 {
		return busy("ibv_destroy_srq")
	}
	s.gone = true
	s.d.objects--
	c.dropEvents(func(ev verbs.AsyncEvent) bool { return ev.SRQ == verbs.SRQ(s) })
	return nil
}
