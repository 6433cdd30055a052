package comm

// Scan leaves in out, at each rank, what the ranks up to and including this one give,
// combined element by element in their order. in and out have one length at every rank.
// nil in: this rank's part is in out.
func Scan[T any](c *Comm, in, out []T, op Op[T], opts ...CollOption) error {
	return c.scan("scan", bytesOf(in), bytesOf(out), reductionOf(op, opts), checkElem[T](c))
}

// Exscan is Scan without this rank's own part. At rank 0, which has nobody before it, out stays
// as it was.
func Exscan[T any](c *Comm, in, out []T, op Op[T], opts ...CollOption) error {
	return c.scan("exscan", bytesOf(in), bytesOf(out), reductionOf(op, opts), checkElem[T](c))
}

func (c *Comm) scan(call string, in, out []byte, op reduction, err error) error {
	s, err := c.begin(call, err)
	if err != nil {
		return err
	}
	defer s.leave()
	if err := checkReduction(in, out, op); err != nil {
		return s.refuse(err)
	}
	s.reduction = op
	if call == "scan" {
		s.scan(in, out)
	} else {
		s.exscan(in, out)
	}
	return s.run(c)
}

func (s *schedule) scan(in, out []byte) {
	s.agreed = len(out)
	if len(out) > s.collTuning().scanDoublingBytes {
		s.scanChain(in, out)
		return
	}
	if in != nil {
		s.copy(out, in)
	}
	s.scanDoubling(out, 0)
}

// scanDoubling turns what the ranks from first on have in acc into its prefixes. In each
// round a rank passes what it has to another, twice as far on as in the last: after
// rounds with d = 1, 2, …, acc is of this rank and the 2d−1 before it.
func (s *schedule) scanDoubling(acc []byte, first int) {
	n := len(s.group)
	if s.rank < first {
		return
	}
	var got []byte
	if s.rank > first {
		got = s.temp(len(acc))
	}
	for d := 1; d < n; d *= 2 {
		s.wait()
		if s.rank+d < n {
			s.send(s.rank+d, acc)
		}
		if s.rank-d >= first {
			s.recv(s.rank-d, got)
			s.wait()
			s.combine(got, acc)
		}
	}
}

// scanChain passes the prefix on from rank to rank, piece by piece.
func (s *schedule) scanChain(in, out []byte) {
	if in != nil {
		s.copy(out, in)
	}
	s.chain(out, func(i int, got, piece []byte) []byte {
		if got != nil {
			s.combine(got, piece)
		}
		return piece
	})
}

// chain receives each piece of a vector like out from the rank before, except at rank 0,
// has step combine it, and sends what step returns to the next rank. While one piece is
// combined, the next is on its way; what step returned is sent when it is called again.
func (s *schedule) chain(out []byte, step func(i int, got, piece []byte) []byte) {
	cut := s.cut(len(out), s.elem)
	var got [2][]byte
	receive := func(i int) {
		if s.rank > 0 && i < cut.pieces {
			s.recv(s.rank-1, got[i%2][:len(cut.of(out, i))])
		}
	}
	if s.rank > 0 {
		room := min(cut.bytes, len(out))
		got = [2][]byte{s.temp(room), s.temp(room)}
	}
	receive(0)
	for i := range cut.pieces {
		piece := cut.of(out, i)
		s.wait()
		receive(i + 1)
		var here []byte
		if s.rank > 0 {
			here = got[i%2][:len(piece)]
		}
		if give := step(i, here, piece); s.rank+1 < len(s.group) {
			s.send(s.rank+1, give)
		}
	}
}

func (s *schedule) exscan(in, out []byte) {
	s.agreed = len(out)
	if in == nil {
		in = out
	}
	if len(out) > s.collTuning().scanDoublingBytes {
		s.exscanChain(in, out)
		return
	}
	// Everyone takes the part of the rank before; of those the prefixes are made.
	n := len(s.group)
	if s.rank+1 < n {
		s.send(s.rank+1, in)
	}
	if s.rank > 0 {
		got := s.temp(len(out))
		s.recv(s.rank-1, got)
		s.wait()
		s.copy(out, got)
		s.scanDoubling(out, 1)
	}
}

// exscanChain is scanChain that keeps what comes, and passes on what it makes of it.
func (s *schedule) exscanChain(in, out []byte) {
	cut := s.cut(len(out), s.elem)
	var give []byte
	if s.rank > 0 && s.rank+1 < len(s.group) {
		give = s.temp(min(cut.bytes, len(out)))
	}
	s.chain(out, func(i int, got, piece []byte) []byte {
		own := cut.of(in, i)
		if s.rank == 0 {
			return own
		}
		var next []byte
		if s.rank+1 < len(s.group) {
			next = give[:len(piece)]
			s.copy(next, own)
			s.combine(got, next)
		}
		s.copy(piece, got)
		return next
	})
}
