package coll

// Bcast makes the schedule of MPI_Bcast.
func (s *Schedule) Bcast(buf []byte, root int) {
	n, t := s.size, s.tuning
	s.agreed = len(buf)
	switch {
	case s.byHost(&meetBcast, len(buf)):
		s.bcastByHost(buf, root)
	case s.meetsInArea(&meetBcast, len(buf)):
		m := meet{kind: &meetBcast, root: root, byMessages: bcastByMessages}
		if s.rank == root {
			m.in = buf
		} else {
			m.out = buf
		}
		s.meet(m)
	case n <= 2 || len(buf) <= t.BcastTreeBytes:
		s.bcastTree(buf, root)
	case len(buf)/t.PieceBytes >= n:
		s.bcastChain(buf, root)
	default:
		s.bcastScatter(buf, root)
	}
}

// In these trees, ranks are counted from the root, which is v = 0. The parent of v is v without its
// lowest set bit, and the subtree of v is v…v+lowest−1.

// fromRoot is this rank when counted from the root. Its inverse is up(v, root, n).
func (s *Schedule) fromRoot(root int) int { return down(s.rank, root, s.size) }

// bcastTree is a binomial tree: in each step every rank that has the message sends it to a rank
// that does not have it.
func (s *Schedule) bcastTree(buf []byte, root int) {
	n := s.size
	v := s.fromRoot(root)
	low := lowestBit(v, n)
	if v != 0 {
		s.recv(up(v-low, root, n), buf)
		s.wait()
	}
	for child := low / 2; child > 0; child /= 2 {
		if v+child < n {
			s.send(up(v+child, root, n), buf)
		}
	}
}

// bcastChain passes the message from rank to rank, piece by piece. Each rank sends one piece while
// it receives the next one.
func (s *Schedule) bcastChain(buf []byte, root int) {
	n := s.size
	v := s.fromRoot(root)
	cut := s.cut(len(buf), 1)
	for i := range cut.pieces {
		if v != 0 {
			s.recv(down(s.rank, 1, n), cut.of(buf, i))
		}
		if i > 0 && v != n-1 {
			s.send(up(s.rank, 1, n), cut.of(buf, i-1))
		}
		if v != 0 {
			s.wait()
		}
	}
	if v != n-1 {
		s.send(up(s.rank, 1, n), cut.of(buf, cut.pieces-1))
	}
}

// bcastScatter scatters the message down a tree. Then the parts go round a ring.
func (s *Schedule) bcastScatter(buf []byte, root int) {
	const unit = 64 // bytes, so that parts are whole cache lines
	n := s.size
	v := s.fromRoot(root)
	part := func(from, to int) []byte { // the parts of ranks from…to−1, counted from the root
		return buf[share(len(buf), unit, n, from):share(len(buf), unit, n, min(to, n))]
	}
	low := lowestBit(v, n)
	if v != 0 {
		s.recv(up(v-low, root, n), part(v, v+low))
		s.wait()
	}
	for child := low / 2; child > 0; child /= 2 {
		if v+child < n {
			s.send(up(v+child, root, n), part(v+child, v+2*child))
		}
	}
	s.wait()
	s.ring(v, func(i int) []byte { return part(i, i+1) })
}

// ring passes a part of each rank round all ranks, until every rank has all parts. At first this
// rank has part v, and the next rank has part v+1.
func (s *Schedule) ring(v int, part func(i int) []byte) {
	n := s.size
	for i := range n - 1 {
		s.send(up(s.rank, 1, n), part(down(v, i, n)))
		s.recv(down(s.rank, 1, n), part(down(v, i+1, n)))
		s.wait()
	}
}
