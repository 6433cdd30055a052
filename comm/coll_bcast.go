package comm

// Bcast copies the root's buffer to the buffer of every other rank. All buffers have the same
// length.
func Bcast[T any](c *Comm, buf []T, root int) error {
	return c.bcast(bytesOf(buf), root, checkElem[T](c))
}

func (c *Comm) bcast(buf []byte, root int, err error) error {
	s, err := c.beginRooted("bcast", root, err)
	if err != nil {
		return err
	}
	defer c.endCollective(s)
	s.Bcast(buf, root)
	return c.run(s)
}
