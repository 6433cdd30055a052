package comm

import (
	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
)

// Bcast copies the root's buffer to the buffer of every other rank. All buffers have the same
// length.
func Bcast[T any](c *Comm, buf []T, root int) error {
	_, err := c.bcast(blocking, bytesOf(buf), root, elemOf[T]())
	return err
}

func (c *Comm) bcast(how coll.How, buf []byte, root int, typ elemType) (Request, error) {
	s, err := c.beginRootedOrShort(how, calls.Bcast, root, c.checkElem(typ), func() bool { return c.bcastShort(buf, root) })
	if s == nil {
		return Request{}, err
	}
	defer c.endCollective(s)
	s.Bcast(buf, root)
	return c.run(s, typ)
}
