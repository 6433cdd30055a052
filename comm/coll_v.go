package comm

import "fmt"

// The variants with a length for each rank.

// Gatherv is Gather of parts of different lengths: at the root, counts[r] elements of
// rank r are put at out[displs[r]:]. Parts must not overlap; what is between them stays
// as it was. Elsewhere out, counts and displs are not looked at. nil displs: the parts lie one
// after the other. nil in at the root: its part is in its place in out.
func Gatherv[T any](c *Comm, in, out []T, counts, displs []int, root int) error {
	return c.gatherv(bytesOf(in), bytesOf(out), layoutOf[T](counts, displs), root, checkElem[T](c))
}

// Scatterv is Scatter of parts of different lengths: in[displs[r]:] of the root has
// counts[r] elements for rank r, which is the length of its out. Elsewhere in, counts
// and displs are not looked at. nil displs: the parts lie one after the other. nil out at
// the root: its part stays where it is, in in.
func Scatterv[T any](c *Comm, in, out []T, counts, displs []int, root int) error {
	return c.scatterv(bytesOf(in), bytesOf(out), layoutOf[T](counts, displs), root, checkElem[T](c))
}

// Allgatherv is Allgather of parts of different lengths: counts[r] elements of rank r are
// put at out[displs[r]:]. counts are the same at every rank. Parts must not overlap; what
// is between them stays as it was. nil displs: the parts lie one after the other. nil in: this
// rank's part is in its place in out.
func Allgatherv[T any](c *Comm, in, out []T, counts, displs []int) error {
	return c.allgatherv(bytesOf(in), bytesOf(out), layoutOf[T](counts, displs), checkElem[T](c))
}

// Alltoallv is Alltoall of parts of different lengths: scounts[r] elements at
// in[sdispls[r]:] go to rank r, and rcounts[r] elements from there are put at
// out[rdispls[r]:]. What one rank sends another is as long as that one expects. Parts of out must not
// overlap. nil displacements: the parts lie one after the other. nil in: what goes to
// rank r is where what comes from there is put, as long; scounts and sdispls are not looked at.
func Alltoallv[T any](c *Comm, in []T, scounts, sdispls []int, out []T, rcounts, rdispls []int) error {
	return c.alltoallv(bytesOf(in), layoutOf[T](scounts, sdispls), bytesOf(out), layoutOf[T](rcounts, rdispls),
		checkElem[T](c))
}

// layout says where the ranks' parts are in a buffer.
type layout struct {
	counts, displs []int
	elem           int
}

func layoutOf[T any](counts, displs []int) layout { return layout{counts, displs, int(sizeOf[T]())} }

// parts cuts a buffer into the parts of all ranks, which are appended to dst.
func (l layout) parts(dst [][]byte, what string, buf []byte, n int) ([][]byte, error) {
	if len(l.counts) != n {
		return dst, fmt.Errorf("%w: %d counts of %s for %d ranks", ErrCount, len(l.counts), what, n)
	}
	if l.displs != nil && len(l.displs) != n {
		return dst, fmt.Errorf("%w: %d displacements of %s for %d ranks", ErrCount, len(l.displs), what, n)
	}
	room, end := perElem(len(buf), l.elem), 0
	for r, count := range l.counts {
		if l.displs != nil {
			end = l.displs[r]
		}
		if l.elem == 0 {
			room = max(room, end+count) // elements without size are anywhere
		}
		// In an order that cannot overflow.
		if count < 0 || end < 0 || end > room || count > room-end {
			return dst, fmt.Errorf("%w: rank %d has %d elements at %d of %s, which has %d", ErrCount, r, count, end, what, room)
		}
		dst = append(dst, buf[end*l.elem:(end+count)*l.elem])
		end += count
	}
	return dst, nil
}

