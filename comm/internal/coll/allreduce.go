package coll

// Allreduce makes the schedule of MPI_Allreduce. in is nil for in place.
func (s *Schedule) Allreduce(in, out []byte) {
	s.agreed = len(out)
	switch {
	case s.size == 1:
		s.copy(out[:len(in)], in)
	case len(out) > 0 && s.team.aligned > 0 && s.byHost(&meetAllreduceLong, len(out)):
		s.allreduceByHost(in, out)
	case len(out) == 0 || !s.meetsInArea(&meetAllreduceLong, len(out)):
		s.allreduceByMessages(in, out)
	default:
		m := meet{kind: &meetAllreduceLong, in: in, out: out, byMessages: allreduceByMessages}
		if len(out) <= min(s.tuning.SharedShortBytes, s.area.Block) {
			m.kind = &meetAllreduce
		}
		if s.isRing(len(out)) {
			m.order = orderRing
		}
		s.meet(m)
	}
}

// isRing reports whether an allreduce of this many bytes takes the ring algorithm.
func (s *Schedule) isRing(bytes int) bool {
	return bytes > s.tuning.AllreduceDoublingBytes && s.Commutes && powerBelow(s.size) != s.size
}

func (s *Schedule) allreduceByMessages(in, out []byte) {
	switch {
	case s.isFlat(len(out)):
		s.allreduceFlat(in, out)
	case len(out) <= s.tuning.AllreduceDoublingBytes:
		s.allreduceDoubling(s.folding(), in, out)
	case s.isRing(len(out)):
		s.allreduceRing(in, out)
	default:
		s.allreduceHalving(s.folding(), in, out)
	}
}

// folding reduces the ranks to a power of two. Of the first 2·extra ranks, an even rank sends its
// contribution to the next rank, and gets the result from it. The other ranks have the numbers
// 0…power−1, in order of rank.
type folding struct {
	power, extra int
	number       int // of this rank; −1 if it has sent its contribution to the next rank
	first        int // rank
	stride       int // from rank to rank
}

func (s *Schedule) folding() folding { return foldingOf(s.size, s.rank) }

// foldingOf is the folding of n ranks at one of them.
func foldingOf(n, rank int) folding {
	f := folding{power: powerBelow(n), stride: 1}
	f.extra = n - f.power
	switch {
	case rank >= 2*f.extra:
		f.number = rank - f.extra
	case rank%2 == 1:
		f.number = rank / 2
	default:
		f.number = -1
	}
	return f
}

// rank returns the rank with a number.
func (f folding) rank(number int) int {
	if number < f.extra {
		return f.first + (2*number+1)*f.stride
	}
	return f.first + (number+f.extra)*f.stride
}

// allreduceDoubling has pairs of ranks exchange their whole results, in each step at twice the
// distance of the step before. Both ranks of a pair combine in the order of ranks, so they get the
// same bits with any operation.
func (s *Schedule) allreduceDoubling(f folding, in, out []byte) {
	if f.number < 0 {
		mine := in
		if in == nil {
			mine = out
		}
		s.send(s.rank+1, mine)
		s.wait()
		s.recv(s.rank+1, out)
		return
	}
	// acc is the result so far. It is in at first, and out or temp later.
	acc, inOut := in, false
	if in == nil {
		acc, inOut = out, true
	}
	var temp []byte
	d := 1 // distance in numbers; 0 stands for the rank that sends its contribution
	if s.rank < 2*f.extra {
		d = 0
	}
	for ; d < f.power; d = max(2*d, 1) {
		peer := s.rank - 1
		if d > 0 {
			peer = f.rank(f.number ^ d)
			s.send(peer, acc)
		}
		if peer < s.rank && !inOut && temp == nil { // acc is in, which must not change
			s.copy(out, in)
			acc, inOut = out, true
		}
		got := out
		if inOut {
			if temp == nil {
				temp = s.temp(len(out))
			}
			got = temp
		}
		s.recv(peer, got)
		s.wait()
		if peer < s.rank {
			s.combine(got, acc)
		} else {
			s.combine(acc, got)
			acc, inOut = got, !inOut
		}
	}
	if !inOut {
		s.copy(out, acc)
	}
	if s.rank < 2*f.extra {
		s.send(s.rank-1, out)
	}
}

