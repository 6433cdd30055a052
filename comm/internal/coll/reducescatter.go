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
	if s.Commutes && total <= s.tuning.ReduceScatterHalvingBytes {
		s.reduceScatterHalving(in, out, ends)
		return
	}
	s.reduceScatterPairs(in, out, part)
}

// reduceScatterHalving is the first half of Rabenseifner's algorithm, from the greatest distance
// on: in each step two ranks share their work, as in allreduceHalving, and each keeps the half that
// has its own part. The order of ranks is not kept.
func (s *Schedule) reduceScatterHalving(in, out []byte, ends []int) {
	f := s.folding()
	have := in
	if in == nil {
		have = out
	}
	// at is where the part of a rank begins, first the first rank that a number stands for.
	at := func(rank int) int {
		if rank == 0 {
			return 0
		}
		return ends[rank-1]
	}
	first := func(number int) int { return number + min(number, f.extra) }
	own := out[:ends[s.rank]-at(s.rank)]
	if f.number < 0 {
		cut := s.cut(len(have), s.Elem)
		for i := range cut.pieces {
			s.send(s.rank+1, cut.of(have, i))
		}
		s.wait() // until all of out is sent
		s.recv(s.rank+1, own)
		return
	}
	acc := s.temp(len(have))
	if s.rank < 2*f.extra {
		s.merge(nobody, s.rank-1, true, nil, have, acc)
		have = acc
	}
	lo, hi := 0, f.power
	for d := f.power / 2; d > 0; d /= 2 {
		keepLo, keepHi, giveLo, giveHi := lo, lo+d, lo+d, hi
		if f.number&d != 0 {
			keepLo, keepHi, giveLo, giveHi = lo+d, hi, lo, lo+d
		}
		lo, hi = keepLo, keepHi
		from, to := at(first(lo)), at(first(hi))
		peer := f.rank(f.number ^ d)
		s.merge(peer, peer, true, have[at(first(giveLo)):at(first(giveHi))], have[from:to], acc[from:to])
		have = acc
	}
	if s.rank < 2*f.extra {
		s.send(s.rank-1, acc[at(s.rank-1):at(s.rank)])
	}
	s.wait() // until all of out is sent
	s.copy(own, have[at(s.rank):ends[s.rank]])
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
