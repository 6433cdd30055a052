package coll

// Flat schedules are for ranks that share processor cores (crowdedTuning): every rank sends to rank
// 0, and rank 0 sends to every rank. Each rank but rank 0 has to run only twice.

// isFlat reports whether a collective with this many bytes of each rank takes a flat schedule.
func (s *Schedule) isFlat(bytes int) bool {
	t, n := s.tuning, s.size
	return n > 2 && n <= t.FlatRanks && n*bytes <= t.FlatBytes
}

func (s *Schedule) barrierFlat() {
	if s.rank != 0 {
		s.send(0, nil)
		s.recv(0, nil)
		s.wait()
		return
	}
	for r := 1; r < s.size; r++ {
		s.recv(r, nil)
	}
	s.wait()
	for r := 1; r < s.size; r++ {
		s.send(r, nil)
	}
}

// allreduceFlat has rank 0 combine the contributions of all ranks, in the order of
// allreduceDoubling.
func (s *Schedule) allreduceFlat(in, out []byte) {
	if s.rank != 0 {
		mine := in
		if in == nil {
			mine = out
		}
		s.send(0, mine)
		s.wait()
		s.recv(0, out)
		return
	}
	n, size := s.size, len(out)
	if in != nil {
		s.copy(out, in)
	}
	all := s.temp((n - 1) * size)
	at := func(r int) []byte {
		if r == 0 {
			return out
		}
		return all[(r-1)*size:][:size]
	}
	for r := 1; r < n; r++ {
		s.recv(r, at(r))
	}
	s.wait()
	s.copy(out, s.combineTree(at, s.folding(), 0, powerBelow(n)))
	for r := 1; r < n; r++ {
		s.send(r, out)
	}
}

// combineTree combines the data of the ranks with the numbers lo…hi−1, as combining.tree does. It
// returns the place of the result.
func (s *Schedule) combineTree(at func(rank int) []byte, f folding, lo, hi int) []byte {
	if hi-lo > 1 {
		mid := lo + (hi-lo)/2
		left, right := s.combineTree(at, f, lo, mid), s.combineTree(at, f, mid, hi)
		s.combine(left, right)
		return right
	}
	rank := f.rank(lo)
	if lo < f.extra {
		s.combine(at(rank-1), at(rank))
	}
	return at(rank)
}
