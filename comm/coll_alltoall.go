package comm

// Alltoall sends the first part of in to rank 0, the second to rank 1, and so on, and puts
// what the ranks send into out, in the order of ranks. in and out have one length
// everywhere, a multiple of Size(). nil in: what is to be sent is in out.
func Alltoall[T any](c *Comm, in, out []T) error {
	return c.alltoall(bytesOf(in), bytesOf(out), int(sizeOf[T]()), checkElem[T](c))
}

func (c *Comm) alltoall(in, out []byte, elem int, err error) error {
	s, err := c.begin("alltoall", err)
	if err != nil {
		return err
	}
	defer s.leave()
	if err := checkExchange(in, out, elem, len(c.group)); err != nil {
		return s.refuse(err)
	}
	s.alltoall(in, out)
	return s.run(c)
}

// checkExchange checks two wholes of n parts, in being nil for in place.
func checkExchange(in, out []byte, elem, n int) error {
	if in != nil && len(in) != len(out) {
		return lengthError("out", len(out), len(in), elem)
	}
	if n*elem > 0 && len(out)%(n*elem) != 0 {
		return unevenError("out", len(out), n, elem)
	}
	return checkApart(in, out)
}

func (s *schedule) alltoall(in, out []byte) {
	n, t := len(s.group), s.collTuning()
	size := len(out) / n
	s.agreed = len(out)
	if size <= t.alltoallBruckBytes && n >= t.alltoallBruckRanks {
		s.alltoallBruck(in, out)
		return
	}
	s.parts = s.parts[:0]
	for r := range n {
		s.parts = append(s.parts, s.part(out, r, r+1))
	}
	if in == nil {
		s.alltoallInPlace(s.parts)
		return
	}
	for r := range n {
		s.parts = append(s.parts, s.part(in, r, r+1))
	}
	s.alltoallPairs(s.parts[n:], s.parts[:n])
}

// alltoallPairs sends to the next rank while it receives from the one before, then to the
// second next, and so on: at any time every rank has as many to send to as to receive
// from. Several such exchanges are under way together if they are short. in and out are
// by rank.
func (s *schedule) alltoallPairs(in, out [][]byte) {
	n, flight := len(s.group), 0
	for d := 1; d < n; d++ {
		to, from := up(s.rank, d, n), down(s.rank, d, n)
		s.recv(from, out[from])
		s.send(to, in[to])
		if flight += max(len(in[to]), len(out[from])); flight >= s.collTuning().alltoallFlightBytes {
			s.wait()
			flight = 0
		}
	}
	s.copy(out[s.rank], in[s.rank])
}

// alltoallInPlace swaps parts with one rank after another. In round i those are partners
// whose ranks add up to i. parts are by rank.
func (s *schedule) alltoallInPlace(parts [][]byte) {
	n, room := len(s.group), 0
	s.inPlace = true
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

// alltoallBruck is Bruck's algorithm: a part that has to go d ranks up travels by the
// powers of two that d is made of, together with all others that go the same step.
func (s *schedule) alltoallBruck(in, out []byte) {
	n := len(s.group)
	size := len(out) / n
	if in == nil {
		in = out
	}
	// parts[d] is what has to go, at last what has come, d ranks up.
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
