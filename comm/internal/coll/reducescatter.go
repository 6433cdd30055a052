package coll

// ReduceScatter makes the schedule of MPI_Reduce_scatter. ends says where the part of each rank
// ends, in bytes. in is nil for in place.
func (s *Schedule) ReduceScatter(in, out []byte, ends []int) {
	total := ends[len(ends)-1]
	s.agreed = total
	part := func(all []byte, r int) []byte {
		if r == 0 {
			return all[:ends[0]]
		}
		return all[ends[r-1]:ends[r]]
	}
	if total <= s.tuning.AllreduceDoublingBytes {
		all := out
		if in != nil {
			all = s.temp(total)
		}
		s.Allreduce(in, all)
		s.wait()
		s.copy(out[:len(part(all, s.rank))], part(all, s.rank))
		return
	}
	s.reduceScatterPairs(in, out, part)
}

// reduceScatterPairs sends each rank its part, the next rank first, while contributions to this
// rank's part arrive from the ranks before. If the order of ranks has to be kept, contributions of
// lower ranks, which arrive in descending order, become left operands of this rank's own.
// Contributions of higher ranks, also in descending order, are combined by themselves, and become
// the right operand at the end.
func (s *Schedule) reduceScatterPairs(in, out []byte, part func(all []byte, r int) []byte) {
	n := s.size
	have, result := in, out
	if in == nil {
		have, result = out, part(out, s.rank)
	}
	acc := part(have, s.rank)
	var above []byte
	for d := 1; d < n; d++ {
		to, from := up(s.rank, d, n), down(s.rank, d, n)
		give := part(have, to)
		switch {
		case s.Commutes || from < s.rank:
			s.merge(to, from, true, give, acc, result)
			acc = result
		case from < n-1:
			s.merge(to, from, true, give, above, above)
		default:
			above = s.temp(len(acc))
			s.trade(to, from, give, above)
		}
	}
	if above != nil {
		s.combine(acc, above)
		acc = above
	}
	s.wait() // until all of out is sent
	if len(acc) > 0 && &acc[0] != &out[0] {
		s.copy(out[:len(acc)], acc)
	}
}

// trade sends give to one rank and receives got from another, in the pieces of merge.
func (s *Schedule) trade(to, from int, give, got []byte) {
	giveCut, cut := s.cut(len(give), s.Elem), s.cut(len(got), s.Elem)
	for i := range max(giveCut.pieces, cut.pieces) {
		if i < giveCut.pieces {
			s.send(to, giveCut.of(give, i))
		}
		if i < cut.pieces {
			s.recv(from, cut.of(got, i))
		}
		s.wait()
	}
}
