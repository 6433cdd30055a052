package comm

import (
	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
)

// Alltoall sends the first part of in to rank 0, the second part to rank 1, and so on. It puts the
// parts that arrive into out, in the order of ranks. in and out have the same length at all ranks,
// a multiple of Size().
//
// In place: all ranks pass nil as in, and have the parts to send in out.
func Alltoall[T any](c *Comm, in, out []T) error {
	_, err := c.alltoall(blocking, bytesOf(in), bytesOf(out), int(sizeOf[T]()), elemOf[T]())
	return err
}

func (c *Comm) alltoall(how coll.How, in, out []byte, elem int, typ elemType) (Request, error) {
	s, err := c.beginOrShort(how, calls.Alltoall, c.checkElem(typ), func() bool { return c.alltoallShort(in, out, elem) })
	if s == nil {
		return Request{}, err
	}
	defer c.endCollective(s)
	if err := checkExchange(in, out, elem, len(c.group)); err != nil {
		return Request{}, s.Refuse(err)
	}
	s.Alltoall(in, out)
	return c.run(s, typ)
}

// checkExchange checks two buffers of n equal parts each. in is nil for in place.
func checkExchange(in, out []byte, elem, n int) error {
	if in != nil && len(in) != len(out) {
		return lengthError("out", len(out), len(in), elem)
	}
	if n*elem > 0 && len(out)%(n*elem) != 0 {
		return unevenError("out", len(out), n, elem)
	}
	return checkApart(in, out)
}
