package coll

// Gather makes the schedule of MPI_Gather. in is nil at the root for in place. Only the root has
// out.
func (s *Schedule) Gather(in, out []byte, root int) {
	n, t := s.size, s.tuning
	size := len(in)
	if s.rank == root {
		if in != nil {
			s.copy(s.ownPart(out), in)
		}
		size = len(out) / n
	}
	s.agreed = size
	switch {
	case size <= t.GatherTreeBytes && n >= t.GatherTreeRanks:
		s.gatherTree(in, out, root, size)
	case s.rank != root:
		s.send(root, in)
	default:
		for d := 1; d < n; d++ {
			r := up(root, d, n)
			s.recv(r, s.part(out, r, r+1))
		}
	}
}

// gatherTree is a binomial tree. A rank sends the parts of its subtree to its parent in one
// message.
func (s *Schedule) gatherTree(in, out []byte, root, size int) {
	n := s.size
	v := s.fromRoot(root)
	low := lowestBit(v, n)
	if low == 1 && v != 0 {
		s.send(up(v-1, root, n), in)
		return
	}
	// parts has the parts of this rank's subtree, in order of distance from the root. The root
	// receives into out.
	var parts []byte
	if v != 0 {
		parts = s.temp(min(low, n-v) * size)
		s.copy(parts[:size], in)
	}
	var wrapped []byte // the parts of the one subtree that goes round the end of the ranks
	wrappedChild := 0
	for d := 1; d < low && v+d < n; d *= 2 {
		count := min(d, n-v-d)
		child := up(v+d, root, n)
		switch {
		case v != 0:
			s.recv(child, parts[d*size:(d+count)*size])
		case child+count <= n:
			s.recv(child, s.part(out, child, child+count))
		default:
			wrapped, wrappedChild = s.temp(count*size), child
			s.recv(child, wrapped)
		}
	}
	s.wait()
	if v != 0 {
		s.send(up(v-low, root, n), parts)
		return
	}
	if wrapped != nil {
		s.unwrap(out, wrapped, wrappedChild, size)
	}
}

// unwrap copies parts to their places in out. The parts are those of the ranks from first on, and
// wrap round the end of the ranks.
func (s *Schedule) unwrap(out, parts []byte, first, size int) {
	high := (s.size - first) * size
	s.copy(out[first*size:], parts[:high])
	s.copy(out[:len(parts)-high], parts[high:])
}

// Scatter makes the schedule of MPI_Scatter. Only the root has in. out is nil at the root for in
// place.
func (s *Schedule) Scatter(in, out []byte, root int) {
	n, t := s.size, s.tuning
	size := len(out)
	if s.rank == root {
		if out != nil {
			s.copy(out, s.ownPart(in))
		}
		size = len(in) / n
	}
	s.agreed = size
	switch {
	case size <= t.GatherTreeBytes && n >= t.GatherTreeRanks:
		s.scatterTree(in, out, root, size)
	case s.rank != root:
		s.recv(root, out)
	default:
		for d := 1; d < n; d++ {
			r := up(root, d, n)
			s.send(r, s.part(in, r, r+1))
		}
	}
}

// scatterTree is gatherTree in the opposite direction.
func (s *Schedule) scatterTree(in, out []byte, root, size int) {
	n := s.size
	v := s.fromRoot(root)
	low := lowestBit(v, n)
	if low == 1 && v != 0 {
		s.recv(up(v-1, root, n), out)
		return
	}
	var parts []byte
	if v != 0 {
		parts = s.temp(min(low, n-v) * size)
		s.recv(up(v-low, root, n), parts)
		s.wait()
		s.copy(out, parts[:size])
	}
	// The largest subtree comes first, because it is the deepest.
	for d := low / 2; d > 0; d /= 2 {
		if v+d >= n {
			continue
		}
		count := min(d, n-v-d)
		child := up(v+d, root, n)
		switch {
		case v != 0:
			s.send(child, parts[d*size:(d+count)*size])
		case child+count <= n:
			s.send(child, s.part(in, child, child+count))
		default:
			wrapped := s.temp(count * size)
			high := (n - child) * size
			s.copy(wrapped[:high], in[child*size:])
			s.copy(wrapped[high:], in[:len(wrapped)-high])
			s.send(child, wrapped)
		}
	}
}

// Allgather makes the schedule of MPI_Allgather. in is nil for in place.
func (s *Schedule) Allgather(in, out []byte) {
	n := s.size
	s.agreed = len(out)
	if s.meetsInArea(&meetAllgather, len(out)/n) {
		s.meet(meet{kind: &meetAllgather, in: in, out: out, byMessages: allgatherByMessages})
		return
	}
	// Bruck's algorithm copies everything once more, and takes fewer steps than the ring.
	steps := n - 1
	for d := 1; d < n; d *= 2 {
		steps--
	}
	if steps > 0 && len(out) <= s.tuning.AllgatherBruckBytes*steps {
		s.allgatherBruck(in, out)
		return
	}
	if in != nil {
		s.copy(s.ownPart(out), in)
	}
	s.ring(s.rank, func(i int) []byte { return s.part(out, i, i+1) })
}

// allgatherBruck is Bruck's algorithm. In each step a rank sends all the parts that it has to a
// rank that has none of them. So the number of parts that a rank has doubles. A rank keeps the
// parts in the order that begins with its own.
func (s *Schedule) allgatherBruck(in, out []byte) {
	n := s.size
	size := len(out) / n
	parts := s.temp(len(out))
	if in == nil {
		in = s.ownPart(out)
	}
	s.copy(parts[:size], in)
	for d := 1; d < n; d *= 2 {
		count := min(d, n-d)
		s.send(down(s.rank, d, n), parts[:count*size])
		s.recv(up(s.rank, d, n), parts[d*size:(d+count)*size])
		s.wait()
	}
	s.unwrap(out, parts, s.rank, size)
}
