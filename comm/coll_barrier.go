package comm

// Barrier returns when every rank of the communicator has called it.
func (c *Comm) Barrier() error {
	s, err := c.begin("barrier", nil)
	if err != nil {
		return err
	}
	defer s.leave()
	s.bare = true
	s.barrier()
	return s.run(c)
}

// barrier is by dissemination: in each round a rank tells another, twice as far away as
// in the last, and is told by one, that as many ranks as that have come.
func (s *schedule) barrier() {
	n := len(s.group)
	if s.flat(0) {
		s.barrierFlat()
		return
	}
	for d := 1; d < n; d *= 2 {
		s.send(up(s.rank, d, n), nil)
		s.recv(down(s.rank, d, n), nil)
		s.wait()
	}
}
