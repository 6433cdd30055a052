package coll

// A builder of a reduction never writes to in, which is nil for in place. An operation is
// inout = in ∘ inout: its left operand, of the lower ranks, does not change, and its right operand
// becomes the result. The operands of an operation that commutes may change places.

// Reduce makes the schedule of MPI_Reduce. Only the root has out.
func (s *Schedule) Reduce(in, out []byte, root int) {
	n, t := s.size, s.tuning
	size := len(in)
	if in == nil {
		size = len(out)
	}
	s.agreed = size
	isChain := size > t.ReduceTreeBytes && (n == 2 || s.cut(size, s.Elem).pieces >= n/2)
	switch {
	case n == 1:
		s.copy(out[:len(in)], in)
	case size > 0 && !isChain && s.team.aligned > 0 && s.byHost(&meetReduceLong, size):
		s.reduceByHost(in, out, root)
	case size > 0 && s.meetsInArea(&meetReduceLong, size):
		m := meet{kind: &meetReduceLong, in: in, out: out, root: root, order: orderTree, byMessages: reduceByMessages}
		if s.isCombinedAtRoot(size) {
			m.kind = &meetReduce
		}
		if isChain {
			m.order = orderChain
		}
		s.meet(m)
	case isChain:
		s.reduceChain(in, out, root)
	case treeRoot(root, s.Commutes) == root:
		s.reduceTree(s.treeTo(root), in, out)
	case s.rank == root:
		if in == nil {
			in = out
		}
		s.reduceTree(s.treeTo(0), in, nil)
		s.wait()
		s.recv(0, out)
	case s.rank == 0:
		result := s.temp(size)
		s.reduceTree(s.treeTo(0), in, result)
		s.send(root, result)
	default:
		s.reduceTree(s.treeTo(0), in, nil)
	}
}

// treeRoot is where the tree of a reduction ends: in the order of ranks, at rank 0.
func treeRoot(root int, commutes bool) int {
	if commutes {
		return root
	}
	return 0
}

// tree is a binomial tree of some ranks: first, first+stride, first+2·stride … These have the
// places 0…n−1, of which the root is one. In the tree they have other numbers: see treePlace.
type tree struct {
	n          int
	root, self int // places of the root and of this rank
	stride     int
	first      int
}

// treeTo is the tree of all ranks.
func (s *Schedule) treeTo(root int) tree { return tree{n: s.size, root: root, self: s.rank, stride: 1} }

// rank is the rank with a number.
func (t tree) rank(v int) int { return t.first + t.stride*treePlace(v, t.root, t.n) }

// reduceTree is a binomial tree towards the root. A rank combines its contribution with the results
// of its children and sends the result to its parent. Only the root has out.
func (s *Schedule) reduceTree(t tree, in, out []byte) {
	n := t.n
	v := treeNumber(t.self, t.root, n)
	low := lowestBit(v, n)
	children := 0
	for d := 1; d < low && v+d < n; d *= 2 {
		children++
	}
	acc := in // the result so far, of this rank and of its subtree
	if in == nil {
		acc = out
	}
	// A child's result is received into the place where acc is not, and becomes acc. The two places
	// take turns, so that the last one is out.
	var place [2][]byte
	if v == 0 {
		place[0] = out
	} else if children > 0 {
		place[0] = s.temp(len(acc))
	}
	if children > 1 || in == nil && children > 0 {
		place[1] = s.temp(len(acc))
	}
	at := (children + 1) % 2
	if in == nil && v == 0 {
		at = 1
	}
	for d := 1; d < low && v+d < n; d *= 2 {
		s.recv(t.rank(v+d), place[at])
		s.wait()
		s.combine(acc, place[at])
		acc = place[at]
		at = 1 - at
	}
	switch {
	case v != 0:
		s.send(t.rank(v-low), acc)
	case at == 0:
		s.copy(out, acc)
	}
}

// reduceChain passes the vector from both ends of the ranks to the root, piece by piece. Each rank
// combines its own piece with the one that it receives, while the next one is under way. The order
// of ranks is kept.
func (s *Schedule) reduceChain(in, out []byte, root int) {
	if s.rank == root {
		s.reduceChainRoot(in, out)
		return
	}
	from, to := s.rank+1, s.rank-1 // ranks above the root send downwards
	if s.rank < root {
		from, to = to, from
	}
	cut := s.cut(len(in), s.Elem)
	if from < 0 || from >= s.size {
		for i := range cut.pieces {
			s.send(to, cut.of(in, i))
		}
		return
	}
	// The next piece is received while one is combined and sent.
	temp := [2][]byte{s.temp(min(cut.bytes, len(in))), s.temp(min(cut.bytes, len(in)))}
	var mine []byte
	if s.rank < root && !s.Commutes {
		mine = s.temp(min(cut.bytes, len(in))) // the right operand, which becomes the result
	}
	s.recv(from, temp[0][:len(cut.of(in, 0))])
	for i := range cut.pieces {
		own := cut.of(in, i)
		got := temp[i%2][:len(own)]
		s.wait()
		if i+1 < cut.pieces {
			s.recv(from, temp[(i+1)%2][:len(cut.of(in, i+1))])
		}
		if mine == nil {
			s.combine(own, got)
			s.send(to, got)
		} else {
			s.copy(mine[:len(own)], own)
			s.combine(got, mine[:len(own)])
			s.send(to, mine[:len(own)])
		}
	}
}

// reduceChainRoot combines the pieces that arrive from both sides with the root's own.
func (s *Schedule) reduceChainRoot(in, out []byte) {
	above, below := s.rank+1 < s.size, s.rank > 0
	first, second := s.rank+1, s.rank-1 // the neighbours that send pieces
	if !above && s.Commutes {
		above, below = true, false
		first = second
	}
	cut := s.cut(len(out), s.Elem)
	var got [2]struct{ above, below []byte } // pieces that must not be received into out
	for i := range got {
		if above && in == nil {
			got[i].above = s.temp(min(cut.bytes, len(out)))
		}
		if below {
			got[i].below = s.temp(min(cut.bytes, len(out)))
		}
	}
	receive := func(i int) {
		piece := cut.of(out, i)
		if above && in == nil {
			s.recv(first, got[i%2].above[:len(piece)])
		} else if above {
			s.recv(first, piece)
		}
		if below {
			s.recv(second, got[i%2].below[:len(piece)])
		}
	}
	receive(0)
	for i := range cut.pieces {
		s.wait()
		if i+1 < cut.pieces {
			receive(i + 1)
		}
		piece := cut.of(out, i)
		switch {
		case above && in != nil:
			s.combine(cut.of(in, i), piece)
		case above && s.Commutes:
			s.combine(got[i%2].above[:len(piece)], piece)
		case above:
			s.combine(piece, got[i%2].above[:len(piece)])
			s.copy(piece, got[i%2].above[:len(piece)])
		case in != nil:
			s.copy(piece, cut.of(in, i))
		}
		if below {
			s.combine(got[i%2].below[:len(piece)], piece)
		}
	}
}