// checkOwn checks a rank's own part, nil for in place, against its place in the whole.
func checkOwn(what string, own, place []byte, elem int) error {
	if own == nil {
		return nil
	}
	if len(own) != len(place) {
		return lengthError(what, len(own), len(place), elem)
	}
	return checkApart(own, place)
}

func (c *Comm) gatherv(in, out []byte, l layout, root int, err error) error {
	s, err := c.beginRooted("gatherv", root, err)
	if err != nil {
		return err
	}
	defer s.leave()
	if s.rank != root {
		s.send(root, in)
		return s.run(c)
	}
	s.parts, err = l.parts(s.parts[:0], "out", out, len(s.group))
	if err == nil {
		err = checkOwn("in", in, s.parts[root], l.elem)
	}
	if err != nil {
		return s.refuse(err)
	}
	for d := 1; d < len(s.group); d++ {
		r := up(root, d, len(s.group))
		s.recv(r, s.parts[r])
	}
	if in != nil {
		s.copy(s.parts[root], in)
	}
	return s.run(c)
}

func (c *Comm) scatterv(in, out []byte, l layout, root int, err error) error {
	s, err := c.beginRooted("scatterv", root, err)
	if err != nil {
		return err
	}
	defer s.leave()
	if s.rank != root {
		s.recv(root, out)
		return s.run(c)
	}
	s.parts, err = l.parts(s.parts[:0], "in", in, len(s.group))
	if err == nil {
		err = checkOwn("out", out, s.parts[root], l.elem)
	}
	if err != nil {
		return s.refuse(err)
	}
	for d := 1; d < len(s.group); d++ {
		r := up(root, d, len(s.group))
		s.send(r, s.parts[r])
	}
	if out != nil {
		s.copy(out, s.parts[root])
	}
	return s.run(c)
}

func (c *Comm) allgatherv(in, out []byte, l layout, err error) error {
	s, err := c.begin("allgatherv", err)
	if err != nil {
		return err
	}
	defer s.leave()
	s.parts, err = l.parts(s.parts[:0], "out", out, len(s.group))
	if err == nil {
		err = checkOwn("in", in, s.parts[s.rank], l.elem)
	}
	if err != nil {
		return s.refuse(err)
	}
	s.allgatherv(in, s.parts)
	return s.run(c)
}

func (s *schedule) allgatherv(in []byte, parts [][]byte) {
	n, total := len(s.group), 0
	for _, p := range parts {
		total += len(p)
	}
	s.agreed = total
	if in != nil {
		s.copy(parts[s.rank], in)
	}
	if total > s.collTuning().allgatherBruckBytes {
		s.ring(s.rank, func(i int) []byte { return parts[i] })
		return
	}
	for d := 1; d < n; d++ {
		to, from := up(s.rank, d, n), down(s.rank, d, n)
		s.send(to, parts[s.rank])
		s.recv(from, parts[from])
	}
}

func (c *Comm) alltoallv(in []byte, sl layout, out []byte, rl layout, err error) error {
	s, err := c.begin("alltoallv", err)
	if err != nil {
		return err
	}
	defer s.leave()
	n := len(s.group)
	s.parts = s.parts[:0]
	if in != nil {
		s.parts, err = sl.parts(s.parts, "in", in, n)
	}
	if err == nil {
		s.parts, err = rl.parts(s.parts, "out", out, n)
	}
	if err == nil && in != nil {
		give, got := s.parts[:n], s.parts[n:]
		if len(give[s.rank]) != len(got[s.rank]) {
			err = fmt.Errorf("%w: this rank sends itself %d elements and expects %d", ErrCount,
				perElem(len(give[s.rank]), sl.elem), perElem(len(got[s.rank]), rl.elem))
		} else {
			err = checkApart(give[s.rank], got[s.rank])
		}
	}
	if err != nil {
		return s.refuse(err)
	}
	if in == nil {
		s.alltoallInPlace(s.parts)
	} else {
		s.alltoallPairs(s.parts[:n], s.parts[n:])
	}
	return s.run(c)
}
