package comm

import (
	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
)

// Gather collects the slices in of all ranks into out at the root, in the order of ranks: len(out)
// == Size()*len(in). in has the same length at all ranks. Other ranks ignore out.
//
// In place: the root passes nil as in, and its part is already at its place in out.
func Gather[T any](c *Comm, in, out []T, root int) error {
	_, err := c.gather(blocking, bytesOf(in), bytesOf(out), int(sizeOf[T]()), root, elemOf[T]())
	return err
}

// Scatter cuts in at the root into one part for each rank, in the order of ranks, and puts each
// part into out at its rank: len(in) == Size()*len(out). Other ranks ignore in.
//
// In place: the root passes nil as out, and its part stays in its place in in.
func Scatter[T any](c *Comm, in, out []T, root int) error {
	_, err := c.scatter(blocking, bytesOf(in), bytesOf(out), int(sizeOf[T]()), root, elemOf[T]())
	return err
}

// Allgather collects the slices in of all ranks into out at every rank, in the order of ranks:
// len(out) == Size()*len(in). in has the same length at all ranks.
//
// In place: a rank passes nil as in, and its part is already at its place in out.
func Allgather[T any](c *Comm, in, out []T) error {
	_, err := c.allgather(blocking, bytesOf(in), bytesOf(out), int(sizeOf[T]()), elemOf[T]())
	return err
}

func (c *Comm) gather(how coll.How, in, out []byte, elem, root int, typ elemType) (Request, error) {
	s, err := c.beginRooted(how, calls.Gather, root, c.checkElem(typ))
	if err != nil {
		return Request{}, err
	}
	defer c.endCollective(s)
	if c.rank != root {
		s.Gather(in, nil, root)
		return c.run(s, typ)
	}
	if err := checkParts("out", in, out, elem, len(c.group)); err != nil {
		return Request{}, s.Refuse(err)
	}
	s.Gather(in, out, root)
	return c.run(s, typ)
}

func (c *Comm) scatter(how coll.How, in, out []byte, elem, root int, typ elemType) (Request, error) {
	s, err := c.beginRooted(how, calls.Scatter, root, c.checkElem(typ))
	if err != nil {
		return Request{}, err
	}
	defer c.endCollective(s)
	if c.rank != root {
		s.Scatter(nil, out, root)
		return c.run(s, typ)
	}
	if err := checkParts("in", out, in, elem, len(c.group)); err != nil {
		return Request{}, s.Refuse(err)
	}
	s.Scatter(in, out, root)
	return c.run(s, typ)
}

func (c *Comm) allgather(how coll.How, in, out []byte, elem int, typ elemType) (Request, error) {
	s, err := c.beginOrShort(how, calls.Allgather, c.checkElem(typ), func() bool { return c.allgatherShort(in, out, elem) })
	if s == nil {
		return Request{}, err
	}
	defer c.endCollective(s)
	if err := checkParts("out", in, out, elem, len(c.group)); err != nil {
		return Request{}, s.Refuse(err)
	}
	s.Allgather(in, out)
	return c.run(s, typ)
}

// checkParts checks the two buffers of a rank: its own part, nil for in place, and the whole, of n
// equal parts.
func checkParts(whole string, part, all []byte, elem, n int) error {
	if part == nil {
		if n*elem > 0 && len(all)%(n*elem) != 0 {
			return unevenError(whole, len(all), n, elem)
		}
		return nil
	}
	if len(all) != n*len(part) {
		return lengthError(whole, len(all), n*len(part), elem)
	}
	return checkApart(part, all)
}
