package coll

// Alltoall makes the schedule of MPI_Alltoall. in is nil for in place.
func (s *Schedule) Alltoall(in, out []byte) {
	n, t := s.size, s.tuning
	size := len(out) / n
	s.agreed = len(out)
	if s.meetsInArea(&meetAlltoall, size) {
		s.meet(meet{kind: &meetAlltoall, in: in, out: out, byMessages: alltoallByMessages})
		return
	}
	if size <= t.AlltoallBruckBytes && n >= t.AlltoallBruckRanks {
		s.alltoallBruck(in, out)
		return
	}
	s.Parts = s.Parts[:0]
	for r := range n {
		s.Parts = append(s.Parts, s.part(out, r, r+1))
	}
	if in == nil {
		s.inPlace = size > 0 // without elements, in place or not is the same
		s.alltoallInPlace(s.Parts)
		return
	}
	for r := range n {
		s.Parts = append(s.Parts, s.part(in, r, r+1))
	}
	s.alltoallPairs(s.Parts[n:], s.Parts[:n])
}

// alltoallPairs sends to the next rank while it receives from the one before, then sends to the
// rank after that, and so on. So at any time every rank has as many ranks to send to as to receive
// from. Several such exchanges are under way together, up to Tuning.AlltoallFlightBytes. in and out
// are by rank.
func (s *Schedule) alltoallPairs(in, out [][]byte) {
	n, flight := s.size, 0
	for d := 1; d < n; d++ {
		to, from := up(s.rank, d, n), down(s.rank, d, n)
		s.recv(from, out[from])
		s.send(to, in[to])
		if flight += max(len(in[to]), len(out[from])); flight >= s.tuning.AlltoallFlightBytes {
			s.wait()
			flight = 0
		}
	}
	s.copy(out[s.rank], in[s.rank])
}

// alltoallInPlace swaps parts with one rank after another. In step i, two ranks are partners if
// they add up to i modulo the number of ranks. parts are by rank.
func (s *Schedule) alltoallInPlace(parts [][]byte) {
	n, room := s.size, 0
	for _, p := range parts {
		room = max(room, len(p))
	}
	temp := s.temp(room)
	for i := range n {
		peer := down(i, s.rank, n)
		if peer == s.rank {
			continue
		}
		part := parts[peer]
		s.send(peer, part)
		s.recv(peer, temp[:len(part)])
		s.wait()
		s.copy(part, temp[:len(part)])
	}
}

// alltoallBruck is Bruck's algorithm. A part that has to go d ranks up goes by the powers of two
// that add up to d, each time together with all other parts that go as far.
func (s *Schedule) alltoallBruck(in, out []byte) {
	n := s.size
	size := len(out) / n
	if in == nil {
		in = out
	}
	// part(d) has to go d ranks up, or, at the end, has come that far.
	parts := s.temp(n * size)
	part := func(d int) []byte { return parts[d*size : (d+1)*size] }
	high := (n - s.rank) * size
	s.copy(parts[:high], in[s.rank*size:])
	s.copy(parts[high:], in[:s.rank*size])
	room := (n + 1) / 2 * size
	give, got := s.temp(room), s.temp(room)
	for step := 1; step < n; step *= 2 {
		used := 0
		for d := step; d < n; d++ {
			if d&step != 0 {
				s.copy(give[used:used+size], part(d))
				used += size
			}
		}
		s.send(up(s.rank, step, n), give[:used])
		s.recv(down(s.rank, step, n), got[:used])
		s.wait()
		used = 0
		for d := step; d < n; d++ {
			if d&step != 0 {
				s.copy(part(d), got[used:used+size])
				used += size
			}
		}
	}
	for d := range n {
		from := down(s.rank, d, n)
		s.copy(s.part(out, from, from+1), part(d))
	}
}
