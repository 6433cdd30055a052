package comm

import (
	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
)

// Reduce combines the slices in of all ranks, element by element, into out at the root. in at every
// rank and out at the root have the same length. Other ranks ignore out.
//
// In place: the root passes nil as in, and its contribution is in out.
func Reduce[T any](c *Comm, in, out []T, op Op[T], root int, opts ...CollOption) error {
	_, err := c.reduce(blocking, bytesOf(in), bytesOf(out), reductionOf(op, opts), root, elemOf[T]())
	return err
}

// Allreduce combines the slices in of all ranks, element by element, into out at every rank. All
// ranks get the same bits. in and out have the same length at all ranks.
//
// In place: a rank passes nil as in, and its contribution is in out.
func Allreduce[T any](c *Comm, in, out []T, op Op[T], opts ...CollOption) error {
	_, err := c.allreduce(blocking, bytesOf(in), bytesOf(out), reductionOf(op, opts), elemOf[T]())
	return err
}

// reductionOf is a reduction without the type of its elements.
func reductionOf[T any](op Op[T], opts []CollOption) coll.Reduction {
	r := coll.Reduction{Elem: int(sizeOf[T]()), Commutes: commutes(opts)}
	if op != nil {
		r.Op = elemOp[T](op)
	}
	return r
}

func (c *Comm) reduce(how coll.How, in, out []byte, op coll.Reduction, root int, typ elemType) (Request, error) {
	s, err := c.beginRootedOrShort(how, calls.Reduce, root, c.checkElem(typ), func() bool {
		return c.reduceShort(in, out, op, root)
	})
	if s == nil {
		return Request{}, err
	}
	defer c.endCollective(s)
	if c.rank == root {
		err = checkReduction(in, out, op)
	} else {
		err, out = checkOp(op), nil
	}
	if err != nil {
		return Request{}, s.Refuse(err)
	}
	c.reduceWith(s, op)
	s.Reduce(in, out, root)
	return c.run(s, typ)
}

func (c *Comm) allreduce(how coll.How, in, out []byte, op coll.Reduction, typ elemType) (Request, error) {
	s, err := c.beginOrShort(how, calls.Allreduce, c.checkElem(typ), func() bool { return c.allreduceShort(in, out, op) })
	if s == nil {
		return Request{}, err
	}
	defer c.endCollective(s)
	if err := checkReduction(in, out, op); err != nil {
		return Request{}, s.Refuse(err)
	}
	c.reduceWith(s, op)
	s.Allreduce(in, out)
	return c.run(s, typ)
}

// reduceWith sets the operation of a collective, before its builder is called.
func (c *Comm) reduceWith(s *coll.Schedule, op coll.Reduction) {
	s.Reduction = op
	if s.How() != blocking {
		s.Returns = c.job.ownOps.has(op.Op)
	}
}

// checkOp checks that there is an operation.
func checkOp(op coll.Reduction) error {
	if op.Op == nil {
		return errNoOp
	}
	return nil
}

// checkReduction checks the arguments of a rank whose result has the length of its contribution.
func checkReduction(in, out []byte, op coll.Reduction) error {
	switch {
	case op.Op == nil:
		return errNoOp
	case in == nil:
		return nil
	case len(in) != len(out):
		return lengthError("out", len(out), len(in), op.Elem)
	}
	return checkApart(in, out)
}
