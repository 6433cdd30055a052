package comm

// Gather puts what each rank gives, of the same length everywhere, into out at the root,
// in the order of ranks: len(out) == Size()*len(in). Elsewhere out is not looked at. nil
// in at the root: its part is in its place in out.
func Gather[T any](c *Comm, in, out []T, root int) error {
	return c.gather(bytesOf(in), bytesOf(out), int(sizeOf[T]()), root, checkElem[T](c))
}

// Scatter cuts in at the root into one part for each rank, in the order of ranks, and
// puts them into their outs: len(in) == Size()*len(out). Elsewhere in is not looked at.
// nil out at the root: its part stays where it is, in in.
func Scatter[T any](c *Comm, in, out []T, root int) error {
	return c.scatter(bytesOf(in), bytesOf(out), int(sizeOf[T]()), root, checkElem[T](c))
}

// Allgather puts what each rank gives, of the same length everywhere, into out at every
// rank, in the order of ranks: len(out) == Size()*len(in). nil in: this rank's part is in
// its place in out.
func Allgather[T any](c *Comm, in, out []T) error {
	return c.allgather("allgather", bytesOf(in), bytesOf(out), int(sizeOf[T]()), checkElem[T](c))
}

func (c *Comm) gather(in, out []byte, elem, root int, err error) error {
	s, err := c.beginRooted("gather", root, err)
	if err != nil {
		return err
	}
	defer s.leave()
	if c.rank != root {
		s.gather(in, nil, root)
		return s.run(c)
	}
	if err := checkParts("out", in, out, elem, len(c.group)); err != nil {
		return s.refuse(err)
	}
	s.gather(in, out, root)
	return s.run(c)
}

func (c *Comm) scatter(in, out []byte, elem, root int, err error) error {
	s, err := c.beginRooted("scatter", root, err)
	if err != nil {
		return err
	}
	defer s.leave()
	if c.rank != root {
		s.scatter(nil, out, root)
		return s.run(c)
	}
	if err := checkParts("in", out, in, elem, len(c.group)); err != nil {
		return s.refuse(err)
	}
	s.scatter(in, out, root)
	return s.run(c)
}

func (c *Comm) allgather(call string, in, out []byte, elem int, err error) error {
	s, err := c.begin(call, err)
	if err != nil {
		return err
	}
	defer s.leave()
	if err := checkParts("out", in, out, elem, len(c.group)); err != nil {
		return s.refuse(err)
	}
	s.allgather(in, out)
	return s.run(c)
}

// checkParts checks the buffers of a rank that has its own part, nil for in place, and a
// whole of n parts.
func checkParts(whole string, part, all []byte, elem, n int) error {
	if part == nil {
		if n*elem > 0 && len(all)%(n*elem) != 0 {
			return unevenError(whole, len(all), n, elem)
		}
		return nil
	}
	if len(all) != n*len(part) {
		return lengthError(whole, len(all), n*len(part), elem)
	}
	return checkApart(part, all)
}

// ownPart is this rank's place in a whole of n equal parts.
func (s *schedule) ownPart(all []byte) []byte { return s.part(all, s.rank, s.rank+1) }

// part is the place of the ranks from…to−1 in a whole of as many equal parts as ranks.
func (s *schedule) part(all []byte, from, to int) []byte {
	size := len(all) / len(s.group)
	return all[from*size : to*size]
}

func (s *schedule) gather(in, out []byte, root int) {
	n, t := len(s.group), s.collTuning()
	size := len(in)
	if s.rank == root {
		if in != nil {
			s.copy(s.ownPart(out), in)
		}
		size = len(out) / n
	}
	s.agreed = size
	switch {
	case size <= t.gatherTreeBytes && n >= t.gatherTreeRanks:
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

// gatherTree is a binomial tree: a rank passes on the parts of its subtree together.
func (s *schedule) gatherTree(in, out []byte, root, size int) {
	n := len(s.group)
	v := s.fromRoot(root)
	low := lowestBit(v, n)
	if low == 1 && v != 0 {
		s.send(up(v-1, root, n), in)
		return
	}
	// The parts of this rank's subtree, in order of distance from the root. At the root,
	// only those that do not lie together in out are put here.
	var parts []byte
	if v != 0 {
		parts = s.temp(min(low, n-v) * size)
		s.copy(parts[:size], in)
	}
	var wrapped []byte // at most one subtree goes around the end of the ranks
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

// unwrap copies the parts of the ranks from first on, around the end, to their places.
func (s *schedule) unwrap(out, parts []byte, first, size int) {
	high := (len(s.group) - first) * size
	s.copy(out[first*size:], parts[:high])
	s.copy(out[:len(parts)-high], parts[high:])
}

func (s *schedule) scatter(in, out []byte, root int) {
	n, t := len(s.group), s.collTuning()
	size := len(out)
	if s.rank == root {
		if out != nil {
			s.copy(out, s.ownPart(in))
		}
		size = len(in) / n
	}
	s.agreed = size
	switch {
	case size <= t.gatherTreeBytes && n >= t.gatherTreeRanks:
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

// scatterTree is gatherTree turned round.
func (s *schedule) scatterTree(in, out []byte, root, size int) {
	n := len(s.group)
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
	// The largest subtree first: it has the longest way to go.
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

func (s *schedule) allgather(in, out []byte) {
	n := len(s.group)
	s.agreed = len(out)
	if n > 2 && len(out) <= s.collTuning().allgatherBruckBytes {
		s.allgatherBruck(in, out)
		return
	}
	if in != nil {
		s.copy(s.ownPart(out), in)
	}
	s.ring(s.rank, func(i int) []byte { return s.part(out, i, i+1) })
}

// allgatherBruck is Bruck's algorithm: in each round a rank sends all the parts it has
// to one that has none of them, and so doubles its own. A rank keeps the parts in
// the order that begins with its own.
func (s *schedule) allgatherBruck(in, out []byte) {
	n := len(s.group)
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
