package comm

import (
	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
)

// Barrier returns when every rank of the communicator has called it.
func (c *Comm) Barrier() error {
	_, err := c.barrier(blocking)
	return err
}

func (c *Comm) barrier(how coll.How) (Request, error) {
	s, err := c.beginOrShort(how, calls.Barrier, nil, func() bool { return c.team.BarrierShort() })
	if s == nil {
		return Request{}, err
	}
	defer c.endCollective(s)
	s.NoBuffers()
	s.Barrier()
	return c.run(s, nil)
}
