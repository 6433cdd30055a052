package comm

import (
	"fmt"
	"math"
)

// ReduceScatter combines what all ranks give, element by element, and leaves at each rank
// its part of the result: of the first counts[0] elements that of rank 0, and so on.
// counts is the same at every rank, in has as many elements as they are together, and
// out counts[Rank()]. nil in: what this rank gives is in out, which then has the length of all,
// and its part of the result is left at the front of out; the rest of out is not defined.
func ReduceScatter[T any](c *Comm, in, out []T, counts []int, op Op[T], opts ...CollOption) error {
	return c.reduceScatter(bytesOf(in), bytesOf(out), counts, reductionOf(op, opts), checkElem[T](c))
}

// ReduceScatterBlock is ReduceScatter with equal parts: len(in) == Size()*len(out). nil in:
// what this rank gives is in out, and its part of the result is left at the front of out.
func ReduceScatterBlock[T any](c *Comm, in, out []T, op Op[T], opts ...CollOption) error {
	return c.reduceScatterBlock(bytesOf(in), bytesOf(out), reductionOf(op, opts), checkElem[T](c))
}

func (c *Comm) reduceScatter(in, out []byte, counts []int, op reduction, err error) error {
	s, err := c.begin("reducescatter", err)
	if err != nil {
		return err
	}
	defer s.leave()
	ends, err := s.partEnds(counts, op)
	if err == nil {
		err = checkReduceScatter(in, out, ends, s.rank, op.elem)
	}
	if err != nil {
		return s.refuse(err)
	}
	s.reduction = op
	s.reduceScatter(in, out, ends)
	return s.run(c)
}

func (c *Comm) reduceScatterBlock(in, out []byte, op reduction, err error) error {
	s, err := c.begin("reducescatterblock", err)
	if err != nil {
		return err
	}
	defer s.leave()
	n, total := len(s.group), max(len(in), len(out))
	switch {
	case op.op == nil:
		err = errNoOp
	case in == nil:
		err = checkParts("out", nil, out, op.elem, n)
	case len(in) != n*len(out):
		err = lengthError("in", len(in), n*len(out), op.elem)
	default:
		err = checkApart(in, out)
	}
	if err != nil {
		return s.refuse(err)
	}
	ends := s.ints[:0]
	for r := range n {
		ends = append(ends, total/n*(r+1))
	}
	s.ints = ends
	s.reduction = op
	s.reduceScatter(in, out, ends)
	return s.run(c)
}

// partEnds is where each rank's part ends, in bytes, when they lie one after the other.
func (s *schedule) partEnds(counts []int, op reduction) ([]int, error) {
	if op.op == nil {
		return nil, errNoOp
	}
	if len(counts) != len(s.group) {
		return nil, fmt.Errorf("%w: %d counts for %d ranks", ErrCount, len(counts), len(s.group))
	}
	ends, end := s.ints[:0], 0
	for r, count := range counts {
		if count < 0 || count > (math.MaxInt-end)/max(op.elem, 1) {
			return nil, fmt.Errorf("%w: the count of rank %d is %d", ErrCount, r, count)
		}
		end += count * op.elem
		ends = append(ends, end)
	}
	s.ints = ends
	return ends, nil
}

func checkReduceScatter(in, out []byte, ends []int, rank, elem int) error {
	total := ends[len(ends)-1]
	begin := 0
	if rank > 0 {
		begin = ends[rank-1]
	}
	switch own := ends[rank] - begin; {
	case in == nil && len(out) != total:
		return lengthError("out", len(out), total, elem)
	case in == nil:
		return nil
	case len(in) != total:
		return lengthError("in", len(in), total, elem)
	case len(out) != own:
		return lengthError("out", len(out), own, elem)
	}
	return checkApart(in, out)
}

// reduceScatter takes where the parts of the ranks end.
func (s *schedule) reduceScatter(in, out []byte, ends []int) {
	total := ends[len(ends)-1]
	s.agreed = total
	part := func(all []byte, r int) []byte {
		if r == 0 {
			return all[:ends[0]]
		}
		return all[ends[r-1]:ends[r]]
	}
	if total <= s.collTuning().allreduceDoublingBytes {
		all := out
		if in != nil {
			all = s.temp(total)
		}
		s.allreduce(in, all)
		s.wait()
		s.copy(out[:len(part(all, s.rank))], part(all, s.rank))
		return
	}
	s.reduceScatterPairs(in, out, part)
}

// reduceScatterPairs sends each rank its part, the next first, while this rank's part comes
// from the ones before. If the order of ranks is to be kept, what comes from lower ranks, in
// descending order, goes to the left of this rank's own; what comes from higher ranks, in
// descending order too, is combined by itself, and goes to the right at last.
func (s *schedule) reduceScatterPairs(in, out []byte, part func(all []byte, r int) []byte) {
	n := len(s.group)
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
		case s.commutes || from < s.rank:
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
	s.wait() // until nothing of out is to be sent any more
	if len(acc) > 0 && &acc[0] != &out[0] {
		s.copy(out[:len(acc)], acc)
	}
}

// trade sends give to one rank and receives from another, in the pieces of merge.
func (s *schedule) trade(to, from int, give, got []byte) {
	giveCut, cut := s.cut(len(give), s.elem), s.cut(len(got), s.elem)
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
