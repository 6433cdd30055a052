package comm

// flat reports whether a collective, in which each rank has so many bytes for all, has all ranks send to rank 0,
// and rank 0 to all.
func (s *schedule) flat(bytes int) bool {
	t, n := s.collTuning(), len(s.group)
	return n > 2 && n <= t.flatRanks && n*bytes <= t.flatBytes
}

func (s *schedule) barrierFlat() {
	if s.rank != 0 {
		s.send(0, nil)
		s.recv(0, nil)
		s.wait()
		return
	}
	n := len(s.group)
	for r := 1; r < n; r++ {
		s.recv(r, nil)
	}
	s.wait()
	for r := 1; r < n; r++ {
		s.send(r, nil)
	}
}

// allreduceFlat has rank 0 combine what all have, in the order of ranks.
func (s *schedule) allreduceFlat(in, out []byte) {
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
	n, size := len(s.group), len(out)
	if in != nil {
		s.copy(out, in)
	}
	all := s.temp((n - 1) * size)
	at := func(r int) []byte { return all[(r-1)*size:][:size] }
	for r := 1; r < n; r++ {
		s.recv(r, at(r))
	}
	s.wait()
	acc := out
	for r := 1; r < n; r++ {
		s.combine(acc, at(r))
		acc = at(r)
	}
	s.copy(out, acc)
	for r := 1; r < n; r++ {
		s.send(r, out)
	}
}
