package comm

// Bcast sends the root's buffer to every rank's. All buffers have the same length.
func Bcast[T any](c *Comm, buf []T, root int) error {
	return c.bcast(bytesOf(buf), root, checkElem[T](c))
}

func (c *Comm) bcast(buf []byte, root int, err error) error {
	s, err := c.beginRooted("bcast", root, err)
	if err != nil {
		return err
	}
	defer s.leave()
	s.bcast(buf, root)
	return s.run(c)
}

func (s *schedule) bcast(buf []byte, root int) {
	n, t := len(s.group), s.collTuning()
	s.agreed = len(buf)
	switch {
	case n <= 2 || len(buf) <= t.bcastTreeBytes:
		s.bcastTree(buf, root)
	case len(buf)/t.pieceBytes >= n:
		s.bcastChain(buf, root)
	default:
		s.bcastScatter(buf, root)
	}
}

// In trees, ranks are counted from the root: v is 0 there. The parent of v is v without
// its lowest set bit, and the subtree of v is v…v+lowest−1.

// fromRoot is the place of rank r when counted from the root; its inverse is up(v, root, n).
func (s *schedule) fromRoot(root int) int { return down(s.rank, root, len(s.group)) }

// lowestBit of v; for 0 the lowest power of two that is n or more.
func lowestBit(v, n int) int {
	low := 1
	for low < n && v&low == 0 {
		low *= 2
	}
	return low
}

// bcastTree is a binomial tree: every rank that has the message sends it to another that
// has not.
func (s *schedule) bcastTree(buf []byte, root int) {
	n := len(s.group)
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

// bcastChain hands the message on from rank to rank, piece by piece: each rank sends one
// piece while it receives the next.
func (s *schedule) bcastChain(buf []byte, root int) {
	n := len(s.group)
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

// bcastScatter gives every rank a part, down a tree; then the parts go round a ring.
func (s *schedule) bcastScatter(buf []byte, root int) {
	const unit = 64 // bytes: parts are whole cache lines
	n := len(s.group)
	v := s.fromRoot(root)
	part := func(from, to int) []byte { // of the ranks from…to−1, counted from the root
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

// ring lets n parts go round until every rank has all. At first a rank has the one of
// number v; the next rank has that of number v+1.
func (s *schedule) ring(v int, part func(i int) []byte) {
	n := len(s.group)
	for i := range n - 1 {
		s.send(up(s.rank, 1, n), part(down(v, i, n)))
		s.recv(down(s.rank, 1, n), part(down(v, i+1, n)))
		s.wait()
	}
}
