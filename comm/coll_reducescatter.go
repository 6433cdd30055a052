package comm

import (
	"fmt"
	"math"

	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
)

// ReduceScatter combines the slices in of all ranks, element by element, and puts one part of the
// result into out at each rank: rank 0 gets the first counts[0] elements, rank 1 the next
// counts[1], and so on. counts is the same at all ranks. len(in) is the sum of counts, and len(out)
// is counts[Rank()].
//
// In place: a rank passes nil as in, and its contribution is in out, which then has the length of
// the whole. The call puts the rank's part of the result at the front of out. The rest of out is
// undefined.
func ReduceScatter[T any](c *Comm, in, out []T, counts []int, op Op[T], opts ...CollOption) error {
	_, err := c.reduceScatter(blocking, bytesOf(in), bytesOf(out), counts, reductionOf(op, opts), elemOf[T]())
	return err
}

// ReduceScatterBlock is ReduceScatter with equal parts: len(in) == Size()*len(out).
//
// In place: a rank passes nil as in, and its contribution is in out, which then has the length of
// the whole. The call puts the rank's part of the result at the front of out. The rest of out is
// undefined.
func ReduceScatterBlock[T any](c *Comm, in, out []T, op Op[T], opts ...CollOption) error {
	_, err := c.reduceScatterBlock(blocking, bytesOf(in), bytesOf(out), reductionOf(op, opts), elemOf[T]())
	return err
}

func (c *Comm) reduceScatter(how coll.How, in, out []byte, counts []int, op coll.Reduction, typ elemType) (Request, error) {
	s, err := c.begin(how, calls.ReduceScatter, c.checkElem(typ))
	if err != nil {
		return Request{}, err
	}
	defer c.endCollective(s)
	if err := checkOp(op); err != nil {
		return Request{}, s.Refuse(err)
	}
	s.Ints, err = partEnds(s.Ints[:0], counts, len(c.group), op.Elem)
	if err == nil {
		err = checkReduceScatter(in, out, s.Ints, c.rank, op.Elem)
	}
	if err != nil {
		return Request{}, s.Refuse(err)
	}
	c.reduceWith(s, op)
	s.ReduceScatter(in, out, s.Ints)
	return c.run(s, typ)
}

func (c *Comm) reduceScatterBlock(how coll.How, in, out []byte, op coll.Reduction, typ elemType) (Request, error) {
	s, err := c.begin(how, calls.ReduceScatterBlock, c.checkElem(typ))
	if err != nil {
		return Request{}, err
	}
	defer c.endCollective(s)
	n, total := len(c.group), max(len(in), len(out))
	switch {
	case op.Op == nil:
		err = errNoOp
	case in == nil:
		err = checkParts("out", nil, out, op.Elem, n)
	case len(in) != n*len(out):
		err = lengthError("in", len(in), n*len(out), op.Elem)
	default:
		err = checkApart(in, out)
	}
	if err != nil {
		return Request{}, s.Refuse(err)
	}
	s.Ints = s.Ints[:0]
	for r := range n {
		s.Ints = append(s.Ints, total/n*(r+1))
	}
	c.reduceWith(s, op)
	s.ReduceScatter(in, out, s.Ints)
	return c.run(s, typ)
}

// partEnds appends to dst the end of each rank's part, in bytes, for parts that lie one after the
// other.
func partEnds(dst, counts []int, ranks, elem int) ([]int, error) {
	if len(counts) != ranks {
		return dst, fmt.Errorf("%w: %d counts for %d ranks", ErrCount, len(counts), ranks)
	}
	end := 0
	for r, count := range counts {
		if count < 0 || count > (math.MaxInt-end)/max(elem, 1) {
			return dst, fmt.Errorf("%w: the count of rank %d is %d", ErrCount, r, count)
		}
		end += count * elem
		dst = append(dst, end)
	}
	return dst, nil
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
