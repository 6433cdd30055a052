package comm

// Reduce combines what all ranks give, element by element, and leaves the result in out
// at the root. in has the same length at every rank, as has out at the root; elsewhere
// out is not looked at. nil in at the root: its part is in out.
func Reduce[T any](c *Comm, in, out []T, op Op[T], root int, opts ...CollOption) error {
	return c.reduce(bytesOf(in), bytesOf(out), reductionOf(op, opts), root, checkElem[T](c))
}

// Allreduce combines what all ranks give, element by element, and leaves the result in
// out at every rank, the same bits everywhere. in and out have one length at every
// rank. nil in: this rank's part is in out.
func Allreduce[T any](c *Comm, in, out []T, op Op[T], opts ...CollOption) error {
	return c.allreduce(bytesOf(in), bytesOf(out), reductionOf(op, opts), checkElem[T](c))
}

// reduction is an operation whose type is forgotten.
type reduction struct {
	op       combiner // nil if there is none
	elem     int      // size of an element
	commutes bool
}

func reductionOf[T any](op Op[T], opts []CollOption) reduction {
	r := reduction{elem: int(sizeOf[T]()), commutes: commutes(opts)}
	if op != nil {
		r.op = elemOp[T](op)
	}
	return r
}

func (c *Comm) reduce(in, out []byte, op reduction, root int, err error) error {
	s, err := c.beginRooted("reduce", root, err)
	if err != nil {
		return err
	}
	defer s.leave()
	if c.rank == root {
		err = checkReduction(in, out, op)
	} else {
		err, out = op.check(), nil
	}
	if err != nil {
		return s.refuse(err)
	}
	s.reduction = op
	s.reduce(in, out, root)
	return s.run(c)
}

func (c *Comm) allreduce(in, out []byte, op reduction, err error) error {
	s, err := c.begin("allreduce", err)
	if err != nil {
		return err
	}
	defer s.leave()
	if err := checkReduction(in, out, op); err != nil {
		return s.refuse(err)
	}
	s.reduction = op
	s.allreduce(in, out)
	return s.run(c)
}

// check checks that there is an operation.
func (r reduction) check() error {
	if r.op == nil {
		return errNoOp
	}
	return nil
}

// checkReduction checks the arguments of a rank whose result is as long as what it gives.
func checkReduction(in, out []byte, op reduction) error {
	switch {
	case op.op == nil:
		return errNoOp
	case in == nil:
		return nil
	case len(in) != len(out):
		return lengthError("out", len(out), len(in), op.elem)
	}
	return checkApart(in, out)
}

// The builders below take in as nil for in place, and never write to it. An operation
// is inout = in ∘ inout: its left operand, of the lower ranks, survives, and its right one
// becomes the result. For an operation that commutes the two may change places.

func (s *schedule) reduce(in, out []byte, root int) {
	n, t := len(s.group), s.collTuning()
	size := len(in)
	if in == nil {
		size = len(out)
	}
	s.agreed = size
	switch {
	case n == 1:
		s.copy(out[:len(in)], in)
	case size > t.reduceTreeBytes && (n == 2 || s.cut(size, s.elem).pieces >= n/2):
		s.reduceChain(in, out, root)
	case s.commutes || root == 0:
		s.reduceTree(in, out, root)
	case s.rank == root:
		// In the order of ranks the tree ends at rank 0.
		if in == nil {
			in = out
		}
		s.reduceTree(in, nil, 0)
		s.wait()
		s.recv(0, out)
	case s.rank == 0:
		result := s.temp(size)
		s.reduceTree(in, result, 0)
		s.send(root, result)
	default:
		s.reduceTree(in, nil, 0)
	}
}

// reduceTree is a binomial tree towards the root: a rank combines what it has with the
// result of the ranks above it, and passes that on. Only the root has out.
func (s *schedule) reduceTree(in, out []byte, root int) {
	n := len(s.group)
	v := s.fromRoot(root)
	low := lowestBit(v, n)
	children := 0
	for d := 1; d < low && v+d < n; d *= 2 {
		children++
	}
	acc := in // the result so far, of this rank and those above it
	if in == nil {
		acc = out
	}
	// A child's result is received where acc is not, and becomes acc. The two places
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
		s.recv(up(v+d, root, n), place[at])
		s.wait()
		s.combine(acc, place[at])
		acc = place[at]
		at = 1 - at
	}
	switch {
	case v != 0:
		s.send(up(v-low, root, n), acc)
	case at == 0:
		s.copy(out, acc)
	}
}

// reduceChain passes the vector on from both ends of the ranks to the root, piece by
// piece. Each rank combines its own piece with what it receives, while the next is
// on its way. The order of ranks is kept.
func (s *schedule) reduceChain(in, out []byte, root int) {
	if s.rank == root {
		s.reduceChainRoot(in, out)
		return
	}
	from, to := s.rank+1, s.rank-1 // above the root the way is down
	if s.rank < root {
		from, to = to, from
	}
	cut := s.cut(len(in), s.elem)
	if from < 0 || from >= len(s.group) {
		for i := range cut.pieces {
			s.send(to, cut.of(in, i))
		}
		return
	}
	// While one piece is combined and sent on, the next is received.
	temp := [2][]byte{s.temp(min(cut.bytes, len(in))), s.temp(min(cut.bytes, len(in)))}
	var mine []byte
	if s.rank < root && !s.commutes {
		mine = s.temp(min(cut.bytes, len(in))) // the right operand, to be written to
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

// reduceChainRoot combines the pieces that come from both sides with the root's own.
func (s *schedule) reduceChainRoot(in, out []byte) {
	above, below := s.rank+1 < len(s.group), s.rank > 0
	first, second := s.rank+1, s.rank-1 // where pieces come from
	if !above && s.commutes {
		above, below = true, false
		first = second
	}
	cut := s.cut(len(out), s.elem)
	var got [2]struct{ above, below []byte } // pieces that may not go to out at once
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
		case above && s.commutes:
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
