package coll

// Scan makes the schedule of MPI_Scan. in is nil for in place.
func (s *Schedule) Scan(in, out []byte) {
	s.agreed = len(out)
	if len(out) > s.tuning.ScanDoublingBytes {
		s.scanChain(in, out)
		return
	}
	if in != nil {
		s.copy(out, in)
	}
	s.scanDoubling(out, 0)
}

// scanDoubling replaces acc, at the ranks from first on, by its prefixes in the order of ranks. In
// each step a rank sends acc to another rank, twice as far on as in the step before. After the step
// with distance d, acc covers this rank and the 2d−1 ranks before it.
func (s *Schedule) scanDoubling(acc []byte, first int) {
	n := s.size
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

// scanChain passes the prefixes from rank to rank, piece by piece.
func (s *Schedule) scanChain(in, out []byte) {
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

// chain receives each piece of a vector that is as long as out from the rank before, except at rank
// 0, and calls step, which combines it. It sends the piece that step returns to the next rank. The
// next piece is under way while one is combined. Before step is called again, the piece that it
// returned has been sent.
func (s *Schedule) chain(out []byte, step func(i int, got, piece []byte) []byte) {
	cut := s.cut(len(out), s.Elem)
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
		if give := step(i, here, piece); s.rank+1 < s.size {
			s.send(s.rank+1, give)
		}
	}
}

// Exscan makes the schedule of MPI_Exscan. in is nil for in place.
func (s *Schedule) Exscan(in, out []byte) {
	s.agreed = len(out)
	if in == nil {
		in = out
	}
	if len(out) > s.tuning.ScanDoublingBytes {
		s.exscanChain(in, out)
		return
	}
	// Each rank takes the contribution of the rank before, and scanDoubling makes the prefixes of
	// these.
	n := s.size
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

// exscanChain is scanChain in which a rank keeps the prefix that it receives, and sends the one
// that includes its own contribution.
func (s *Schedule) exscanChain(in, out []byte) {
	cut := s.cut(len(out), s.Elem)
	var give []byte
	if s.rank > 0 && s.rank+1 < s.size {
		give = s.temp(min(cut.bytes, len(out)))
	}
	s.chain(out, func(i int, got, piece []byte) []byte {
		own := cut.of(in, i)
		if s.rank == 0 {
			return own
		}
		var next []byte
		if s.rank+1 < s.size {
			next = give[:len(piece)]
			s.copy(next, own)
			s.combine(got, next)
		}
		s.copy(piece, got)
		return next
	})
}
