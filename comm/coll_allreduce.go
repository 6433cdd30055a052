package comm

func (s *schedule) allreduce(in, out []byte) {
	n := len(s.group)
	s.agreed = len(out)
	switch {
	case n == 1:
		s.copy(out[:len(in)], in)
	case s.flat(len(out)):
		s.allreduceFlat(in, out)
	case len(out) <= s.collTuning().allreduceDoublingBytes:
		s.allreduceDoubling(in, out)
	case s.commutes && powerBelow(n) != n:
		s.allreduceRing(in, out)
	default:
		s.allreduceHalving(in, out)
	}
}

// folding makes a power of two out of the ranks: of the first 2·extra, those that are
// even give what they have to the next, and get the result from it. The others have
// numbers 0…power−1, in order of rank.
type folding struct {
	power, extra int
	number       int // −1 for a rank that gave
}

func (s *schedule) folding() folding {
	f := folding{power: powerBelow(len(s.group))}
	f.extra = len(s.group) - f.power
	switch {
	case s.rank >= 2*f.extra:
		f.number = s.rank - f.extra
	case s.rank%2 == 1:
		f.number = s.rank / 2
	default:
		f.number = -1
	}
	return f
}

// rank of the one with a number.
func (f folding) rank(number int) int {
	if number < f.extra {
		return 2*number + 1
	}
	return number + f.extra
}

// allreduceDoubling has pairs of ranks exchange all they have: in each round, at twice
// the distance of the last. Both of a pair combine in the order of ranks, which
// gives them the same bits whatever the operation.
func (s *schedule) allreduceDoubling(in, out []byte) {
	f := s.folding()
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
	// What this rank has is in acc: in, to begin with, then out or temp.
	acc, inOut := in, false
	if in == nil {
		acc, inOut = out, true
	}
	var temp []byte
	d := 1 // distance in numbers; 0 is the rank that gives
	if s.rank < 2*f.extra {
		d = 0
	}
	for ; d < f.power; d = max(2*d, 1) {
		peer := s.rank - 1
		if d > 0 {
			peer = f.rank(f.number ^ d)
			s.send(peer, acc)
		}
		if peer < s.rank && !inOut && temp == nil { // acc is still in, which is not written to
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

// allreduceHalving is Rabenseifner's algorithm. In each round a pair of ranks, at twice
// the distance of the last, share the work between them: each gives away half of what it
// has left and combines the other half. Then the parts are exchanged on the same way
// back. The order of ranks is kept.
func (s *schedule) allreduceHalving(in, out []byte) {
	f := s.folding()
	have := in
	if in == nil {
		have = out
	}
	if f.number < 0 {
		cut := s.cut(len(have), s.elem)
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
	at := func(part int) int { return share(len(out), s.elem, f.power, part) }
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

// allreduceRing lets the parts of the vector go round all ranks, each of which combines
// its own, until every part is complete at one rank; then the parts go round once more. The
// order of ranks is not kept.
func (s *schedule) allreduceRing(in, out []byte) {
	n := len(s.group)
	have := in
	if in == nil {
		have = out
	}
	part := func(i int) (from, to int) {
		return share(len(out), s.elem, n, i), share(len(out), s.elem, n, i+1)
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

// nobody to send to.
const nobody = -1

// merge sends give to one rank, and combines what it gets from another with mine, into
// result, which is mine or apart from it. What it gets is the left operand or the right one, if that
// matters. Pieces are combined while the next are on their way.
func (s *schedule) merge(to, from int, left bool, give, mine, result []byte) {
	inPlace := len(mine) == 0 || &mine[0] == &result[0]
	giveCut, cut := s.cut(len(give), s.elem), s.cut(len(mine), s.elem)
	if to == nobody {
		giveCut.pieces = 0
	}
	if s.commutes { // whatever suits
		left = inPlace
	}
	direct := !left && !inPlace // what comes goes to the result at once
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
