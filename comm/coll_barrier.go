package comm

// Barrier returns when every rank of the communicator has called it.
func (c *Comm) Barrier() error {
	s, err := c.begin("barrier", nil)
	if err != nil {
		return err
	}
	defer c.endCollective(s)
	s.NoBuffers()
	s.Barrier()
	return c.run(s)
}
