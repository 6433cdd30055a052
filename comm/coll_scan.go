package comm

import (
	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
)

// Scan combines, at each rank, the slices in of all ranks from 0 to this one into out, element by
// element and in the order of ranks. in and out have the same length at all ranks.
//
// In place: a rank passes nil as in, and its contribution is in out.
func Scan[T any](c *Comm, in, out []T, op Op[T], opts ...CollOption) error {
	_, err := c.scan(blocking, calls.Scan, bytesOf(in), bytesOf(out), reductionOf(op, opts), elemOf[T]())
	return err
}

// Exscan is Scan without this rank's own contribution. At rank 0, out does not change.
//
// In place: a rank passes nil as in, and its contribution is in out.
func Exscan[T any](c *Comm, in, out []T, op Op[T], opts ...CollOption) error {
	_, err := c.scan(blocking, calls.Exscan, bytesOf(in), bytesOf(out), reductionOf(op, opts), elemOf[T]())
	return err
}

func (c *Comm) scan(how coll.How, call calls.ID, in, out []byte, op coll.Reduction, typ elemType) (Request, error) {
	s, err := c.begin(how, call, c.checkElem(typ))
	if err != nil {
		return Request{}, err
	}
	defer c.endCollective(s)
	if err := checkReduction(in, out, op); err != nil {
		return Request{}, s.Refuse(err)
	}
	c.reduceWith(s, op)
	if call == calls.Scan {
		s.Scan(in, out)
	} else {
		s.Exscan(in, out)
	}
	return c.run(s, typ)
}