// allreduceHalving is Rabenseifner's algorithm. In each step two ranks, at twice the distance of
// the step before, share their work: each sends half of its remaining range to the other, and
// combines the other half. Then the ranks exchange the combined parts in the opposite order. The
// order of ranks is kept.
func (s *Schedule) allreduceHalving(f folding, in, out []byte) {
	have := in
	if in == nil {
		have = out
	}
	if f.number < 0 {
		cut := s.cut(len(have), s.Elem)
		for i := range cut.pieces {
			s.send(s.rank+1, cut.of(have, i))
		}
		s.wait()
		s.recv(s.rank+1, out)
		return
	}
	if s.rank < 2*f.extra {
		s.merge(nobody, s.rank-1, true, nil, have, out)
		have = out
	}
	at := func(part int) int { return share(len(out), s.Elem, f.power, part) }
	lo, hi := 0, f.power // the parts that this rank works on
	for d := 1; d < f.power; d *= 2 {
		mid := lo + (hi-lo)/2
		keepLo, keepHi, giveLo, giveHi := lo, mid, mid, hi
		if f.number&d != 0 {
			keepLo, keepHi, giveLo, giveHi = mid, hi, lo, mid
		}
		peer := f.rank(f.number ^ d)
		s.merge(peer, peer, peer < s.rank, have[at(giveLo):at(giveHi)], have[at(keepLo):at(keepHi)], out[at(keepLo):at(keepHi)])
		have = out
		lo, hi = keepLo, keepHi
	}
	for d := f.power / 2; d > 0; d /= 2 {
		peer := f.rank(f.number ^ d)
		s.send(peer, out[at(lo):at(hi)])
		if f.number&d == 0 {
			s.recv(peer, out[at(hi):at(2*hi-lo)])
			hi = 2*hi - lo
		} else {
			s.recv(peer, out[at(2*lo-hi):at(lo)])
			lo = 2*lo - hi
		}
		s.wait()
	}
	if s.rank < 2*f.extra {
		s.send(s.rank-1, out)
	}
}

// allreduceRing passes the parts of the vector round all ranks. Each rank combines its
// contribution, until every part is complete at one rank. Then the parts go round once more. The
// order of ranks is not kept.
func (s *Schedule) allreduceRing(in, out []byte) {
	n := s.size
	have := in
	if in == nil {
		have = out
	}
	part := func(i int) (from, to int) {
		return share(len(out), s.Elem, n, i), share(len(out), s.Elem, n, i+1)
	}
	for i := range n - 1 {
		give := out
		if i == 0 {
			give = have
		}
		giveLo, giveHi := part(down(s.rank, i+1, n))
		lo, hi := part(down(down(s.rank, i+1, n), 1, n))
		s.merge(up(s.rank, 1, n), down(s.rank, 1, n), true, give[giveLo:giveHi], have[lo:hi], out[lo:hi])
	}
	s.ring(s.rank, func(i int) []byte {
		lo, hi := part(i)
		return out[lo:hi]
	})
}

// nobody as a destination of merge: nothing is sent.
const nobody = -1

// merge sends give to one rank, and combines the data from another rank with mine, into result,
// which is mine or does not overlap it. left: the received data is the left operand; it is ignored
// if the operation commutes. Pieces are combined while the next ones are under way.
func (s *Schedule) merge(to, from int, left bool, give, mine, result []byte) {
	inPlace := len(mine) == 0 || &mine[0] == &result[0]
	giveCut, cut := s.cut(len(give), s.Elem), s.cut(len(mine), s.Elem)
	if to == nobody {
		giveCut.pieces = 0
	}
	if s.Commutes { // the order that needs no copy
		left = inPlace
	}
	direct := !left && !inPlace // what arrives goes to result at once
	var temp [2][]byte
	defer s.untemp(s.used)
	if !direct {
		room := min(cut.bytes, len(mine))
		temp = [2][]byte{s.temp(room), s.temp(room)}
	}
	got := func(i int) []byte {
		if direct {
			return cut.of(result, i)
		}
		return temp[i%2][:len(cut.of(mine, i))]
	}
	exchange := func(i int) {
		if i < giveCut.pieces {
			s.send(to, giveCut.of(give, i))
		}
		if i < cut.pieces {
			s.recv(from, got(i))
		}
	}
	exchange(0)
	for i := range max(giveCut.pieces, cut.pieces) {
		s.wait()
		exchange(i + 1)
		own, res := cut.of(mine, i), cut.of(result, i)
		switch {
		case i >= cut.pieces:
		case direct:
			s.combine(own, res)
		case left:
			if !inPlace {
				s.copy(res, own)
			}
			s.combine(got(i), res)
		default:
			s.combine(own, got(i))
			s.copy(res, got(i))
		}
	}
}
